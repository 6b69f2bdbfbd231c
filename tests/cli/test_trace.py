"""sextant trace: table, JSON, page, dump, and what it refuses."""
import html.parser
import json
import pathlib
import shutil

import jsonschema
import pytest
from conftest import ROOT, Safetensors

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/trace.schema.json").read_text()))
IDS = "1 17 42 99 5 63"


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text(IDS)
    return path


def traced(sextant, *args, status=0):
    document = sextant.json("trace", *args, status=status)
    SCHEMA.validate(document)
    return document


def with_nan(golden, tmp_path, tensor, at, name="llama2"):
    """A copy with a BF16 NaN at an element of a tensor, and the byte where it lies."""
    model = tmp_path / "nan"
    shutil.copytree(golden / name, model)
    file = model / "model.safetensors"
    data = bytearray(file.read_bytes())
    opened = Safetensors(file)
    offset = len(data) - len(opened.body) + opened.header[tensor]["data_offsets"][0] + 2 * at
    data[offset:offset + 2] = b"\xc0\x7f"
    file.write_bytes(bytes(data))
    return model, offset


def test_every_tap_and_every_input_says_whether_it_has_a_scale(sextant, golden, ids):
    document = traced(sextant, golden / "modelopt-llama-mixed", "--ids", ids)
    assert document["verdict"] == "finite" and document["first_bad"] is None and document["ids"] == [1, 17, 42, 99, 5, 63]
    assert document["policy"] == ["a16"]
    taps = document["taps"]
    assert taps[0]["tap"] == "embed" and taps[-1]["tap"] == "logits" and taps[-1]["rows"] == 1
    formats = {tap["module"].rsplit(".", 1)[-1]: tap["input"].get("format") for tap in taps if tap["tap"] == "input"}
    assert formats["q_proj"] == "fp8" and formats["up_proj"] == "nvfp4" and formats["lm_head"] is None
    for tap in taps:
        if tap["tap"] == "input" and tap["input"]["scale"] is not None:
            unit = {"fp8": 448, "nvfp4": 2688}[tap["input"]["format"]]
            assert tap["input"]["calibrated_amax"] == pytest.approx(unit * tap["input"]["scale"], rel=1e-6)
            assert tap["input"]["ratio"] == pytest.approx(tap["amax"] / tap["input"]["calibrated_amax"], rel=1e-6)


def test_scales_that_are_too_small_are_alarms(sextant, golden, ids):
    # input_scale of this model is a quarter of the calibrated amax (tests/golden/README.md).
    document = traced(sextant, golden / "modelopt-llama3-shared", "--ids", ids)
    assert {alarm["quantity"] for alarm in document["alarms"]} >= {"ratio", "clipped"}
    assert any(alarm["severity"] == "error" for alarm in document["alarms"])
    text = sextant("trace", golden / "modelopt-llama3-shared", "--ids", ids)
    assert text.returncode == 0 and "times the calibrated one" in text.stdout and "largest r" in text.stdout
    assert "no linear has an activation scale" in sextant("trace", golden / "llama2", "--ids", ids).stdout


def test_a_nan_is_named_with_tensor_layer_token_and_byte(sextant, golden, tmp_path, ids):
    tensor = "model.layers.1.mlp.up_proj.weight"
    model, offset = with_nan(golden, tmp_path, tensor, 3 * 64 + 5)
    document = traced(sextant, model, "--ids", ids, status=2)
    bad = document["first_bad"]
    assert (bad["tap"], bad["layer"], bad["position"], bad["token"], bad["column"]) == ("up", 1, 0, 1, 3)
    assert bad["cause"]["tensor"] == tensor and bad["cause"]["index"] == [3, 5] and bad["cause"]["offset"] == offset
    done = sextant("trace", model, "--ids", ids)
    assert done.returncode == 2 and "first bad tap: up of layer 1" in done.stdout
    assert f"because: {tensor}[3, 5] is nan (byte {offset} of model.safetensors)" in done.stdout


def test_a_token_of_a_prompt_is_shown_as_text(sextant, talker, golden, tmp_path):
    model = tmp_path / "talker"
    shutil.copytree(talker, model)
    file = model / "model.safetensors"
    opened, data = Safetensors(file), bytearray(file.read_bytes())
    width = opened.header["model.embed_tokens.weight"]["shape"][1]
    token = 3 + ord("b")  # its tokenizer has single bytes from id 3 on
    at = len(data) - len(opened.body) + opened.header["model.embed_tokens.weight"]["data_offsets"][0] + 2 * token * width
    data[at:at + 2] = b"\x80\x7f"
    file.write_bytes(bytes(data))
    bad = traced(sextant, model, "--prompt", "aabb", "--raw", status=2)["first_bad"]
    assert (bad["tap"], bad["position"], bad["token"], bad["text"]) == ("embed", 2, token, "b")
    # With the template there is more before it.
    assert traced(sextant, model, "--prompt", "aabb", status=2)["first_bad"]["position"] > 2


