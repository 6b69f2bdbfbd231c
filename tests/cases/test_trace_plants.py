"""One fault planted at random in the parameters of a tiny golden model, then `sextant trace` on a prompt: it must name the tensor that
was changed (and where in it), or the logits are bit for bit those of the original. What is missed is printed by kind.

    pytest tests/cases/test_trace_plants.py --trace-plants 5000
"""
import json
import shutil

import jsonschema
import numpy as np
import pytest

from . import fixture, plants
from .conftest import ROOT
from .test_healthy import GOLDEN

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/trace.schema.json").read_text()))
MODELS = ("llama2", "llama3", "qwen2", "qwen3", "modelopt-llama3-shared", "modelopt-llama-mixed", "ct-llama3-nvfp4", "fp8-block-llama")
COLUMNS = ["planted", "named", "dead", "no change", "missed"]
PROMPT = [5, 77, 31, 120, 9, 64, 200, 3]
BF16 = {"nan": b"\xc0\x7f", "inf": b"\x80\x7f", "-inf": b"\x80\xff"}
F32 = {"nan": np.float32("nan").tobytes(), "inf": np.float32("inf").tobytes(), "0": bytes(4)}


def places(tensors):
    """(kind, tensor, bytes an element, what may be planted) of everything whose change a forward pass can see."""
    for name, (dtype, shape, raw) in tensors.items():
        part = name.rsplit(".", 1)[-1]
        if part.startswith(("input_", "k_scale", "v_scale")):
            continue  # no policy of a trace uses them
        if part in ("weight_scale_2", "weight_global_scale") or (part == "weight_scale" and dtype == "F32" and len(raw) == 4):
            yield "global scale", name, 4, F32
        elif part.startswith("weight_scale") and dtype == "F8_E4M3":
            yield "block scale", name, 1, {"nan": b"\x7f", "-nan": b"\xff"}
        elif part.startswith("weight_scale") and dtype == "F32":
            yield "block scale", name, 4, {value: F32[value] for value in ("nan", "inf")}
        elif dtype == "F8_E4M3":
            yield "fp8 weight", name, 1, {"nan": b"\x7f"}
        elif dtype == "BF16":
            kind = "embedding" if "embed" in name else "bias" if part == "bias" else "norm" if len(shape) == 1 else "weight"
            yield kind, name, 2, BF16


class Original:
    prompt = PROMPT

    def __init__(self, sextant, at, name, directory=None):
        self.sextant, self.at, self.name = sextant, at, name
        self.directory = directory or GOLDEN / name
        self.file, *others = sorted(self.directory.glob("model*.safetensors"))
        assert not others, name
        self.tensors = fixture.read(self.file)
        self.kinds = {}
        for kind, tensor, size, values in places(self.tensors):
            self.kinds.setdefault(kind, []).append((tensor, size, self.values_of(tensor, values)))
        self.ids = at / "ids.json"
        self.ids.write_text(json.dumps(self.prompt))
        self.logits = self.run(self.directory)[1]

    def values_of(self, tensor, values):
        return values

    def change(self, tensor, element, size, value, values):
        """(index of the first element that changes, the new bytes from there on)"""
        return element, values[value]

    def run(self, model):
        """(document, bytes of the logits)"""
        dump = self.at / "dump"
        shutil.rmtree(dump, ignore_errors=True)
        done = self.sextant("trace", model, "--ids", self.ids, "--json", "--write-dump", dump, "--allow", "C1", "--allow", "C3")
        assert done.returncode in (0, 2), (done.returncode, done.stderr)
        document = json.loads(done.stdout)
        assert "error" not in document, document
        SCHEMA.validate(document)
        assert done.returncode == (2 if document["verdict"] == "bad" else 0)
        return document, fixture.read(dump / "dump.safetensors")["logits"][2]

    def planted(self, rng):
        """(kind, tensor, index of the element, bytes, a sentence)"""
        kind = str(rng.choice(sorted(self.kinds)))
        tensor, size, values = self.kinds[kind][rng.integers(len(self.kinds[kind]))]
        raw = self.tensors[tensor][2]
        value = str(rng.choice(sorted(values)))
        element = int(rng.integers(len(raw) // size))
        if kind == "embedding" and rng.random() < 0.7:  # a token of the prompt
            width = self.tensors[tensor][1][1]
            element = int(rng.choice(self.prompt)) * width + int(rng.integers(width))
        directory = self.at / "planted"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("dump*"))
        element, new = self.change(tensor, element, size, value, values)
        offset = fixture.data_offset(self.file, tensor) + element * size
        data = bytearray(self.file.read_bytes())
        data[offset:offset + len(new)] = new
        (directory / self.file.name).write_bytes(bytes(data))
        return kind, tensor, offset, directory, f"{self.name}: {tensor} element {element} is {value}"

    def becomes(self, tensor, offset, directory):
        document, logits = self.run(directory)
        bad = document["first_bad"]
        if bad is not None:
            cause = bad["cause"]
            right = cause["tensor"] == tensor and cause["offset"] == offset and str(offset) in bad["message"]
            return "named" if right else f"missed: named {bad['message']}"
        if any(dead["cause"]["tensor"] == tensor and dead["cause"]["offset"] == offset for dead in document["dead"]):
            return "dead"
        return "no change" if logits == self.logits else "missed: logits differ"


@pytest.mark.parametrize("name", MODELS)
def test_planted_faults_are_attributed(sextant, tmp_path, request, record_property, name):
    total = request.config.getoption("--trace-plants")
    draws = (np.random.default_rng([MODELS.index(name), number]) for number in range(-(-total // len(MODELS))))
    kinds, wrong = plants.tally(Original(sextant, tmp_path, name), draws, COLUMNS)
    record_property("traced plants", {"columns": COLUMNS, "kinds": kinds})
    assert not wrong, "\n" + "\n".join(wrong)
