"""Faults planted into healthy checkpoints: one corrupted byte, scale, name, shape, entry or field each.

A plant changes the files of a checkpoint (name -> bytes). It says beforehand whether it is plausible: the changed file is a checkpoint
that its producer could have written, so that nothing but the original can tell (docs/nvfp4.md 3.2 has no check for it).
"""
import copy
import json
import math
import struct
from dataclasses import dataclass

import numpy as np

from . import models
from .opened import SCALARS, Base

INDEX, CONFIG, SIDECAR = "model.safetensors.index.json", "config.json", "hf_quant_config.json"
OF_INPUTS = ("input_scale", "input_global_scale")


@dataclass
class Plant:
    kind: str
    text: str  # what was done, in a line
    files: dict
    plausible: bool = False
    benign: bool = False  # must not be noticed at all


def pick(rng, things):
    return things[int(rng.integers(len(things)))] if len(things) else None


# ------------------------------------------------------------------ scales

def scale_byte(rng, base, special):
    tensor = pick(rng, base.block_scales())
    if tensor is None:
        return None
    data, is_e4m3 = base.data(tensor), base.entry(tensor)["dtype"] == "F8_E4M3"
    at = int(rng.integers(len(data)))
    byte = int(pick(rng, [0x7F, 0xFF, 0x00, data[at] | 0x80] if is_e4m3 else [0xFF]) if special else rng.integers(256))
    if byte == data[at]:
        return None
    ordinary = 0 < byte < 0x7F if is_e4m3 else byte != 0xFF
    kind = "scale byte, plausible" if ordinary else "scale byte, NaN, sign, 0"
    return Plant(kind, f"{tensor}[{at}] 0x{data[at]:02X} -> 0x{byte:02X}", base.patched(tensor, at, bytes([byte])), ordinary)


def scale_byte_any(rng, base):
    return scale_byte(rng, base, False)


def scale_byte_special(rng, base):
    return scale_byte(rng, base, True)


def scalar_plant(base, tensor, i, value, kind):
    """A scalar set to a value. Plausible: a number that scales can be, with weights of a plausible size (3.1: rms within 1e-5 to 1)."""
    old, part = base.f32(tensor, i), tensor.rsplit(".", 1)[-1]
    raw = struct.pack("<f", value)
    value = struct.unpack("<f", raw)[0]
    sound = math.isfinite(value) and value >= 2.0 ** -126 and 1 / value >= 2.0 ** -126
    if sound and part in ("weight_scale_2", "weight_global_scale"):
        sound = 1e-5 <= base.rms(tensor, value) <= 1
    where = "input scale" if part in OF_INPUTS else "weight scale"
    return Plant(f"{where}, {kind}", f"{tensor}[{i}] {old:g} -> {value:g}", base.patched(tensor, 4 * i, raw), sound)


