"""--policy: every form of cli.md section 5 runs, says what it could not follow, and is explained."""
import json

import pytest

from conftest import GOLDEN

FORMS = ["f32", "a16", "a8", "a8:fp8", "a4:static", "a4:static*4", "a4:dynamic", "a4:token", "a4:one", "a4:one,quantizer=B", "a4:token,quantizer=C", "auto"]


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids"
    path.write_text("1 2 3 4 5 6 7 8")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_runs(sextant, ids, form):
    for model in ["modelopt-llama3-separate", "ct-llama3-nvfp4", "modelopt-llama-mixed"]:
        done = sextant("run", GOLDEN / model, "--ids", ids, "--max-tokens", 2, "--temperature", 0, "--policy", form)
        assert done.returncode == 0 and len(done.stdout.split()) == 2, done.stderr


def test_quantized_activations_change_the_perplexity_and_static_scales_that_fit_are_like_dynamic_ones(sextant, tmp_path):
    text = tmp_path / "ids"
    text.write_text(" ".join(str(i * 37 % 300 + 1) for i in range(200)))
    nll = {form: sextant.json("eval", GOLDEN / "modelopt-llama3-separate", "--ids", text, "--window", 100, "--policy", form)["nll"]
           for form in ["f32", "a16", "a8", "a4:static", "a4:dynamic"]}
    assert abs(nll["a16"] - nll["f32"]) < 0.02 * nll["f32"]
    assert abs(nll["a8"] - nll["f32"]) < 0.05 * nll["f32"]
    assert nll["a4:static"] != nll["f32"] and nll["a4:dynamic"] != nll["f32"]


def test_a_missing_input_scale_refuses_static_scales_before_the_first_token(sextant, ids):
    model = GOLDEN / "modelopt-qwen3-moe"
    names = [f"model.layers.1.mlp.experts.2.{part}_proj.input_scale" for part in ("down", "gate", "up")]
    text = sextant.fails(2, "run", model, "--ids", ids, "--policy", "a4:static")
    assert all(name in text for name in names) and "C15" in text
    done = sextant("run", model, "--ids", ids, "--max-tokens", 1, "--policy", "a4:static", "--allow", "C15:*.input_scale")
    assert done.returncode == 0 and "P13 policy-not-followed" in done.stderr and "experts.2" in done.stderr and "takes a16" in done.stderr
    done = sextant("explain", model, "--policy", "a4:static")
    assert done.returncode == 2 and "C15" in done.stderr and "experts.*.up_proj" in done.stdout
    for form in ["a16", "a4:dynamic", "a4:one", "auto"]:
        assert sextant("run", model, "--ids", ids, "--max-tokens", 1, "--policy", form).returncode == 0


def test_policies_from_a_file(sextant, tmp_path, ids):
    file = tmp_path / "policies"
    file.write_text("# attention as it is\n\n  a4:token   # everything\nmodel.layers.*.self_attn.*=a16\n")
    plan = sextant.json("explain", GOLDEN / "modelopt-llama3-separate", "--policy", f"@{file}")
    assert plan["policies"] == ["a16", "a4:token", "model.layers.*.self_attn.*=a16"]
    forms = {linear["module"]: linear["activations"] for linear in plan["linears"]}
    assert forms["model.layers.0.self_attn.q_proj"] == "a16" and forms["model.layers.0.mlp.up_proj"] == "a4:token"
    file.write_text("# nothing\n")
    assert "found none" in sextant.fails(64, "run", GOLDEN / "llama3", "--ids", ids, "--policy", f"@{file}")
    sextant.fails(3, "run", GOLDEN / "llama3", "--ids", ids, "--policy", "@/nowhere")


@pytest.mark.parametrize("spec, words", [
    ("a4", "a4:static"), ("a4:static*", "headroom"), ("a4:static*-1", "headroom"), ("a4:token*2", "headroom"), ("a16,quantizer=A", "quantizer=A"),
    ("a4:one,quantizer=E", "A, B or C"), ("a4:one,weights=int4", "stored, bf16 or f32"), ("lm_heat=a16", "matches none")])