def test_taps_to_show(sextant, golden, ids):
    model = golden / "llama2"
    lines = sextant("trace", model, "--ids", ids).stdout.splitlines()
    everything = sextant("trace", model, "--ids", ids, "-v").stdout.splitlines()
    assert len(everything) > len(lines) + 20
    for pattern, expected in (("q_rope", {"q_rope"}), ("1.*", None), ("model.layers.0.mlp.*", {"input", "gate", "up", "down"})):
        taps = traced(sextant, model, "--ids", ids, "--taps", pattern)["taps"]
        assert taps and (expected is None or {tap["tap"] for tap in taps} == expected)
    assert {tap["layer"] for tap in traced(sextant, model, "--ids", ids, "--taps", "1.*")["taps"]} == {1}
    text = sextant.fails(64, "trace", model, "--ids", ids, "--taps", "nothing*")
    assert "no tap matches" in text and "embed, attn_in" in text


def test_chunks_change_nothing(sextant, golden, ids):
    whole, pieces = (traced(sextant, golden / "qwen3", "--ids", ids, *more)["taps"] for more in ([], ["--prefill-chunk", "2"]))
    assert whole == pieces


@pytest.mark.parametrize("policy", [[], ["--policy", "f32"], ["--policy", "f32", "--policy", "*.mlp.*=a16"]])
def test_a_dump_is_read_back(sextant, golden, tmp_path, ids, policy):
    dump = tmp_path / "dump"
    assert sextant("trace", golden / "llama3", "--ids", ids, "--write-dump", dump, *policy).returncode == 0
    report = sextant.json("compare", golden / "llama3", "--dump", dump)
    assert sorted(path.name for path in dump.iterdir()) == ["dump.json", "dump.safetensors"]
    done = sextant("compare", golden / "llama3", "--dump", dump)
    assert done.returncode == 0 and "hidden.0" in done.stdout and "logits" in done.stdout
    assert "hidden.0" in json.dumps(report)
    # Another model is over its bounds.
    assert sextant("compare", golden / "llama-rope-yarn", "--dump", dump).returncode in (1, 3)


def test_bad_usage(sextant, golden, talker, tmp_path, ids):
    model = golden / "llama2"
    assert "found neither" in sextant.fails(64, "trace", model)
    assert "found both" in sextant.fails(64, "trace", model, "--prompt", "x", "--ids", ids)
    assert "empty" in sextant.fails(64, "trace", talker, "--prompt", "")
    assert "tokenizer.json" in sextant.fails(3, "trace", model, "--prompt", "x")
    bad = tmp_path / "bad.txt"
    bad.write_text("1 2 999999")
    assert "999999" in sextant.fails(3, "trace", model, "--ids", bad)
    bad.write_text("")
    sextant.fails(3, "trace", model, "--ids", bad)
    bad.write_text("1 " * 5000)
    assert "maximum context length" in sextant.fails(3, "trace", model, "--ids", bad)
    assert "file of its own" in sextant.fails(64, "trace", model, "--ids", ids, "--html", "-")
    sextant.fails(64, "trace", model, "--ids", ids, "--policy", "nothing.like.this=f32")


def test_dumps_that_cannot_be_written(sextant, golden, tmp_path, ids):
    model = golden / "llama2"
    there = tmp_path / "there"
    there.mkdir()
    assert "exists" in sextant.fails(64, "trace", model, "--ids", ids, "--write-dump", there)
    assert list(there.iterdir()) == []
    sextant.fails(3, "trace", model, "--ids", ids, "--write-dump", tmp_path / "no" / "parent")
    file = tmp_path / "file"
    file.write_text("x")
    done = sextant("trace", model, "--ids", ids, "--write-dump", file / "below")
    assert done.returncode in (3, 5) and done.stdout == "" and file.read_text() == "x"
    # Nothing is written when the command fails for another reason.
    sextant.fails(64, "trace", model, "--ids", ids, "--taps", "nothing*", "--write-dump", tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


class Page(html.parser.HTMLParser):
    VOID = {"meta", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.outside = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href") or "http" in (value or "")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_self_contained(sextant, golden, tmp_path, ids):
    page = tmp_path / "trace.html"
    done = sextant("trace", golden / "modelopt-llama3-shared", "--ids", ids, "--html", page)
    assert done.returncode == 0 and "largest r" in done.stdout
    text = page.read_text()
    parsed = Page(text)
    assert parsed.outside == [] and "script" not in parsed.tags
    for chart in ("amax", "rms", "ratio", "clipped"):
        assert f'id="{chart}-title"' in text
    assert "model.layers.0" in text and "times the calibrated one" in text
    plain = tmp_path / "plain.html"
    model, _ = with_nan(golden, tmp_path, "model.layers.1.mlp.up_proj.weight", 0)
    assert sextant("trace", model, "--ids", ids, "--html", plain).returncode == 2
    text = plain.read_text()
    Page(text)
    assert "not finite" in text and "model.layers.1.mlp.up_proj.weight[0, 0]" in text and "No linear has an activation scale" in text
    assert "file of the model itself" in sextant.fails(64, "trace", model, "--ids", ids, "--html", model / "config.json")


def test_a_markup_prompt_is_escaped(sextant, talker, tmp_path):
    page = tmp_path / "trace.html"
    assert sextant("trace", talker, "--prompt", "<script>alert(1)</script>", "--html", page).returncode == 0
    assert "<script" not in page.read_text()
    assert pathlib.Path(page).stat().st_size > 1000