def scalar(rng, base):
    tensor = pick(rng, base.scalars())
    return (None, 0) if tensor is None else (tensor, int(rng.integers(len(base.data(tensor)) // 4)))


def scalar_bad(rng, base):
    tensor, i = scalar(rng, base)
    if tensor is None:
        return None
    return scalar_plant(base, tensor, i, pick(rng, [0.0, -0.0, math.nan, math.inf, -math.inf, -base.f32(tensor, i), 1e-40]), "no number")


def scalar_byte(rng, base):
    tensor, i = scalar(rng, base)
    if tensor is None:
        return None
    raw, at = bytearray(struct.pack("<f", base.f32(tensor, i))), int(rng.integers(4))
    raw[at] ^= int(rng.integers(1, 256))
    return scalar_plant(base, tensor, i, struct.unpack("<f", raw)[0], "a byte")


def scalar_factor(rng, base):
    tensor, i = scalar(rng, base)
    if tensor is None:
        return None
    return scalar_plant(base, tensor, i, base.f32(tensor, i) * pick(rng, [2, 0.5, 1.25, 0.8, 6, 1 / 448]), "a factor")


def scalar_reciprocal(rng, base):
    """The other convention's number."""
    tensor = pick(rng, base.of(*SCALARS))
    return None if tensor is None else scalar_plant(base, tensor, 0, 1 / base.f32(tensor), "the reciprocal")


def weight_not_finite(rng, base):
    """A NaN or an infinity among weights, norms and biases."""
    not_finite = {"BF16": [b"\xc0\x7f", b"\x80\x7f", b"\x80\xff"], "F16": [b"\x00\x7e", b"\x00\x7c"],
                  "F32": [b"\0\0\xc0\x7f", b"\0\0\x80\x7f"], "F8_E4M3": [b"\x7f", b"\xff"]}
    scales = {*base.block_scales(), *base.scalars()}
    tensor = pick(rng, [t for t in base.where if base.entry(t)["dtype"] in not_finite and t not in scales])
    dtype, data = base.entry(tensor)["dtype"], base.data(tensor)
    raw = pick(rng, not_finite[dtype])
    at = int(rng.integers(len(data) // len(raw))) * len(raw)
    return Plant("weight, NaN or infinity", f"{tensor} byte {at} {dtype}", base.patched(tensor, at, raw))


# ------------------------------------------------------------------ names, shapes, dtypes, offsets

def renamed(name, rng):
    at = int(rng.integers(len(name)))
    return name[:at] + pick(rng, [c for c in "abcxyz_.019" if c != name[at]]) + name[at + 1:]


def tensor_name(rng, base):
    """One character of a tensor's name, in the header, and in every second case in the index too."""
    tensor = pick(rng, list(base.where))
    name = renamed(tensor, rng)
    if name in base.where:
        return None
    def change(shard):
        shard.header = {name if other == tensor else other: entry for other, entry in shard.header.items()}
    files = base.changed(tensor, change)
    if INDEX in files and rng.random() < 0.5:
        files[INDEX] = files[INDEX].replace(f'"{tensor}"'.encode(), f'"{name}"'.encode())
    return Plant("name", f"{tensor} -> {name}", files)


def tensor_lost(rng, base):
    tensor = pick(rng, list(base.where))
    file = base.where[tensor]
    return Plant("tensor lost", tensor, {**base.files, file: base.shards[file].without(tensor)})


def tensor_twice(rng, base):
    """The same tensor in two shards, with different bytes."""
    if len(base.shards) < 2:
        return None
    tensor = pick(rng, list(base.where))
    other = pick(rng, [file for file in base.shards if file != base.where[tensor]])
    shard = copy.deepcopy(base.shards[other])
    data = bytes(byte ^ 1 for byte in base.data(tensor))
    shard.header[tensor] = {**base.entry(tensor), "data_offsets": [len(shard.body), len(shard.body) + len(data)]}
    shard.body += data
    return Plant("tensor twice", f"{tensor} in {other} too", {**base.files, other: shard.bytes()})


def shape(rng, base):
    tensor = pick(rng, list(base.where))
    old = base.entry(tensor)["shape"]
    options = [old[::-1], [math.prod(old)], old + [1], [1] + old, [2 * n for n in old], [n + 1 for n in old]]
    if old and old[0] % 2 == 0:
        options.append([old[0] // 2, *old[1:-1], 2 * old[-1]] if len(old) > 1 else [old[0] // 2, 2])
    new = pick(rng, [option for option in options if option != old])
    if new is None:
        return None
    return Plant("shape", f"{tensor} {old} -> {new}", base.changed(tensor, lambda shard: shard.header[tensor].update(shape=new)))


SAME_WIDTH = [("BF16", "F16"), ("F32", "I32"), ("U8", "I8", "F8_E4M3", "F8_E8M0", "F8_E5M2")]


def dtype(rng, base):
    tensor = pick(rng, list(base.where))
    old = base.entry(tensor)["dtype"]
    new = pick(rng, [d for group in SAME_WIDTH if old in group for d in group if d != old])
    files = base.changed(tensor, lambda shard: shard.header[tensor].update(dtype=new))
    return Plant("dtype", f"{tensor} {old} -> {new}", files, {old, new} == {"BF16", "F16"})


def swapped(rng, base):
    """Two tensors of one kind under each other's names."""
    tensor = pick(rng, list(base.where))
    def same(other):
        a, b = base.entry(tensor), base.entry(other)
        return base.where[other] == base.where[tensor] and other != tensor and (a["dtype"], a["shape"]) == (b["dtype"], b["shape"])
    other = pick(rng, [t for t in base.where if same(t)])
    if other is None or base.data(tensor) == base.data(other):
        return None
    def change(shard):
        a, b = shard.header[tensor], shard.header[other]
        a["data_offsets"], b["data_offsets"] = b["data_offsets"], a["data_offsets"]
    return Plant("two tensors swapped", f"{tensor} and {other}", base.changed(tensor, change), True)


def header_byte(rng, base):
    """Any byte of the JSON header replaced by a printable one."""
    file = pick(rng, list(base.shards))
    data = bytearray(base.files[file])
    at = int(rng.integers(8, 8 + struct.unpack("<Q", data[:8])[0]))
    old, data[at] = data[at], int(rng.integers(32, 127))
    if old == data[at]:
        return None
    return Plant("header byte", f"{file}[{at}] {chr(old)!r} -> {chr(data[at])!r}", {**base.files, file: bytes(data)})


def file_length(rng, base):
    file = pick(rng, list(base.shards))
    data = base.files[file]
    new = pick(rng, [data[:-1], data[:len(data) // 2], b"", data + b"\0", data + b"\0" * 512, data[:8]])
    return Plant("file length", f"{file} {len(data)} -> {len(new)}", {**base.files, file: new})


def length_byte(rng, base):
    file = pick(rng, list(base.shards))
    data = bytearray(base.files[file])
    data[int(rng.integers(8))] ^= int(rng.integers(1, 256))
    return Plant("header length", file, {**base.files, file: bytes(data)})


# ------------------------------------------------------------------ JSON files

def file_byte(rng, base, file, kind):
    data = bytearray(base.files[file])
    at = int(rng.integers(len(data)))
    old, data[at] = data[at], int(rng.integers(32, 127))
    if old == data[at]:
        return None
    files = {**base.files, file: bytes(data)}
    return Plant(kind, f"{file}[{at}] {chr(old)!r} -> {chr(data[at])!r}", files, plausible_json(base.files[file], bytes(data)))


# Fields of config.json whose value nothing in the checkpoint repeats: any number in them is one that a model could have.
FREE_FIELDS = {"rope_theta", "rms_norm_eps", "rope_parameters", "rope_scaling", "max_position_embeddings", "sliding_window",
               "use_sliding_window", "max_window_layers", "eos_token_id", "bos_token_id"}


def plausible_json(before, after):
    try:
        a, b = json.loads(before), json.loads(after)
    except ValueError:
        return False
    if not isinstance(b, dict):
        return False
    changed = {key for key in a.keys() | b.keys() if a.get(key, ...) != b.get(key, ...)}
    return bool(changed & FREE_FIELDS) and len(changed - FREE_FIELDS) <= 1  # a key that changed its name counts twice


def index_byte(rng, base):
    return file_byte(rng, base, INDEX, "index byte") if INDEX in base.files else None


def config_byte(rng, base):
    return file_byte(rng, base, CONFIG, "config byte")


def sidecar_byte(rng, base):
    return file_byte(rng, base, SIDECAR, "sidecar byte") if SIDECAR in base.files else None


def index_entry(rng, base):
    """An entry lost, led to the other shard, or invented; a wrong total."""
    if INDEX not in base.files:
        return None
    index = json.loads(base.files[INDEX])
    tensor, what = pick(rng, list(index["weight_map"])), int(rng.integers(4))
    if what == 0:
        del index["weight_map"][tensor]
    elif what == 1:
        index["weight_map"][tensor] = pick(rng, [file for file in base.shards if file != base.where[tensor]])
    elif what == 2:
        index["weight_map"][tensor + "_2"] = base.where[tensor]
    else:
        index["metadata"]["total_size"] += int(pick(rng, [-1, 1, 4096]))
    text = f"{['lost', 'led elsewhere', 'invented', 'total'][what]} {tensor}"
    return Plant("index entry", text, {**base.files, INDEX: json.dumps(index).encode()})


STRUCTURE = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
             "vocab_size"]


def config_number(rng, base):
    """A size that the tensors contradict."""
    config = json.loads(base.files[CONFIG])
    field = pick(rng, [f for f in STRUCTURE if f in config])
    old = config[field]
    config[field] = int(pick(rng, [n for n in (old + 1, old - 1, 2 * old, old // 2, 0, -old) if n != old]))
    return Plant("config number", f"{field} {old} -> {config[field]}", {**base.files, CONFIG: json.dumps(config).encode()})


def benign(rng, base):
    """What changes nothing: spaces, the order of keys and tensors, metadata, files beside the model, another name of the same bytes."""
    what = int(rng.integers(6))
    files = dict(base.files)
    if what == 0:
        files[CONFIG] = json.dumps(dict(reversed(json.loads(files[CONFIG]).items())), indent=4).encode()
    elif what == 1:
        file = pick(rng, list(base.shards))
        shard = copy.deepcopy(base.shards[file])
        shard.header["__metadata__"] = {"format": "pt", "note": "x" * 100}
        files[file] = shard.bytes()
    elif what == 2:
        files |= {"README.md": b"# A model\n", "LICENSE": b"none", "generation_config.json": b'{"eos_token_id": 2, "temperature": 0.7}'}
    elif what == 3:
        file = pick(rng, list(base.shards))
        shard = copy.deepcopy(base.shards[file])
        shard.header = dict(reversed(shard.header.items()))
        files[file] = shard.bytes()
    elif what == 4:
        if INDEX not in files:
            return None
        index = json.loads(files[INDEX])
        index["weight_map"] = dict(reversed(index["weight_map"].items()))
        files[INDEX] = json.dumps(index, indent=2).encode() + b"\n"
    else:
        file = pick(rng, list(base.shards))
        data = base.files[file]
        n = struct.unpack("<Q", data[:8])[0]
        files[file] = struct.pack("<Q", n + 64) + data[8:8 + n] + b" " * 64 + data[8 + n:]
    return Plant("benign", str(what), files, benign=True)


PLANTERS = [scale_byte_any, scale_byte_special, scalar_bad, scalar_byte, scale_byte_any, scalar_factor, scalar_reciprocal,
            weight_not_finite, tensor_name, tensor_lost, tensor_twice, shape, dtype, scale_byte_any, swapped, header_byte, file_length,
            length_byte, index_byte, config_byte, sidecar_byte, index_entry, config_number, benign]

# dialect, seed, shards: each kind of scale, one file and several.
BASES = {name: (dialect, seed, n_shards) for name, dialect, seed, n_shards in [
    ("modelopt", "modelopt", 4, 2), ("compressed-tensors", "compressed-tensors", 3, 1), ("nvfp4a16", "nvfp4a16", 5, 3),
    ("fp8-tensor", "fp8-tensor", 6, 1), ("fp8-block", "fp8-block", 2, 2), ("mxfp4", "mxfp4", 4, 2)]}


def base_of(name):
    dialect, seed, n_shards = BASES[name]
    return Base(name, models.healthy_files(dialect, [models.DIALECTS.index(dialect), seed], n_shards=n_shards))


def plants_of(base, numbers):
    """The plants of these numbers; planters take turns, and one that has nothing to plant leaves its turn to the next."""
    for number in numbers:
        rng = np.random.default_rng([list(BASES).index(base.name), number])
        for turn in range(len(PLANTERS)):
            plant = PLANTERS[(number + turn) % len(PLANTERS)](rng, base)
            if plant is not None:
                yield plant
                break


def tally(original, draws, columns):
    """Plants once for every generator of random numbers in draws and asks what becomes of it: ({kind: a count for each column}, sentences
    about what was missed)."""
    kinds, wrong = {}, []
    for draw in draws:
        kind, tensor, offset, directory, text = original.planted(draw)
        column = original.becomes(tensor, offset, directory)
        row = kinds.setdefault(kind, [0] * len(columns))
        row[0] += 1
        row[columns.index(column.split(":")[0])] += 1
        if column.startswith("missed"):
            wrong.append(f"{kind}: {text}: {column}")
    return kinds, wrong
