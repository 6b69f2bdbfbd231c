"""Cases from practice, sections 4 to 6 and C088: configs and exclusion rules, KV scales, experts and draft layers, files."""
import json
import resource
import struct

import numpy as np
import pytest

from . import arithmetic, fixture, models
from .fixture import (array, compressed_tensors, f32, f_lin, f_moe, fill, fp8, linear, modelopt, modelopt_sidecar, plain, patched,
                      safetensors, with_header, without, write, write_files)
from .report import error, note, warning

EXPERT = "model.layers.0.mlp.experts."
UP = "model.layers.0.mlp.up_proj"


def schemes(sextant, path):
    return {module: linear["scheme"] for module, linear in sextant.linears(path).items()}


def patterns(sextant, path):
    return {pattern["pattern"]: pattern["matched"] for pattern in sextant.json("inspect", path)["patterns"]}


# ------------------------------------------------------------------ 4. config and exclusion rules

def test_C046_config_json_only(sextant, tmp_path):
    path = write(tmp_path / "m", linear(UP, 4, 32), modelopt())
    assert sextant.doctor(path, "--strict").holds().dialect == "modelopt"


def test_C047_both_configs_present_and_different(sextant, tmp_path):
    path = write(tmp_path / "m", linear("lm_head", 4, 32), modelopt(["lm_head"]), modelopt_sidecar([]))
    sextant.doctor(path).holds(
        warning("P2", "configs-differ", says=["exclude_modules = []", "ignore = ['lm_head']", "config.json is used"]),
        warning("C20", "excluded-but-quantized", tensor="lm_head.weight"))
    assert schemes(sextant, path) == {"lm_head": "nvfp4"}
    agreeing = write(tmp_path / "agreeing", linear(UP, 4, 32), modelopt(["lm_head"]), modelopt_sidecar(["lm_head"]))
    assert "configs-differ" not in {f["slug"] for f in sextant.doctor(agreeing).findings}


def test_C049_not_excluded_in_config_and_plain_in_the_file(sextant, tmp_path):
    module = "model.layers.0.self_attn.o_proj"
    path = write(tmp_path / "m", {**linear(UP, 64, 64), **plain(module, 32, 32)}, modelopt())
    wanted = warning("P4", "declared-quantized-stored-plain", tensor=module + ".weight", layer=0, count=1, says=module)
    sextant.doctor(path).holds(wanted)
    assert sextant.doctor(path, "--strict").holds(wanted).status == 1
    assert schemes(sextant, path)[module] == "bf16"

    # And the model runs, with that warning and with numbers.
    model = models.Model(np.random.default_rng(11))
    tensors = models.as_modelopt(model, input_scales=False)
    whole = without(tensors, module + ".weight_scale", module + ".weight_scale_2")
    whole[module + ".weight"] = model.plain()[module + ".weight"]
    path = write(tmp_path / "whole", whole, {**model.config, **modelopt(["lm_head"], "W4A16_NVFP4")})
    (tmp_path / "ids").write_text("1 2 3 4 5 6")
    done = sextant("eval", path, "--ids", tmp_path / "ids", "--window", 6, "--json")
    assert done.returncode == 0 and 1 < json.loads(done.stdout)["perplexity"] < 1e6
    assert [module in line for line in done.stderr.splitlines() if "warning" in line] == [True]


def test_C050_modelopt_wildcard(sextant, tmp_path):
    visual, router = "model.visual.blocks.0.attn.qkv", "model.layers.0.mlp.router"
    tensors = {**plain(visual, 4, 4), **plain(router, 4, 4), **linear(EXPERT + "0.up_proj", 32, 32)}
    path = write(tmp_path / "m", tensors, modelopt(["model.visual*", "*router*"]))
    sextant.doctor(path, "--strict").holds()
    assert schemes(sextant, path) == {visual: "bf16", router: "bf16", EXPERT + "0.up_proj": "nvfp4"}
    matched = patterns(sextant, path)
    assert matched["model.visual*"] == [visual] and matched["*router*"] == [router]


