#!/usr/bin/env python3
"""What a probe at every tap costs: the prefill of `sextant run` beside the forward pass of `sextant trace` on the same token ids, and the
time that the probe itself measured. Runs alternate, the best of each counts.

    bench/trace.py MODEL... [--sextant build/test/sextant] [--tokens 200] [--runs 5] [--input-scales SCALES.json] [-j N]

--input-scales: {module: input_scale}, or an object with that as "g" (tests/golden/smollm2/input_scales.json), for models that have
none: a ModelOpt NVFP4 model is measured again as a temporary copy with them.
"""
import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import tempfile


def with_input_scales(model, scales, at):
    """A copy whose linears have these activation scales (scalars, behind the other tensors)."""
    shutil.copytree(model, at, ignore=shutil.ignore_patterns("*.safetensors"))
    data = (model / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    extra = b""
    for module, scale in scales.items():
        if module + ".weight_scale_2" in header:
            begin = len(body) + len(extra)
            header[module + ".input_scale"] = {"dtype": "F32", "shape": [], "data_offsets": [begin, begin + 4]}
            extra += struct.pack("<f", scale)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (at / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body + extra)
    return at


def last_line(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) if command[1] == "run" else json.loads(done.stdout)


def measure(sextant, model, ids, runs, threads):
    plain, probed, inside = [], [], []
    for _ in range(runs):
        run = last_line(sextant, "run", model, "--ids", ids, "--max-tokens", 1, "--json", "-q", *threads)
        plain.append(run["timings"]["prefill_s"])
        trace = last_line(sextant, "trace", model, "--ids", ids, "--json", "-q", *threads)
        probed.append(trace["timings"]["forward_s"])
        inside.append(trace["timings"]["taps_s"])
    scaled = sum(1 for tap in trace["taps"] if tap["input"] and tap["input"]["scale"] is not None)
    off, on = min(plain), min(probed)
    print(f"{model}: off {1e3 * off:.1f} ms, on {1e3 * on:.1f} ms ({100 * (on / off - 1):+.1f} %); {1e3 * min(inside):.1f} ms in "
          f"{len(trace['taps'])} taps, {scaled} inputs with a scale")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--sextant", default="build/test/sextant")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--input-scales", type=pathlib.Path)
    parser.add_argument("-j", "--threads")
    options = parser.parse_args()
    threads = ["-j", options.threads] if options.threads else []
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        ids = place / "ids.json"
        ids.write_text(json.dumps([(i * 977 + 13) % 30000 + 20 for i in range(options.tokens)]))
        for number, model in enumerate(options.models):
            measure(options.sextant, model, ids, options.runs, threads)
            if options.input_scales and (model / "hf_quant_config.json").exists():
                scales = json.loads(options.input_scales.read_text())
                scales = scales.get("g", scales)
                scaled = with_input_scales(model, scales, place / f"{model.name}-scaled-{number}")
                measure(options.sextant, scaled, ids, options.runs, threads)


if __name__ == "__main__":
    main()
