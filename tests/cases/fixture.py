"""Writing small checkpoints: tensors as (dtype, shape, bytes) in a dict, a safetensors file by the format's definition, and the shared
fixtures F-LIN, F-LIN-CT and F-MOE.

An element is code value x block scale x global scale. ModelOpt stores the global scales (weight_scale_2, input_scale),
compressed-tensors their reciprocals (weight_global_scale, input_global_scale). In a byte of codes the low nibble is the even element.
"""
import json
import math
import struct

import numpy as np

LIN = "model.layers.0.mlp.down_proj"
ITEM_BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "BF16": 16, "F16": 16, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
             "F4": 4}
# Fixtures are parts of models. The name of an architecture that nobody knows says so: what a whole model needs cannot be judged.
PART = {"architectures": ["PartForCausalLM"], "model_type": "part"}


# ------------------------------------------------------------------ tensors

def fill(dtype, shape, byte):
    return dtype, list(shape), bytes([byte]) * (math.prod(shape) * ITEM_BITS[dtype] // 8)


def f32(values, shape=()):
    values = [values] if np.isscalar(values) else list(values)
    return "F32", list(shape), struct.pack(f"<{len(values)}f", *values)


def f32_bits(bits, shape=()):
    return "F32", list(shape), struct.pack("<I", bits)


def array(values, dtype="F32"):
    """A numpy array as a tensor. U8, F8_E4M3 and the like take arrays of bytes; BF16 rounds to nearest, ties to even."""
    values = np.ascontiguousarray(values)
    if dtype == "BF16":
        bits = values.astype("<f4").view("<u4").astype(np.uint64)
        raw = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    elif dtype in ("F32", "F16"):
        raw = values.astype({"F32": "<f4", "F16": "<f2"}[dtype])
    else:
        assert values.dtype == np.uint8, dtype
        raw = values
    return dtype, list(values.shape), raw.tobytes()


def patched(tensor, at, byte):
    dtype, shape, raw = tensor
    return dtype, shape, raw[:at] + bytes([byte]) + raw[at + 1:]


# ------------------------------------------------------------------ files

def safetensors(tensors, metadata=None):
    """The bytes of a file."""
    header, offset = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (dtype, shape, raw) in tensors.items():
        assert len(raw) * 8 == math.prod(shape) * ITEM_BITS[dtype], (name, dtype, shape, len(raw))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
    return with_header(header, b"".join(raw for _, _, raw in tensors.values()))


def with_header(header, body=b""):
    """Any header, sound or not, padded with spaces as the format allows."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def as_text(content):
    return content if isinstance(content, (str, bytes)) else json.dumps(content)


def write_files(at, files):
    """files: name -> bytes, text or what JSON can hold."""
    at.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        content = as_text(content)
        (at / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return at


def sharded(tensors, n_shards):
    """Files of a checkpoint in so many shards with their index; one shard has none."""
    if n_shards == 1:
        return {"model.safetensors": safetensors(tensors, {"format": "pt"})}
    names, files, weight_map = list(tensors), {}, {}
    for i in range(n_shards):
        file = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::n_shards]}
        files[file] = safetensors(part, {"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(len(raw) for _, _, raw in tensors.values())
    files["model.safetensors.index.json"] = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return files


def write(at, tensors, config=None, sidecar=None, n_shards=1):
    """A checkpoint directory. config: fields of config.json beside those of PART (None: no config.json at all)."""
    files = sharded(tensors, n_shards)
    if config is not None:
        files["config.json"] = {**PART, **config}
    if sidecar is not None:
        files["hf_quant_config.json"] = sidecar
    return write_files(at, files)


# ------------------------------------------------------------------ quantization configs

ARGS = {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}


def modelopt(ignore=(), algorithm="NVFP4", **fields):
    """config.json's part. fields: further members of quantization_config."""
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": list(ignore), **fields}}


def modelopt_groups(input_activations):
    return {"config_groups": {"group_0": {"input_activations": input_activations, "weights": ARGS, "targets": ["Linear"]}}}


def modelopt_sidecar(exclude=(), algorithm="NVFP4", **fields):
    return {"producer": {"name": "modelopt", "version": "0.37.0"},
            "quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": list(exclude), **fields}}


def ct_group(strategy="tensor_group", bits=4, size=16, targets=("Linear",), activations=None, **weights):
    args = {"num_bits": bits, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": False, **weights}
    if size:
        args["group_size"] = size
    return {"targets": list(targets), "weights": args, "input_activations": activations, "output_activations": None}


CT_STATIC = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True, "dynamic": "local"}


def compressed_tensors(ignore=(), groups=None, format="nvfp4-pack-quantized"):
    groups = {"group_0": ct_group(activations=CT_STATIC)} if groups is None else groups
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": format, "config_groups": groups, "ignore": list(ignore),
                                    "kv_cache_scheme": None, "quantization_status": "compressed"}}


# ------------------------------------------------------------------ the shared fixtures

def linear(module, n, k, input_scale=True):
    """F-LIN's values at any size: every row dequantizes to 0.25, 0.5 repeating."""
    tensors = {module + ".weight": fill("U8", [n, k // 2], 0x21), module + ".weight_scale": fill("F8_E4M3", [n, -(-k // 16)], 0x38),
               module + ".weight_scale_2": f32(0.5)}
    if input_scale:
        tensors[module + ".input_scale"] = f32(0.25)
    return tensors


def linear_ct(module, n, k, divisor=2.0, input_divisor=4.0):
    tensors = {module + ".weight_packed": fill("U8", [n, k // 2], 0x21), module + ".weight_scale": fill("F8_E4M3", [n, k // 16], 0x38),
               module + ".weight_global_scale": f32(divisor, [1])}
    if input_divisor is not None:
        tensors[module + ".input_global_scale"] = f32(input_divisor, [1])
    return tensors


def plain(module, n, k, value=1.0):
    return {module + ".weight": array(np.full((n, k), value), "BF16")}


def fp8(module, n, k):
    return {module + ".weight": fill("F8_E4M3", [n, k], 0x38), module + ".weight_scale": f32(0.5, [1])}


def f_lin():
    return linear(LIN, 4, 32)


def f_lin_ct():
    return linear_ct(LIN, 4, 32)


def f_moe(input_scales=True, layer=0):
    """8 experts of 32 x 32, and a router with known rows."""
    tensors = {}
    for expert in range(8):
        for part in ("gate_proj", "up_proj", "down_proj"):
            tensors.update(linear(f"model.layers.{layer}.mlp.experts.{expert}.{part}", 32, 32, input_scales))
    rows = np.arange(8)[:, None] + np.arange(32)[None] / 64
    tensors[f"model.layers.{layer}.mlp.gate.weight"] = array(rows, "BF16")
    return tensors


def without(tensors, *names):
    missing = set(names) - set(tensors)
    assert not missing, missing
    return {name: tensor for name, tensor in tensors.items() if name not in names}


# ------------------------------------------------------------------ reading back what was written

def read(path):
    """name -> (dtype, shape, bytes) of a sound file."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    begin = 8 + n
    return {name: (e["dtype"], e["shape"], data[begin + e["data_offsets"][0]:begin + e["data_offsets"][1]]) for name, e in header.items()}


def data_offset(path, name):
    """Where a tensor's data begins in a sound file."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return 8 + n + json.loads(data[8:8 + n])[name]["data_offsets"][0]


def read_json(path):
    return json.loads(path.read_text())
