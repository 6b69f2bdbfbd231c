"""explain: figures are those of docs/nvfp4.md 3.1.4, 4.1 and 4.2, or arithmetic by hand."""
import pytest

Q_A = ["input_scale=0.00025141", "--layer", "q_a_proj", "--k", "7168"]


def test_the_figures_of_one_input_scale(sextant):
    done = sextant("explain", *Q_A)
    assert done.returncode == 0 and done.stderr == ""
    verdict = done.stdout.splitlines()[2]
    for figure in ["healthy ModelOpt multiplier", "amax 0.67579 ", "0.67578125 = 173/256", "G = 3977.6", "23.31", "not NaN"]:
        assert figure in verdict
    for figure in ["of q_a_proj, K = 7168", "0.0002514067", "by chance 0.7 %", "69.9", "373", "0.69993", "1.0357", ">= 1.26e5",
                   ">= 0.008", "rejected", "activations become exactly zero", "unused", "tools/golden/nvfp4_snr.py"]:
        assert figure in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["1", "1.35", "18.82", "19.16", "19.59", "13.32", "17.88", "2.15", "0"] in rows
    assert ["-12", "0.000165", "20.38", "20.62", "20.50", "16.45", "20.87", "0", "49.2"] in rows


def test_json(sextant):
    document = sextant.json("explain", *Q_A)
    assert document["accepted"] == "multiplier" and document["fault"] is None and document["check"] is None
    assert document["question"] == {"name": "input_scale", "kind": "input", "typed": "0.00025141", "value": 0.00025141,
                                    "layer": "q_a_proj", "k": 7168, "norm_max": None}
    multiplier, divisor = document["readings"]
    assert multiplier["amax"] == pytest.approx(0.67579, abs=1e-6) and not multiplier["rejected"]
    assert multiplier["bf16"]["nearest"] == 173 / 256 and multiplier["bf16"]["passed"]
    assert multiplier["bf16"]["chance"] == pytest.approx(0.00688, abs=1e-5)
    assert multiplier["limits"]["nan_above"] == pytest.approx(0.69993, abs=5e-6)
    assert divisor["rejected"] and divisor["needs_norm_max"] == pytest.approx(1.26e5, rel=5e-3)
    assert divisor["limits"]["zero_up_to"] == pytest.approx(23.31, abs=5e-3)
    rows = document["snr"]["rows"]
    assert len(rows) == 23 and rows[-1]["down_to"] == "-inf" and rows[5]["gauss"] == 9.57
    assert "3977.6" in document["verdict"] and document["engines"]


@pytest.mark.parametrize("norm_max, rejected", [("0.5", False), ("0.0079", False), ("0.0078", True)])
def test_norm_bound(sextant, norm_max, rejected):
    # sqrt(7168) = 84.664; with 2 % of slack 0.0079 allows 0.6822, 0.0078 allows 0.6736; amax is 0.67579.
    document = sextant.json("explain", *Q_A, "--norm-max", norm_max)
    assert document["readings"][0]["rejected"] is rejected and document["readings"][1]["rejected"]
    assert document["norm_bound"] == pytest.approx(84.664 * float(norm_max), rel=1e-4)
    assert document["accepted"] == (None if rejected else "multiplier")


@pytest.mark.parametrize("scale, accepted, against_name", [
    ("0.00025141", "multiplier", False), ("3977.6", "divisor", False), ("input_global_scale=3977.6", "divisor", False),
    ("input_scale=3977.6", "divisor", True), ("input_global_scale=2.5141e-4", "multiplier", True),
    ("weight_scale_2=4.65e-5", "multiplier", False), ("weight_global_scale=21505", "divisor", False),
    ("weight_scale_2=0.5", "multiplier", False), ("0.7", None, False), ("1e-12", None, False), ("k_scale=0.01", None, False),
    ("model.layers.0.self_attn.q_a_proj.input_scale=+0.00025141", "multiplier", False),
])
def test_conventions(sextant, scale, accepted, against_name):
    document = sextant.json("explain", scale)
    assert document["accepted"] == accepted and document["against_name"] is against_name
    if "." in scale.split("=")[0] and "=" in scale:
        assert document["question"]["layer"] == "model.layers.0.self_attn.q_a_proj"


def test_cache_scales(sextant):
    text = sextant("explain", "v_scale=1").stdout
    for figure in ["KV cache's values", "2688", "448", "0.0938", "0.005859", "missing"]:
        assert figure in text


