"""Experts of a layer in one tensor [E, ...], in every layout of docs/nvfp4.md section 2.3: healthy ones give no warning, count as linears
and have the values of their arithmetic; what is planted in one expert is found with layer, expert and byte."""
import numpy as np
import pytest

from . import arithmetic, fixture
from .fixture import array, f32, fill, patched, write
from .report import error, note, warning

N_EXPERTS, HIDDEN, INNER = 3, 512, 256  # 131,072 weights and more an expert's projection: enough for statistics
EXPERTS = "model.layers.5.mlp.experts."
SHAPES = {"gate_up_proj": (2 * INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}
CONFIG = {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_experts": N_EXPERTS}


def stack(parts):
    return np.stack(parts)


def turned(parts):
    """Each expert's matrix of bytes or numbers with its columns first."""
    return np.stack([part.T for part in parts])


def weights(rng, projection):
    return [rng.normal(scale=0.02, size=SHAPES[projection]).astype(np.float32) for _ in range(N_EXPERTS)]


def gpt_oss(rng):
    tensors, values = {}, {}
    for projection, (n, k) in SHAPES.items():
        made = [arithmetic.mxfp4(w) for w in weights(rng, projection)]
        name = EXPERTS + projection
        tensors[name + "_blocks"] = array(stack([codes for codes, _ in made]).reshape(N_EXPERTS, n, k // 32, 16), "U8")
        tensors[name + "_scales"] = array(stack([scales for _, scales in made]), "U8")
        tensors[name + "_bias"] = array(np.zeros((N_EXPERTS, n)), "BF16")
        values[projection] = [arithmetic.e2m1_decode(arithmetic.unpack(c)) * arithmetic.spread(2.0 ** (s.astype(float) - 127), 32)
                              for c, s in made]
    return tensors, values, {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}


def modelopt(rng, place, separator="_"):
    tensors, values = {}, {}
    for projection in SHAPES:
        made = [arithmetic.nvfp4_d(w) for w in weights(rng, projection)]
        name = EXPERTS + projection
        codes = array(place([codes for codes, _, _ in made]), "U8")
        tensors[name + (".weight" if separator == "." else "")] = codes
        tensors[f"{name}{separator}weight_scale"] = array(place([scales for _, scales, _ in made]), "F8_E4M3")
        tensors[f"{name}{separator}weight_scale_2"] = f32([float(g) for _, _, g in made], [N_EXPERTS])
        tensors[f"{name}{separator}input_scale"] = f32([2.0 ** -9] * N_EXPERTS, [N_EXPERTS])
        values[projection] = [arithmetic.nvfp4_values(*part) for part in made]
    return tensors, values, fixture.modelopt()


def compressed_tensors(rng):
    tensors, values = {}, {}
    for projection in SHAPES:
        made = [arithmetic.nvfp4_c(w) for w in weights(rng, projection)]
        name = EXPERTS + projection
        tensors[name + "_weight_packed"] = array(stack([codes for codes, _, _ in made]), "U8")
        tensors[name + "_weight_scale"] = array(stack([scales for _, scales, _ in made]), "F8_E4M3")
        tensors[name + "_weight_global_scale"] = f32([float(G) for _, _, G in made], [N_EXPERTS, 1])
        tensors[name + "_input_global_scale"] = f32([2.0 ** 9] * N_EXPERTS, [N_EXPERTS, 1])
        values[projection] = [arithmetic.nvfp4_values_ct(*part) for part in made]
    return tensors, values, fixture.compressed_tensors()


def plain(rng, place):
    tensors, values = {}, {}
    for projection in SHAPES:
        made = [np.round(w * 1024) / 1024 for w in weights(rng, projection)]  # exact in BF16
        tensors[EXPERTS + projection] = array(place(made), "BF16")
        values[projection] = made
    return tensors, values, {}


LAYOUTS = {
    "gpt-oss": (gpt_oss, "mxfp4"),
    "modelopt rows": (lambda rng: modelopt(rng, stack), "nvfp4"),
    "modelopt rows, dots": (lambda rng: modelopt(rng, stack, "."), "nvfp4"),
    "modelopt columns": (lambda rng: modelopt(rng, turned), "nvfp4"),
    "compressed-tensors": (compressed_tensors, "nvfp4"),
    "plain rows": (lambda rng: plain(rng, stack), "bf16"),
    "plain columns": (lambda rng: plain(rng, turned), "bf16"),
}


def made(layout):
    tensors, values, config = LAYOUTS[layout][0](np.random.default_rng(3))
    return tensors, values, {**CONFIG, **config}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_healthy_stacks(sextant, tmp_path, layout):
    tensors, values, config = made(layout)
    path = write(tmp_path / "m", tensors, config)
    report = sextant.doctor(path, "--strict").holds()
    scheme = LAYOUTS[layout][1]
    summary = report.document["summary"]
    assert summary["linears"] == {scheme: 2 * N_EXPERTS}
    assert summary["bits_per_weight"] == pytest.approx({"mxfp4": 4.25, "nvfp4": 4.5, "bf16": 16}[scheme], rel=1e-3)
    assert not [line for line in sextant("doctor", path, "-v").stdout.splitlines() if "no linear" in line]
    linears = sextant.linears(path)
    assert {name: (linear["rows"], linear["columns"]) for name, linear in linears.items()} == {
        f"{EXPERTS}{e}.{projection}": shape for projection, shape in SHAPES.items() for e in range(N_EXPERTS)}
    for projection, experts in values.items():
        for e, expert in enumerate(experts):
            first = sextant.first(path, f"{EXPERTS}{e}.{projection}", 4 * expert.shape[1])
            assert first == [float(x) for x in expert[:4].astype(np.float32).reshape(-1)], (projection, e)


def test_the_same_weights_in_rows_and_columns_do_not_differ(sextant, tmp_path):
    paths = {}
    for layout in ("modelopt rows", "modelopt columns"):
        tensors, _, config = made(layout)
        paths[layout] = write(tmp_path / layout[-4:], tensors, config)
    sextant.doctor(paths["modelopt columns"], "--against", paths["modelopt rows"], "--strict").holds()


# Where a scale byte of expert 2 lies: row 7, group 5.
def scale_at(layout, scales):
    e, a, b = scales[1]
    return 2 * a * b + (5 * b + 7 if layout == "modelopt columns" else 7 * b + 5)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not name.startswith("plain")])
def test_nan_scale_byte_of_one_expert(sextant, tmp_path, layout):
    tensors, _, config = made(layout)
    name = next(t for t in tensors if t.endswith(("down_proj_scales", "down_proj_weight_scale", "down_proj.weight_scale")))
    at = scale_at(layout, tensors[name])
    tensors[name] = patched(tensors[name], at, 0xFF)
    path = write(tmp_path / "m", tensors, config)
    offset = fixture.data_offset(path / "model.safetensors", name) + at
    sextant.doctor(path).holds(
        error("C1", "nan-block-scale", tensor=name, layer=5, expert=2, index=[7, 5], offset=offset, count=1, says="expert 2"))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name.startswith("plain")])