def test_bad_policies(sextant, ids, spec, words):
    assert words in sextant.fails(64, "run", GOLDEN / "llama3", "--ids", ids, "--policy", spec)


def test_explain_a_model(sextant):
    plan = sextant.json("explain", GOLDEN / "modelopt-llama-mixed", "--policy", "auto", "--isa", "ref")
    by_module = {linear["module"]: linear for linear in plan["linears"]}
    q = by_module["model.layers.0.self_attn.q_proj"]
    assert (q["scheme"], q["activations"], q["weights"], q["bytes"]) == ("fp8-tensor", "a8:fp8", "fp8", 96 * 96 + 4 * 96)
    up = by_module["model.layers.1.mlp.up_proj"]
    assert (up["scheme"], up["activations"], up["rows"], up["columns"]) == ("nvfp4", "a4:static", 208, 96)
    assert up["bytes"] == 208 * 96 // 2 + 208 * 96 // 16 + 4 * 208
    assert by_module["lm_head"]["activations"] == "a16" and "not quantized" in by_module["lm_head"]["because"]
    # Two layers of one key head of 32, keys and values, BF16.
    assert plan["isa"] == "ref" and plan["kv_bytes_per_token"] == 2 * 32 * 2 * 2
    assert sextant.json("explain", GOLDEN / "modelopt-llama-mixed", "--policy", "f32")["kv_bytes_per_token"] == 2 * 32 * 2 * 4

    done = sextant("explain", GOLDEN / "modelopt-qwen3-moe", "--policy", "auto")
    assert done.returncode == 0 and "model.layers.*.mlp.experts.*.up_proj" in done.stdout and "no usable input scale" in done.stdout
    assert "a router chooses experts" in done.stdout


def test_explain_names_what_matches_nothing(sextant):
    done = sextant("explain", GOLDEN / "llama3", "--policy", "*.q_prj=f32")
    assert done.returncode == 64 and "matches no linear: *.q_prj=f32" in done.stdout and "matches none" in done.stderr
    assert "fooo" in sextant.fails(3, "explain", "fooo")
    sextant.fails(64, "explain", GOLDEN / "llama3", "--k", "64")


@pytest.fixture
def quantized(sextant, talker, tmp_path):
    """A small NVFP4 model with a tokenizer and no input scales."""
    path = tmp_path / "quantized"
    done = sextant("quantize", talker, path)
    assert done.returncode == 0, done.stderr
    return path


def test_warmup_measures_once_and_keeps_the_scales_under_the_models_hash(sextant, quantized, tmp_path):
    args = ["run", quantized, "Hello", "--max-tokens", 8, "--temperature", 0, "--json", "--warmup"]
    first = sextant(*args)
    assert first.returncode == 0 and "measured on" in first.stderr, first.stderr
    kept, = (sextant.home / "warmup").iterdir()
    scales = json.loads(kept.read_text())
    assert kept.stem == scales["model"]["hash"].replace(":", "-") and scales["text"]["source"] == "builtin"
    before = kept.read_bytes()
    second = sextant(*args)
    assert "measured before" in second.stderr and kept.read_bytes() == before
    assert second.stdout.splitlines()[:-1] == first.stdout.splitlines()[:-1]
    # What was measured under other policies, or with other kernels, is not taken.
    assert "measured on" in sextant(*args, "--policy", "f32", "--policy", "a4:warmup").stderr
    assert "measured on" in sextant(*args).stderr and "measured on" in sextant(*args, "--isa", "ref").stderr
    assert "measured on" in sextant(*args).stderr and kept.read_bytes() == before

    # The same as a file of calibrate on the same prompts; and not what a16 gives.
    file = tmp_path / "scales.json"
    assert sextant("calibrate", quantized, "--text", "builtin", "-o", file).returncode == 0
    text = tmp_path / "ids"
    text.write_text(" ".join(str(i % 60) for i in range(90)))
    def nll(*more):
        return sextant.json("eval", quantized, "--ids", text, "--window", 45, *more)["nll"]
    assert nll("--warmup") == nll("--input-scales", file) == nll("--policy", "a4:warmup", "--input-scales", file) != nll()
    plan = sextant.json("explain", quantized, "--policy", "a4:warmup", "--input-scales", file)
    multipliers = {linear["module"]: linear["input_multiplier"] for linear in plan["linears"] if linear["activations"] == "a4:warmup"}
    measured = json.loads(file.read_text())["modules"]
    assert multipliers and all(value == pytest.approx(measured[name]["g"], rel=1e-6) for name, value in multipliers.items())
    # Scales that were kept for other prompts are measured again.
    kept.write_text(kept.read_text().replace(scales["text"]["sha256"], "0" * 64))
    assert "measured on" in sextant(*args).stderr


