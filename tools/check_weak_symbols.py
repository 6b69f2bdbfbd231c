#!/usr/bin/env python3
"""Proves that objects compiled for one instruction set define no weak symbol.

An inline function or template that such an object instantiates is a weak definition; the linker keeps one copy of all,
and it may keep the one whose instructions an older processor does not have. So per-ISA files hold intrinsics and leaf
headers only, everything with internal linkage but their entry points.

    check_weak_symbols.py --nm NM --files a.cpp,b.cpp OBJECT...

Every name of --files must be among the objects; the other objects are not looked at.
"""
import argparse
import os
import subprocess
import sys


def weak_symbols(nm, path):
    lines = subprocess.run([nm, "-C", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        fields = line.split(maxsplit=2)
        # W, V: weak function, weak object; u: unique over all libraries.
        if len(fields) == 3 and fields[1] in "WVu":
            yield fields[2]


def main():
    parser = argparse.ArgumentParser(description="no weak symbols in per-ISA objects")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--files", required=True, help="source names, separated by commas")
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    by_source = {}
    for path in arguments.objects:
        name = os.path.basename(path)
        by_source[name.rsplit(".", 1)[0]] = path
    failures = []
    names = [name for name in arguments.files.split(",") if name]
    for name in names:
        if name not in by_source:
            failures.append(f"{name}: no object of this name among {len(arguments.objects)}")
            continue
        failures += [f"{name}: weak symbol {symbol}" for symbol in weak_symbols(arguments.nm, by_source[name])]
    for failure in failures:
        print(failure)
    print(f"{len(names)} per-ISA objects, {len(failures)} faults")
    return 1 if failures or not names else 0


if __name__ == "__main__":
    sys.exit(main())
