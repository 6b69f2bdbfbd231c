#!/usr/bin/env python3
"""How fast doctor reads: the whole check on a file in the page cache beside this machine's read stream, and --quick on the
headers of a model of 400 GB (a sparse file: only header and scalars take space on the disk).

    bench/doctor.py [--sextant build/test/sextant] [--dir DIR] [--gb 1.3] [--runs 5]

Needs numpy. DIR needs the space of the first file (--gb) and is left empty again.
"""
import argparse
import json
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import time

import numpy


def write_header(file, header):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    return 8 + len(text)


def layout(linears, n, k):
    """Header and size: codes and block scales of all linears, then their scalars."""
    header, at = {}, 0
    for suffix, dtype, shape, size in ((".weight", "U8", [n, k // 2], n * k // 2), (".weight_scale", "F8_E4M3", [n, k // 16], n * k // 16),
                                       (".weight_scale_2", "F32", [], 4), (".input_scale", "F32", [], 4)):
        for name in linears:
            header[name + suffix] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
    return header, at


def write_full(path, gigabytes):
    """Gaussian-like codes and scales that a quantizer could have written: a healthy file."""
    n, k, random = 14336, 4096, numpy.random.default_rng(0)
    count = max(1, round(gigabytes * 1e9 / (n * k * 9 / 16)))
    shares = numpy.array([6.9, 13.4, 12.8, 11.7, 15.1, 15.3, 13.7, 11.2] * 2)
    codes = random.choice(16, size=n * k, p=shares / shares.sum()).astype(numpy.uint8)
    codes.reshape(-1, 16)[numpy.arange(n * k // 16), random.integers(0, 16, n * k // 16)] = 7
    codes = (codes[0::2] | codes[1::2] << 4).tobytes()
    scales = numpy.clip(random.normal(0x6A, 6, n * k // 16), 8, 0x7D).astype(numpy.uint8)
    scales[0] = 0x7E
    header, _ = layout([f"model.layers.{i}.mlp.up_proj" for i in range(count)], n, k)
    with open(path, "wb") as file:
        write_header(file, header)
        for _ in range(count):
            file.write(codes)
        for _ in range(count):
            file.write(scales.tobytes())
        file.write(numpy.full(count, 1e-4, "<f4").tobytes() + numpy.full(count, 4e-3, "<f4").tobytes())


def write_sparse(path, gigabytes):
    """61 layers of 256 experts in the shape of DeepSeek-V3, cut where the size is reached."""
    n, k = 2048, 7168
    names = [f"model.layers.{layer}.mlp.experts.{expert}.{part}" for layer in range(61) for expert in range(256)
             for part in ("gate_proj", "up_proj", "down_proj")]
    names = names[: int(gigabytes * 1e9 / (n * k * 9 / 16))]
    header, size = layout(names, n, k)
    with open(path, "wb") as file:
        begin = write_header(file, header)
        file.truncate(begin + size)
        file.seek(begin + size - 8 * len(names))
        file.write(numpy.full(len(names), 1e-4, "<f4").tobytes() + numpy.full(len(names), 4e-3, "<f4").tobytes())
    return 4 * len(names)


def best(sextant, path, runs, *options):
    times, verdict = [], ""
    for _ in range(runs):
        start = time.monotonic()
        done = subprocess.run([sextant, "doctor", path, "--json", *options], capture_output=True, text=True)
        times.append(time.monotonic() - start)
        document = json.loads(done.stdout)
        verdict = document["verdict"]
    return min(times), document["summary"], verdict


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sextant", default="build/test/sextant")
    parser.add_argument("--dir")
    parser.add_argument("--gb", type=float, default=1.3)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(dir=options.dir))
    try:
        full = place / "full.safetensors"
        write_full(full, options.gb)
        for threads in (1, 2):
            stream = subprocess.run([options.sextant, "bench", "-j", str(threads)], capture_output=True, text=True).stdout
            reads = float(re.search(r"reads ([0-9.]+) GB/s", stream).group(1))
            seconds, summary, verdict = best(options.sextant, full, options.runs, "-j", str(threads))
            rate = summary["checked_bytes"] / seconds / 1e9
            print(f"every byte, {threads} thread(s): {summary['checked_bytes'] / 1e9:.2f} GB in {seconds:.3f} s, {rate:.2f} GB/s, "
                  f"{100 * rate / reads:.0f} % of the read stream ({reads} GB/s); {verdict}")
        full.unlink()
        sparse = place / "sparse.safetensors"
        write_sparse(sparse, 400)
        seconds, summary, verdict = best(options.sextant, sparse, options.runs, "--quick")
        print(f"--quick: {summary['bytes'] / 1e9:.0f} GB, {summary['tensors']} tensors in {seconds:.2f} s; {verdict}")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
