"""A checkpoint's files taken apart, so that one thing at a time can be changed: shards, headers, tensors, scales."""
import copy
import json
import math
import struct

import numpy as np

from . import arithmetic, fixture

SCALARS = ("weight_scale_2", "weight_global_scale", "input_scale", "input_global_scale")


class Shard:
    """One safetensors file, its header to be changed freely."""

    def __init__(self, data):
        n = struct.unpack("<Q", data[:8])[0]
        self.header, self.body = json.loads(data[8:8 + n]), bytearray(data[8 + n:])

    def tensors(self):
        return [name for name in self.header if name != "__metadata__"]

    def place(self, name):
        return self.header[name]["data_offsets"]

    def bytes(self):
        return fixture.with_header(self.header, bytes(self.body))

    def without(self, name):
        """The same file without one tensor, laid out anew."""
        tensors = {}
        for other in self.tensors():
            begin, end = self.place(other)
            if other != name:
                tensors[other] = (self.header[other]["dtype"], self.header[other]["shape"], bytes(self.body[begin:end]))
        return fixture.safetensors(tensors, {"format": "pt"})


class Base:
    """A healthy checkpoint and where its tensors are."""

    def __init__(self, name, files):
        self.name = name
        self.files = {file: content if isinstance(content, bytes) else content.encode() for file, content in files.items()}
        self.shards = {file: Shard(data) for file, data in self.files.items() if file.endswith(".safetensors")}
        self.where = {tensor: file for file, shard in self.shards.items() for tensor in shard.tensors()}

    def entry(self, tensor):
        return self.shards[self.where[tensor]].header[tensor]

    def data(self, tensor):
        shard = self.shards[self.where[tensor]]
        begin, end = shard.place(tensor)
        return bytes(shard.body[begin:end])

    def of(self, *suffixes, dtypes=()):
        return [t for t in self.where if t.rsplit(".", 1)[-1] in suffixes and (not dtypes or self.entry(t)["dtype"] in dtypes)]

    def changed(self, tensor, change):
        """The files after change(shard) of the shard that has the tensor."""
        file = self.where[tensor]
        shard = copy.deepcopy(self.shards[file])
        change(shard)
        return {**self.files, file: shard.bytes()}

    def patched(self, tensor, at, raw):
        def change(shard):
            begin = shard.place(tensor)[0] + at
            shard.body[begin:begin + len(raw)] = raw
        return self.changed(tensor, change)

    def f32(self, tensor, i=0):
        return struct.unpack_from("<f", self.data(tensor), 4 * i)[0]

    def block_scales(self):
        return self.of("weight_scale", dtypes=("F8_E4M3", "U8", "F8_E8M0"))

    def scalars(self):
        """F32 scales: one a tensor, a row or a block."""
        return self.of(*SCALARS, "weight_scale", "weight_scale_inv", dtypes=("F32",))

    def rms(self, tensor, value):
        """The rms of the weights that this value of a global scale gives."""
        module, part = tensor.rsplit(".", 1)
        codes = next(self.data(f"{module}.{name}") for name in ("weight_packed", "weight") if f"{module}.{name}" in self.where)
        n = self.entry(f"{module}.weight_scale")["shape"][0]
        q = arithmetic.e2m1_decode(arithmetic.unpack(np.frombuffer(codes, np.uint8).reshape(n, -1)))
        scales = arithmetic.e4m3_decode(np.frombuffer(self.data(f"{module}.weight_scale"), np.uint8).reshape(n, -1))
        rms = math.sqrt(np.mean((q * arithmetic.spread(scales, 16)) ** 2))
        return rms / value if part == "weight_global_scale" else rms * value
