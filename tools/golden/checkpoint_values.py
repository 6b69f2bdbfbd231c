#!/usr/bin/env python3
"""What src/checkpoint reads in the dense golden directories, worked out with numpy alone.

    pip install numpy ml-dtypes
    tools/golden/checkpoint_values.py tests/golden > src/checkpoint/testing/golden_values.json

For every directory: the number of tensors, how many linears have which scheme, and for one linear of
each scheme and directory (more where there are several) some dequantized values as float32 bits,
in nvfp4.md 1.6's order of operations: d = f32(S * g), or f32(S / G) for divisors, then f32(q * d).
"""
import glob
import json
import os
import re
import struct
import sys

import ml_dtypes
import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
DTYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
          "U8": np.uint8, "F16": np.float16}


def read(directory):
    tensors = {}
    for path in sorted(glob.glob(os.path.join(directory, "model*.safetensors"))):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + n + begin:8 + n + end],
                                          DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def nvfp4(codes, scales, step):
    q = np.empty((codes.shape[0], codes.shape[1] * 2), np.float32)
    q[:, 0::2], q[:, 1::2] = E2M1[codes & 15], E2M1[codes >> 4]
    return q * np.repeat(step(scales.astype(np.float32)), 16, axis=1)


def linear(tensors, module):
    t = lambda part: tensors.get(f"{module}.{part}")
    weight = t("weight")
    if t("weight_packed") is not None:
        divisor = t("weight_global_scale").reshape(-1)[0]
        return "nvfp4", nvfp4(t("weight_packed"), t("weight_scale"), lambda s: s / divisor)
    if weight is None or weight.ndim != 2:
        return None
    if weight.dtype == np.uint8:
        g = t("weight_scale_2").reshape(-1)[0]
        return "nvfp4", nvfp4(weight, t("weight_scale"), lambda s: s * g)
    if weight.dtype == ml_dtypes.float8_e4m3fn:
        values = weight.astype(np.float32)
        if t("weight_scale_inv") is not None:
            wide = np.repeat(np.repeat(t("weight_scale_inv"), 128, axis=0), 128, axis=1)
            return "fp8-block", values * wide[:values.shape[0], :values.shape[1]]
        return "fp8-tensor", values * t("weight_scale").reshape(-1)[0]
    return {np.float32: "f32", ml_dtypes.bfloat16: "bf16"}[weight.dtype.type], weight.astype(np.float32)


def main(root):
    out = {}
    for config in sorted(glob.glob(os.path.join(root, "*", "config.json"))):
        directory = os.path.dirname(config)
        tensors = read(directory)
        if not tensors or any("experts" in name or name.startswith("layers.") for name in tensors):
            continue
        modules = sorted({re.sub(r"\.(weight|weight_packed)$", "", n) for n in tensors
                          if n.endswith((".weight", ".weight_packed"))})
        schemes, samples, shown = {}, {}, {}
        for module in modules:
            found = linear(tensors, module)
            if found is None:
                continue
            scheme, values = found
            schemes[scheme] = schemes.get(scheme, 0) + 1
            shown[scheme] = shown.get(scheme, 0) + 1
            if shown[scheme] > 3:
                continue
            n, k = values.shape
            places = [(0, 0), (0, 1), (n - 1, k - 1), (n // 2, k // 3), (n // 3, 15), (1, k - 16)]
            samples[module] = [[r, c, int(np.float32(values[r, c]).view(np.uint32))]
                               for r, c in places]
        out[os.path.basename(directory)] = {"tensors": len(tensors), "schemes": schemes,
                                            "samples": samples}
    print("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "}")


main(sys.argv[1])