def test_C052_regex_anchoring_and_a_pattern_that_matches_nothing(sextant, tmp_path):
    module = "model.visual.merger.mlp.0"
    groups = {"group_0": fixture.ct_group("tensor", 8, 0, activations={"num_bits": 8, "type": "float", "dynamic": True})}
    path = write(tmp_path / "m", fp8(module, 4, 32), compressed_tensors(["re:visual.*"], groups, "float-quantized"))
    sextant.doctor(path).holds(warning("P1", "pattern-matches-nothing", count=1, says=["re:visual.*", "from the start"]))
    assert patterns(sextant, path)["re:visual.*"] == [] and schemes(sextant, path) == {module: "fp8-tensor"}


def test_C053_extra_suffix_in_ignore_entries(sextant, tmp_path):
    wrapped = "model.vision_tower.encoder.layers.0.self_attn.q_proj.linear"
    for i, module in enumerate((wrapped, wrapped.removesuffix(".linear"))):
        path = write(tmp_path / str(i), {**plain(module, 4, 4), **fixture.linear_ct(UP, 4, 32)}, compressed_tensors([wrapped]))
        sextant.doctor(path, "--strict").holds()
        assert schemes(sextant, path)[module] == "bf16"


def test_C055_whole_expert_block_excluded(sextant, tmp_path):
    tensors = {}
    for layer in (2, 3):
        for expert in range(2):
            module = f"model.layers.{layer}.mlp.experts.{expert}.up_proj"
            tensors |= linear(module, 32, 32) if layer == 2 else plain(module, 32, 32)
    path = write(tmp_path / "m", tensors, modelopt(["model.layers.3.mlp.experts*"]))
    sextant.doctor(path, "--strict").holds()
    assert {module.split(".")[2]: scheme for module, scheme in schemes(sextant, path).items()} == {"2": "nvfp4", "3": "bf16"}


def test_C056_subtree_prefix(sextant, tmp_path):
    tensors = {**linear(UP, 64, 64), **plain("mtp.fc", 4, 8), "mtp.norm.weight": array(np.ones(4), "BF16"),
               **plain("mtp.layers.0.mlp.up_proj", 4, 4)}
    path = write(tmp_path / "all", tensors, modelopt(["mtp*"]))
    sextant.doctor(path, "--strict").holds()
    assert {"mtp.fc", "mtp.norm", "mtp.layers.0.mlp.up_proj"} <= set(patterns(sextant, path)["mtp*"])
    some = write(tmp_path / "some", tensors, modelopt(["mtp.layers.0*"]))
    sextant.doctor(some).holds(warning("P4", "declared-quantized-stored-plain", tensor="mtp.fc.weight", count=1))


def test_C058_unknown_algorithm_in_the_table(sextant, tmp_path):
    layers = {f"model.layers.{i}.mlp.up_proj": {"quant_algo": name} for i, name in enumerate(("NVFP4_FUTURE", "NVFP4"))}
    tensors = {**linear("model.layers.0.mlp.up_proj", 4, 32), **linear("model.layers.1.mlp.up_proj", 4, 32)}
    path = write(tmp_path / "m", tensors, {}, modelopt_sidecar([], "MIXED_PRECISION", quantized_layers=layers))
    sextant.doctor(path).holds(error("P3", "unknown-algorithm", layer=0, says=["model.layers.0.mlp.up_proj", "NVFP4_FUTURE"]))
    assert set(sextant.linears(path, status=2)) == set(layers)


# ------------------------------------------------------------------ 5. KV scales, experts and draft layers

ATTENTION = "model.layers.0.self_attn."


def test_C059_kv_scales_under_projection_names(sextant, tmp_path):
    model = models.Model(np.random.default_rng(13))
    kv = {ATTENTION + "k_proj.k_scale": f32(0.5), ATTENTION + "v_proj.v_scale": f32(0.25)}
    sextant.doctor(write(tmp_path / "part", {**f_lin(), **kv}, modelopt()), "--strict").holds()
    path = write(tmp_path / "whole", {**model.plain(), **kv}, model.config)
    sextant.doctor(path, "--strict").holds()
    (tmp_path / "ids").write_text("1 2 3")
    assert sextant("run", path, "--ids", tmp_path / "ids", "--max-tokens", 2).returncode == 0


@pytest.mark.parametrize("value", [0.0, float("nan")], ids=["zero", "nan"])
def test_C061_bad_kv_scale(sextant, tmp_path, value):
    name = ATTENTION + "k_proj.k_scale"
    path = write(tmp_path / "m", {**f_lin(), name: f32(value)}, modelopt())
    sextant.doctor(path).holds(error("K1", "bad-kv-scale", tensor=name, layer=0, value=value))


