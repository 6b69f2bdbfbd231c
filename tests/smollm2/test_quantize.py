"""The real model, fetched and quantized from end to end: its tensors and its NVFP4 bytes have the hashes that other
implementations gave ($SEXTANT_GOLDEN/smollm2, default tests/golden). Needs the network once; the download is kept under ~/.cache/sextant.

$SEXTANT_BIN is the program (default build/test/sextant); $SEXTANT_SMOLLM2 a directory that tools/fetch_smollm2.py made or may make.
"""
import hashlib
import json
import struct
import subprocess
import sys

from smollm2 import GOLDEN, PROGRAM, ROOT


class Tensors:
    """The tensors of one safetensors file by name."""

    def __init__(self, path):
        self.file = open(path, "rb")
        n = struct.unpack("<Q", self.file.read(8))[0]
        self.header = json.loads(self.file.read(n))
        self.header.pop("__metadata__", None)
        self.start = 8 + n

    def bytes(self, name):
        begin, end = self.header[name]["data_offsets"]
        self.file.seek(self.start + begin)
        return self.file.read(end - begin)

    def sha256(self, name):
        return hashlib.sha256(self.bytes(name)).hexdigest()


def quantize(source, out, *options):
    done = subprocess.run([PROGRAM, "quantize", str(source), str(out), "--json", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["quantized"] == 210
    return Tensors(out / "model.safetensors")


def test_fetched_directory_has_the_hashes(source):
    expected = json.loads((GOLDEN / "tensors.sha256.json").read_text())["tensors"]
    tensors = Tensors(source / "model.safetensors")
    assert set(tensors.header) == set(expected)
    for name, want in expected.items():
        assert tensors.header[name]["shape"] == want["shape"]
        assert tensors.sha256(name) == want["sha256"], name


def test_fetching_again_does_nothing(source):
    before = (source / "model.safetensors").stat()
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "fetch_smollm2.py"), "--out", str(source)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    after = (source / "model.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_own_scales_give_the_hashes_in_both_dialects(source, tmp_path):
    expected = json.loads((GOLDEN / "nvfp4.sha256.json").read_text())["tensors"]
    modelopt = quantize(source, tmp_path / "modelopt", "--global-scale", "own")
    ct = quantize(source, tmp_path / "ct", "--global-scale", "own", "--dialect", "compressed-tensors")
    assert len(expected) == 210
    for module, want in expected.items():
        assert modelopt.sha256(module + ".weight") == want["weight"], module
        assert modelopt.sha256(module + ".weight_scale") == want["weight_scale"], module
        assert modelopt.bytes(module + ".weight_scale_2").hex() == want["weight_scale_2"], module
        assert modelopt.header[module + ".weight_scale_2"] | {"data_offsets": 0} == {"dtype": "F32", "shape": [], "data_offsets": 0}
        # The same codes; scale bytes differ in blocks of zeros only (0x38 there, 0x20 here).
        assert ct.sha256(module + ".weight_packed") == want["weight"], module
        pairs = set(zip(modelopt.bytes(module + ".weight_scale"), ct.bytes(module + ".weight_scale")))
        assert all(a == b or (a, b) == (0x38, 0x20) for a, b in pairs), module
        g = struct.unpack("<f", modelopt.bytes(module + ".weight_scale_2"))[0]
        G = struct.unpack("<f", ct.bytes(module + ".weight_global_scale"))[0]
        assert abs(g * G - 1) < 2e-7


def test_fused_scales_are_shared(source, tmp_path):
    tensors = quantize(source, tmp_path / "fused")
    for layer in range(30):
        p = "model.layers.%d." % layer
        for group in (["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp.gate_proj", "mlp.up_proj"]):
            assert len({tensors.bytes(p + m + ".weight_scale_2") for m in group}) == 1