def test_nan_weight_of_one_expert(sextant, tmp_path, layout):
    tensors, _, config = made(layout)
    name = EXPERTS + "down_proj"
    dtype, shape, raw = tensors[name]
    at = 2 * (HIDDEN * INNER + 11)
    tensors[name] = dtype, shape, raw[:at] + b"\xc0\x7f" + raw[at + 2:]
    path = write(tmp_path / "m", tensors, config)
    sextant.doctor(path).holds(error("F4", "non-finite-weight", tensor=name, layer=5, expert=1, count=1, says="expert 1",
                                     offset=fixture.data_offset(path / "model.safetensors", name) + at))


@pytest.mark.parametrize("layout", ["modelopt rows", "modelopt rows, dots", "modelopt columns", "compressed-tensors"])
@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_bad_global_scale_of_one_expert(sextant, tmp_path, layout, value):
    tensors, _, config = made(layout)
    name = next(t for t in tensors if t.endswith(("gate_up_proj_weight_scale_2", "gate_up_proj.weight_scale_2",
                                                  "gate_up_proj_weight_global_scale")))
    dtype, shape, raw = tensors[name]
    tensors[name] = dtype, shape, raw[:4] + np.float32(value).tobytes() + raw[8:]
    path = write(tmp_path / "m", tensors, config)
    sextant.doctor(path).holds(error("C3", "bad-scalar-scale", tensor=name, layer=5, expert=1, count=1, value=value, says="expert 1",
                                     offset=fixture.data_offset(path / "model.safetensors", name) + 4))