def test_C062_extra_expert_scale_names(sextant, tmp_path):
    extra, alias = EXPERT + "0.w2_input_scale_extra", EXPERT + "1.down_proj.input_scale"
    tensors = {name.replace("1.down_proj.input", "1.w2.input"): tensor for name, tensor in f_moe().items()}
    assert alias not in tensors
    path = write(tmp_path / "m", {**tensors, extra: f32(1.0)}, modelopt(["*.gate"]))
    sextant.doctor(path, "--strict").holds(note("E1", "unknown-scale-name", tensor=extra, layer=0, expert=0))
    assert sextant.linears(path)[EXPERT + "1.down_proj"]["input_scale"] == 0.25
    # It runs as the model without the extra scale and with the usual name does.
    (tmp_path / "ids").write_text("3 1 4 1 5 9 2 6")
    runs = []
    for experts in (tensors, f_moe()):
        whole, config = models.with_experts(experts, top_k=2)
        at = write(tmp_path / str(len(runs)), whole, {**config, **modelopt(["*.gate", "*self_attn*", "lm_head"])})
        done = sextant("run", at, "--ids", tmp_path / "ids", "--max-tokens", 8, "--temperature", 0)
        assert done.returncode == 0, done.stderr
        runs.append(done.stdout)
    assert runs[0] == runs[1] and runs[0].split()


def test_C064_draft_fusion_table(sextant, tmp_path):
    tensors, layers = {}, {}
    for module in ("mtp.0.mlp", "model.layers.0.mlp"):
        for part in ("gate_proj", "up_proj", "down_proj"):
            tensors |= linear(f"{module}.{part}", 32, 32)
            layers[f"{module}.{part}"] = {"quant_algo": "NVFP4", "group_size": 16}
    config = modelopt([], "MIXED_PRECISION", quantized_layers=layers)
    # Gate pairs with up, never with down; settings keyed by the file's names apply.
    tensors["mtp.0.mlp.down_proj.weight_scale_2"] = f32(0.125)
    report = sextant.doctor(write(tmp_path / "down", tensors, config), "--strict").holds(note("K2", "draft-layer"))
    assert "C14" not in {f["id"] for f in report.findings}
    tensors["mtp.0.mlp.up_proj.weight_scale_2"] = f32(0.25)
    report = sextant.doctor(write(tmp_path / "up", tensors, config), "--strict").holds(note("C14", "fused-scale-ratio", value=2.0, count=1))
    assert "mtp.0.mlp.gate_proj" in next(f["message"] for f in report.findings if f["id"] == "C14")


def test_C065_prompt_dependent_dead_expert(sextant, tmp_path):
    name = EXPERT + "5.up_proj.weight_scale"
    tensors = f_moe()
    tensors[name] = patched(tensors[name], 2 * 9 + 1, 0x7F)
    wanted = error("C1", "nan-block-scale", tensor=name, layer=0, expert=5, index=[9, 1], count=1)
    path = write(tmp_path / "m", tensors, modelopt(["*.gate"]))
    sextant.doctor(path).holds(wanted)
    # Forced by name, and by nothing else, it is a warning.
    assert sextant.doctor(path, "--allow", f"C1:{name}").holds(warning("C1", tensor=name)).status == 0
    sextant.doctor(path, "--allow", "C1:*.experts.4.*").holds(wanted)

    # Token 7 alone goes to expert 5: its embedding is the first dimension, that of all others begins with the second; attention adds nothing.
    tensors, config = models.with_experts(tensors)
    rng = np.random.default_rng(19)
    table = np.concatenate([np.tile([0.0, 1.0], (64, 1)), rng.normal(0, 0.1, (64, 30))], 1)
    table[7] = np.eye(32)[0]
    router = rng.normal(0, 0.1, (8, 32))
    router[5, :2] = 50, -50
    tensors |= {"model.embed_tokens.weight": array(table, "BF16"), "model.layers.0.mlp.gate.weight": array(router, "BF16"),
                "model.layers.0.self_attn.o_proj.weight": array(np.zeros((32, 32)), "BF16")}
    others = ["*.gate", "*self_attn*", "lm_head"]
    whole = write(tmp_path / "whole", tensors, {**config, **modelopt(others)})
    def run(ids, status):
        (tmp_path / "ids").write_text(ids)
        done = sextant("run", whole, "--ids", tmp_path / "ids", "--max-tokens", 1, "--temperature", 0, "--allow", f"C1:{name}")
        assert done.returncode == status, done.stderr
        return done
    assert run("1 2 3 4 5 6 8", 0).stdout.split()
    failed = run("1 2 7", 2).stderr
    assert "nan" in failed.lower() and "layer 0" in failed and f"{EXPERT}5.up_proj" in failed
    assert run("9 10", 0).stdout.split()