@pytest.mark.parametrize("scale, fault, effects", [
    ("input_scale=0", "zero", ["G = inf", "G = 0", "NaN in every output", "all zero"]),
    ("input_global_scale=-0.0", "zero", ["G = inf", "G = 0"]),
    ("input_scale=1e-40", "denormal", ["G = inf", "G = 0"]),
    ("input_scale=1e-400", "zero", ["G = 0"]),
    ("input_scale=1e400", "infinite", ["G = 0"]),
    ("input_scale=inf", "infinite", ["G = 0"]),
    ("input_scale=nan", "nan", ["0x7F"]),
    ("input_scale=1e999", "infinite", ["G = 0"]),
    ("input_scale=-1e999", "negative", ["0xB8"]),
    ("input_scale=-nan", "nan", ["0x7F"]),
    ("input_scale=-0x1p3", "negative", ["0xB8"]),
    ("input_scale=-1", "negative", ["0xB8"]),
    ("NaN", "nan", ["0x7F"]),
    ("-1", "negative", ["0xB8"]),
    ("weight_scale_2=0", "zero", ["silently dead layer", "NaN where the sum is 0"]),
    ("k_scale=0", "zero", ["0 / 0"]),
])
def test_what_is_no_scale_is_explained(sextant, scale, fault, effects):
    document = sextant.json("explain", scale)
    assert document["fault"] == fault and document["readings"] == [] and document["accepted"] is None
    assert document["check"] == {"id": "C3", "slug": "bad-scalar-scale", "severity": "error"}
    done = sextant("explain", scale)
    assert done.returncode == 0 and "C3" in done.stdout
    for effect in effects:
        assert effect in done.stdout


@pytest.mark.parametrize("typed, value, amax", [
    ("0x1p3", 8.0, 2688 * 8), ("0X1.8P-1", 0.75, 2016), ("+0x1p-12", 2.0 ** -12, 0.65625), ("0x10", 16.0, 2688 * 16)])
def test_hexadecimal_floats_are_read_and_have_every_bit(sextant, typed, value, amax):
    document = sextant.json("explain", "input_scale=" + typed)
    assert document["question"]["value"] == value and document["readings"][0]["amax"] == amax
    assert document["readings"][0]["bf16"]["few_digits"] is False


@pytest.mark.parametrize("args, text", [
    (["input_scale=abc"], 'expected a number after "input_scale="'),
    (["input_scale="], "expected a number"), (["input_scale=0,1"], "expected a number"),
    (["input_scale=1x"], "expected a number"), (["input_scale=5 "], 'found "5 "'), (["input_scale= 5"], "expected a number"),
    (["input_scale=0x"], "expected a number"), (["input_scale=0xnan"], "expected a number"), (["input_scale=0x-1"], "expected a number"),
    (["input_scale=1_000"], "expected a number"), (["input_scale=\u0663"], "expected a number"), (["input_scale=1=2"], 'found "1=2"'),
    (["input_scale"], "found the name alone"), (["model.layers.0.q_proj.k_scale"], "found the name alone"),
    (["5 "], 'found "5 "'), ([""], "expected a value"), (["-inf"], "there is no option -inf"), (["1", "2"], "2"),
    (["input_scale=1", "--k"], "--k"), (["input_scale=1", "--k", ""], "--k"), (["input_scale=1", "--k", "5 "], 'found 5'),
    (["input_scale=1", "--k", "16", "--norm-max", "nan"], "above 0"), (["input_scale=1", "--k", "1e999"], "whole number"),
    (["input_scale=1", "--key", "3"], "--key"), (["input_scale=--1"], "expected a number"),
    (["input_scales=1"], "there are input_scale, "),
    (["=1"], "expected the name of a global scale"),
    (["input_scale=1", "--norm-max", "1"], "needs --k"),
    (["input_scale=1", "--k", "16", "--norm-max", "0"], "above 0"),
    (["input_scale=1", "--k", "0"], "--k"),
    (["weight_scale_2=1", "--k", "16"], "leave them away"),
    ([], "QUESTION"),
])
def test_wrong_usage(sextant, args, text):
    assert text in sextant.fails(64, "explain", *args)
    assert sextant.json("explain", *args, status=64)["error"]["code"] == "usage"