def test_warmup_scales_that_are_not_there_or_of_another_model(sextant, quantized, talker, tmp_path, ids):
    assert "--warmup" in sextant.fails(64, "run", quantized, "Hi", "--policy", "a4:warmup")
    assert "--input-scales" in sextant.fails(64, "compare", quantized, "--policy-b", "a4:warmup", "--ids", ids)
    file = tmp_path / "scales.json"
    assert sextant("calibrate", talker, "--text", "builtin", "-o", file).returncode == 0
    assert "hash" in sextant.fails(3, "run", quantized, "Hi", "--input-scales", file)
    sextant.fails(3, "run", quantized, "Hi", "--input-scales", tmp_path / "nowhere")
    assert "take one" in sextant.fails(64, "run", quantized, "Hi", "--input-scales", file, "--warmup")
    assert "neither side" in sextant.fails(64, "compare", quantized, quantized, "--input-scales", file, "--ids", ids)
    # A dump of a run with scales is checked with the same scales.
    own = tmp_path / "own.json"
    assert sextant("calibrate", quantized, "--text", "builtin", "-o", own).returncode == 0
    dump = tmp_path / "dump"
    traced = sextant.json("trace", quantized, "--ids", ids, "--input-scales", own, "--write-dump", dump)
    assert traced["policy"] == ["a4:warmup"]
    assert sextant("compare", quantized, "--dump", dump, "--input-scales", own).returncode == 0
    policies = tmp_path / "policies"
    policies.write_text("a4:token\n")
    done = sextant("compare", quantized, "--policy-b", f"@{policies}", "--ids", ids)
    assert done.returncode == 0 and "a4:token" in done.stdout, done.stderr
    assert "tokenizer" in sextant.fails(3, "run", GOLDEN / "modelopt-llama3-shared", "--ids", ids, "--warmup")
    # Scales that no policy takes are no silent option, nor is a policy that nothing follows.
    assert "no policy is a4:warmup" in sextant.fails(64, "run", quantized, "Hi", "--policy", "a16", "--input-scales", own)
    assert "no policy is a4:warmup" in sextant.fails(64, "run", quantized, "Hi", "--policy", "a16", "--warmup")
    done = sextant("run", talker, "Hi", "--max-tokens", 1, "--policy", "a4:token")
    assert done.returncode == 0 and "P13 policy-not-followed" in done.stderr
    text = tmp_path / "text.txt"
    text.write_text("some words to calibrate on")
    assert "another name" in sextant.fails(64, "calibrate", quantized, "--text", text, "-o", text) and text.read_text()


def test_experts_never_reached_are_named_with_the_policy_used_for_them(sextant, tmp_path):
    ids = tmp_path / "few"
    ids.write_text("1 2")  # two tokens reach at most four of the experts
    file = tmp_path / "scales.json"
    done = sextant("calibrate", GOLDEN / "modelopt-qwen3-moe", "--ids", ids, "-o", file)
    assert done.returncode == 0 and "no token chose" in done.stderr
    unreached = json.loads(file.read_text())["unreached"]
    assert unreached and all({"layer", "expert", "source"} <= set(expert) for expert in unreached)
    text = tmp_path / "ids"
    text.write_text(" ".join(str(i % 300) for i in range(60)))
    done = sextant("eval", GOLDEN / "modelopt-qwen3-moe", "--ids", text, "--window", 30, "--input-scales", file, "--json")
    assert done.returncode == 0, done.stderr