def test_C067_fused_3d_experts(sextant, tmp_path):
    rng = np.random.default_rng(17)
    shapes = {EXPERT + "gate_up_proj": (8, 64, 32), EXPERT + "down_proj": (8, 32, 32), "model.layers.0.mlp.gate.weight": (8, 32)}
    tensors = {name: array(rng.normal(size=shape), "BF16") for name, shape in shapes.items()}
    sextant.doctor(write(tmp_path / "m", tensors, {}), "--strict").holds()


# ------------------------------------------------------------------ 6. files

def two():
    return {**plain("a", 2, 2), **plain("b", 2, 2, 2.0)}


def index_of(**weight_map):
    return {"metadata": {}, "weight_map": {name + ".weight": file for name, file in weight_map.items()}}


def test_C068_index_names_a_missing_shard(sextant, tmp_path):
    files = {"one.safetensors": safetensors(plain("a", 2, 2)), "config.json": fixture.PART,
             "model.safetensors.index.json": index_of(a="one.safetensors", b="two.safetensors", c="two.safetensors")}
    sextant.doctor(write_files(tmp_path / "m", files)).unreadable("two.safetensors", "2 of the index's tensors")


def test_C070_two_complete_copies_side_by_side(sextant, tmp_path):
    one = "model-00001-of-00001.safetensors"
    files = {one: safetensors(plain("a", 2, 2)), "consolidated.safetensors": safetensors(plain("other", 2, 2, 9.0)),
             "config.json": fixture.PART, "model.safetensors.index.json": index_of(a=one)}
    path = write_files(tmp_path / "m", files)
    sextant.doctor(path, "--strict").holds(note("F2", "unread-file", file="consolidated.safetensors"))
    assert [(t["name"], t["file"]) for t in sextant.json("inspect", path)["tensors"]] == [("a.weight", one)]


def test_C071_only_a_consolidated_index(sextant, tmp_path):
    one, two_ = (f"consolidated-0000{i}-of-00002.safetensors" for i in (1, 2))
    files = {one: safetensors(plain("a", 2, 2)), two_: safetensors(plain("b", 2, 2)), "config.json": fixture.PART,
             "consolidated.safetensors.index.json": index_of(a=one, b=two_)}
    path = write_files(tmp_path / "m", files)
    sextant.doctor(path, "--strict").holds()
    assert len(sextant.json("inspect", path)["tensors"]) == 2


@pytest.mark.parametrize("kind, first", [("zip", b"PK\x03\x04"), ("pickle", b"\x80\x04\x95")])
def test_C073_not_a_safetensors_file(sextant, tmp_path, kind, first):
    path = write_files(tmp_path / "m", {"model.safetensors": first + b"\xff" * 500, "config.json": fixture.PART})
    little_memory = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    sextant.doctor(path, "-j", 1, timeout=20, preexec_fn=little_memory).unreadable(kind)


def test_C074_large_but_legal_header(sextant, tmp_path):
    entries = (b'"model.layers.%d.mlp.experts.%06d.w.extra_name":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i >> 14, i, i, i + 1)
               for i in range(1_290_000))
    header = b"{" + b",".join(entries) + b"}"
    assert len(header) > 120e6
    at = tmp_path / "m"
    at.mkdir()
    (at / "model.safetensors").write_bytes(with_header(header, b"\1" * 1_290_000))
    done = sextant("doctor", at, "--json", timeout=120, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)))
    (at / "model.safetensors").unlink()
    # Accepted; or refused with the limit in the message.
    document = json.loads(done.stdout)
    if done.returncode == 3:
        assert "limit" in document["findings"][0]["message"]
    else:
        assert done.returncode == 0 and document["summary"]["tensors"] == 1_290_000