@pytest.mark.parametrize("layout", ["modelopt rows", "modelopt columns"])
def test_gate_and_up_of_one_expert_with_scales_of_their_own(sextant, tmp_path, layout):
    """C14 as for parts stored one by one: [E, 2] global scales, of which expert 1 has two that differ by 1.5, the others none."""
    tensors, _, config = made(layout)
    name = EXPERTS + "gate_up_proj"
    scales = np.frombuffer(tensors[name + "_weight_scale_2"][2], np.float32)
    both = np.stack([scales, scales], axis=1)
    tensors[name + "_weight_scale_2"] = array(both, "F32")
    sextant.doctor(write(tmp_path / "same", tensors, config)).holds()
    assert not [f for f in sextant.doctor(tmp_path / "same").document["findings"] if f["id"] == "C14"]
    both[1, 1] *= 1.5
    tensors[name + "_weight_scale_2"] = array(both, "F32")
    sextant.doctor(write(tmp_path / "own", tensors, config)).holds(
        note("C14", "fused-scale-ratio", tensor=name, layer=5, expert=1, count=1, value=1.5, says="1.5000"))


@pytest.mark.parametrize("layout", ["gpt-oss", "modelopt rows", "modelopt columns"])
@pytest.mark.parametrize("cut, expert", [(0, 2), (1, 0), (2, 0)])
def test_truncated_scales(sextant, tmp_path, layout, cut, expert):
    """One expert fewer, one row (or group) fewer, one group (or row) fewer."""
    tensors, _, config = made(layout)
    name = next(t for t in tensors if t.endswith(("down_proj_scales", "down_proj_weight_scale")))
    dtype, shape, _ = tensors[name]
    shape[cut] -= 1
    tensors[name] = fill(dtype, shape, 0x38)
    path = write(tmp_path / "m", tensors, config)
    sextant.doctor(path).holds(
        error("C17", "group-size", tensor=name, layer=5, expert=expert, count=1,
              offset=fixture.data_offset(path / "model.safetensors", name)))


def test_uncalibrated_expert_is_named(sextant, tmp_path):
    tensors, _, config = made("modelopt rows")
    name = EXPERTS + "down_proj_input_scale"
    tensors[name] = f32([2.0 ** -9, 2.0 ** -9, 0.5 / 2688], [N_EXPERTS])
    path = write(tmp_path / "m", tensors, config)
    sextant.doctor(path).holds(warning("C12", "uncalibrated-expert", tensor=name, layer=5, expert=2,
                                       offset=fixture.data_offset(path / "model.safetensors", name) + 8))


def test_zero_rows_of_one_expert_are_counted(sextant, tmp_path):
    """C5 in columns: row 3 of expert 1 is one byte of each run of HIDDEN."""
    tensors, _, config = made("modelopt columns")
    name = EXPERTS + "down_proj"
    codes = np.frombuffer(tensors[name][2], np.uint8).reshape(tensors[name][1]).copy()
    codes[1, :, 3] = 0
    tensors[name] = array(codes, "U8")
    path = write(tmp_path / "m", tensors, config)
    sextant.doctor(path).holds(warning("C5", "zero-blocks", tensor=name, layer=5, expert=1, index=[3]))


def test_scale_zero_over_weights_has_its_place(sextant, tmp_path):
    """C4 in columns."""
    tensors, _, config = made("modelopt columns")
    name = EXPERTS + "down_proj_weight_scale"
    at = scale_at("modelopt columns", tensors[name])
    tensors[name] = patched(tensors[name], at, 0)
    path = write(tmp_path / "m", tensors, config)
    sextant.doctor(path).holds(warning("C4", "lost-block", tensor=name, layer=5, expert=2, index=[7, 5],
                                       offset=fixture.data_offset(path / "model.safetensors", name) + at))


def test_stack_with_fewer_experts_than_the_config_counts(sextant, tmp_path):
    tensors, _, config = made("gpt-oss")
    sextant.doctor(write(tmp_path / "m", tensors, {**config, "num_experts": 4})).holds(error("E2", "missing-expert", expert=3))


def test_order_that_nothing_tells(sextant, tmp_path):
    tensors = {EXPERTS + "up_proj": array(np.ones((2, 8, 8)), "BF16")}
    sextant.doctor(write(tmp_path / "m", tensors, {})).holds(warning("C15", "ambiguous-expert-order", layer=5, tensor=EXPERTS + "up_proj"))
