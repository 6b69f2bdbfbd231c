#!/usr/bin/env python3
"""How fast doctor reads: the whole check on a file in the page cache beside this machine's read stream, and --quick on the
headers of a model of 400 GB (a sparse file: only header and scalars take space on the disk). With --many instead: time and
memory of 1.3 million tensors in one header of 161 MB, 61 layers of 1776 experts of three linears of 64 x 128.

    bench/doctor.py [--sextant build/test/sextant] [--dir DIR] [--gb 1.3] [--runs 5] [--many]

Needs numpy. DIR needs the space of the first file (--gb; 1.7 GB with --many) and is left empty again.
"""
import argparse
import json
import multiprocessing
import os
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


def weights(n, k):
    """Gaussian-like codes and scales that a quantizer could have written: a healthy linear."""
    random = numpy.random.default_rng(0)
    shares = numpy.array([6.9, 13.4, 12.8, 11.7, 15.1, 15.3, 13.7, 11.2] * 2)
    codes = random.choice(16, size=n * k, p=shares / shares.sum()).astype(numpy.uint8)
    codes.reshape(-1, 16)[numpy.arange(n * k // 16), random.integers(0, 16, n * k // 16)] = 7
    scales = numpy.clip(random.normal(0x6A, 6, n * k // 16), 8, 0x7D).astype(numpy.uint8)
    scales[0] = 0x7E
    return (codes[0::2] | codes[1::2] << 4).tobytes(), scales.tobytes()


def write_filled(path, names, n, k):
    """All linears hold the same bytes; their global scales differ a little, as those of a model do."""
    codes, scales = weights(n, k)
    header, _ = layout(names, n, k)
    count = len(names)
    with open(path, "wb") as file:
        write_header(file, header)
        for part in (codes, scales):
            at_once = max(1, (8 << 20) // len(part))
            for at in range(0, count, at_once):
                file.write(part * min(at_once, count - at))
        file.write(numpy.linspace(1e-4, 1.2e-4, count).astype("<f4").tobytes())
        file.write(numpy.full(count, 4e-3, "<f4").tobytes())


def write_full(path, gigabytes):
    n, k = 14336, 4096
    count = max(1, round(gigabytes * 1e9 / (n * k * 9 / 16)))
    write_filled(path, [f"model.layers.{i}.mlp.up_proj" for i in range(count)], n, k)


def expert_names(n_experts):
    return [f"model.layers.{layer}.mlp.experts.{expert}.{part}" for layer in range(61) for expert in range(n_experts)
            for part in ("gate_proj", "up_proj", "down_proj")]


def write_sparse(path, gigabytes):
    """61 layers of 256 experts in the shape of DeepSeek-V3, cut where the size is reached."""
    n, k = 2048, 7168
    names = expert_names(256)[: int(gigabytes * 1e9 / (n * k * 9 / 16))]
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


def write_many(path):
    write_filled(path, expert_names(1776), 64, 128)


def many_tensors(sextant, path, runs):
    # In a process of its own: a child's peak begins with the size of its parent.
    writer = multiprocessing.Process(target=write_many, args=(path,))
    writer.start()
    writer.join()
    with open(path, "rb") as file:
        header_bytes = struct.unpack("<Q", file.read(8))[0]
    limit = 300 + 3 * header_bytes / 1e6
    for options in (["--quick"], ["-j", "1"], ["-j", "2"]):
        times, peaks = [], []
        for _ in range(runs):
            start = time.monotonic()
            with subprocess.Popen([sextant, "doctor", path, "--json", *options], stdout=subprocess.PIPE, text=True) as child:
                summary = json.load(child.stdout)["summary"]
                _, _, usage = os.wait4(child.pid, 0)
                child.returncode = 0
            times.append(time.monotonic() - start)
            peaks.append(usage.ru_maxrss * 1024 / 1e6)
        print(f"{' '.join(options)}: {summary['tensors']} tensors, header of {header_bytes / 1e6:.0f} MB, in {min(times):.2f} s, "
              f"{max(peaks):.0f} MB resident (limit 300 MB + 3 headers: {limit:.0f} MB)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sextant", default="build/test/sextant")
    parser.add_argument("--dir")
    parser.add_argument("--gb", type=float, default=1.3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--many", action="store_true", help="1.3 million tensors, instead")
    options = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(dir=options.dir))
    try:
        if options.many:
            many_tensors(options.sextant, place / "many.safetensors", options.runs)
            return
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