def broken(kind):
    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    at = lambda begin: {**one, "data_offsets": [begin, begin + 4]}
    if kind == "trailing":
        return safetensors(two()) + b"\0" * 16
    if kind == "overlap":
        return with_header({"a": one, "b": at(2)}, b"\0" * 6)
    if kind == "gap":
        return with_header({"a": one, "b": at(8)}, b"\0" * 12)
    text = json.dumps(one)
    return with_header(f'{{"a":{text},"a":{text}}}'.encode(), b"\0" * 4)


@pytest.mark.parametrize("kind", ["trailing", "overlap", "gap", "duplicate"])
def test_C076_trailing_bytes_overlap_gap_duplicate_key(sextant, tmp_path, kind):
    path = write_files(tmp_path / "m", {"model.safetensors": broken(kind), "config.json": fixture.PART})
    words = {"gap": "hole"}.get(kind, kind)
    sextant.doctor(path).unreadable(words)
    (tmp_path / "ids").write_text("1 2 3")
    for command in (["inspect", path], ["run", path, "--ids", tmp_path / "ids"], ["quantize", path, tmp_path / "out"]):
        status, line = sextant.refused(*command)
        assert status == 3 and words in line.lower(), command


def test_C077_sub_byte_and_e8m0_dtypes(sextant, tmp_path):
    lin = fixture.LIN
    path = write(tmp_path / "m", {**f_lin(), lin + ".weight": fill("F4", [4, 32], 0x21)}, modelopt())
    sextant.doctor(path, "--strict").holds()
    assert sextant.first(path, lin, 128) == [0.25, 0.5] * 64
    for i, weight in enumerate((fill("F4", [4, 32], 0x21), fill("U8", [4, 16], 0x21))):
        tensors = {"m.weight": weight, "m.weight_scale": ("F8_E8M0", [4, 1], struct.pack("4B", 127, 128, 126, 127))}
        mx = write(tmp_path / str(i), tensors, {"quantization_config": {"quant_method": "mxfp4"}})
        sextant.doctor(mx, "--strict").holds()
        assert np.reshape(sextant.first(mx, "m", 128), (4, 32))[:, :2].tolist() == [[0.5, 1], [1, 2], [0.25, 0.5], [0.5, 1]]


# ------------------------------------------------------------------ C088

def test_C088_weight_comparison_without_running(sextant, tmp_path):
    if not sextant.has_option("doctor", "--against"):
        pytest.skip("doctor --against is not there yet")
    model = models.Model(np.random.default_rng(19), d=128, heads=4, kv_heads=4, head_dim=32, d_ff=256, layers=2)
    reference = write(tmp_path / "bf16", model.plain(), model.config)
    tensors, bad = models.as_modelopt(model, input_scales=False), "model.layers.1.mlp.up_proj"
    # Block scales of other data: the right codes times scales that vary by a factor of e from block to block.
    true = model.weights[bad + ".weight"]
    scales = arithmetic.e4m3_encode(np.exp(model.rng.normal(0, 0.75, (256, 8))) * 40)
    tensors[bad + ".weight_scale"] = array(scales, "F8_E4M3")
    g = struct.unpack("<f", tensors[bad + ".weight_scale_2"][2])[0]
    packed = np.frombuffer(tensors[bad + ".weight"][2], np.uint8).reshape(256, 64)
    values = arithmetic.nvfp4_values(packed, scales, g)
    cosine = (values * true).sum() / np.sqrt((values ** 2).sum() * (true ** 2).sum())
    assert 0.7 < cosine < 0.85
    path = write(tmp_path / "m", tensors, {**model.config, **modelopt(["lm_head"], "W4A16_NVFP4")})
    sextant.doctor(path, "--strict").holds()
    findings = [f for f in sextant.doctor(path, "--against", reference).of("error", "warning") if f["id"].startswith("A")]
    assert [(f["tensor"].removesuffix(".weight"), f["layer"], f["count"]) for f in findings] == [(bad, 1, 1)]
    assert f"{cosine:.2f}" in findings[0]["message"] or abs(findings[0]["value"] - cosine) < 0.01
