#!/usr/bin/env python3
"""Does a test notice? Changes one rounding, comparison or constant of the NVFP4 quantizers at a time (src/quant/nvfp4.cpp), builds
quant_test with it and expects it to fail. Prints one line a mutant; exit 1 if one survives.

    tools/mutate_quant.py [--build build/test]      needs a built quant_test (cmake --build --preset test --target quant_test)

The mutant's object is linked before the library, whose own copy of the same functions then stays unused.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/quant/nvfp4.cpp"

# (profile, text in the source, what it becomes); each text occurs where it is meant first.
MUTANTS = [
    ("A", "e4m3_encode(G * (amax_dropping_nan(x) * kSixth))", "e4m3_encode((G * amax_dropping_nan(x)) * kSixth)"),
    ("A", "e4m3_encode(G * (amax_dropping_nan(x) * kSixth))", "e4m3_encode(G * (amax_dropping_nan(x) / 6.0F))"),
    ("A", "e4m3_encode(G * (amax_dropping_nan(x) * kSixth))", "e4m3_encode_nonsaturating(G * (amax_dropping_nan(x) * kSixth))"),
    ("A", "e4m3_encode(G * (amax_dropping_nan(x) * kSixth))", "e4m3_encode(G * (amax_of(x, kNvfp4Block) * kSixth))"),
    ("A", "S == 0.0F ? 0.0F : rcp_ftz(S * rcp_ftz(G))", "rcp_ftz(S * rcp_ftz(G))"),
    ("A", "S == 0.0F ? 0.0F : rcp_ftz(S * rcp_ftz(G))", "S == 0.0F ? 0.0F : G / S"),
    ("B", "amax == 0.0F ? 0.0F : rcp_ftz(e4m3_decode(scale) * rcp_ftz(G))",
     "e4m3_decode(scale) == 0.0F ? 0.0F : rcp_ftz(e4m3_decode(scale) * rcp_ftz(G))"),
    ("B", "e4m3_encode(G * (amax * kSixth));\n  return {scale, amax", "e4m3_encode((G * amax) * kSixth);\n  return {scale, amax"),
    ("B", "amax == 0.0F ? 0.0F : rcp_ftz(e4m3_decode(scale) * rcp_ftz(G))", "amax == 0.0F ? 0.0F : G / e4m3_decode(scale)"),
    ("T", "e4m3_encode(amax * (G * kSixth))", "e4m3_encode(G * (amax * kSixth))"),
    ("T", "1.0F / (e4m3_decode(scale) * (1.0F / G))", "rcp_ftz(e4m3_decode(scale) * rcp_ftz(G))"),
    ("T", "1.0F / (e4m3_decode(scale) * (1.0F / G))", "G / e4m3_decode(scale)"),
    ("T", "kLimit < by ? kLimit : by", "by"),
    ("C", "const float t = G * (amax_of(x, kNvfp4Block) / 6.0F);", "const float t = (G * amax_of(x, kNvfp4Block)) / 6.0F;"),
    ("C", "const float t = G * (amax_of(x, kNvfp4Block) / 6.0F);", "const float t = G * (amax_of(x, kNvfp4Block) * kSixth);"),
    ("C", "if ((scale & 0x7F) == 0) scale = 0x20;", ""),
    ("C", "e4m3_decode(scale) / G}", "e4m3_decode(scale) * (1.0F / G)}"),
    ("C", "const Float4 t = x / by;\n    return magnitudes(t) | (signs(t) & (x != 0.0F));", "const Float4 t = x / by;\n    return magnitudes(t) | signs(t);"),
    ("C", "const Float4 t = x / by;\n    return magnitudes(t) | (signs", "const Float4 t = x * (1.0F / by);\n    return magnitudes(t) | (signs"),
    ("D", "amax_of(x, kNvfp4Block) / (6.0F * g)", "amax_of(x, kNvfp4Block) / 6.0F / g"),
    ("D", "e4m3_encode_nonsaturating(t == 0.0F ? 1.0F : t)", "e4m3_encode(t == 0.0F ? 1.0F : t)"),
    ("D", "e4m3_encode_nonsaturating(t == 0.0F ? 1.0F : t)", "e4m3_encode_nonsaturating(t)"),
    ("D", "return magnitudes(t) | ((t < 0.0F) & 8);", "return magnitudes(t) | signs(t);"),
    ("D", "const Float4 t = x / by;\n    return magnitudes(t) | ((t", "const Float4 t = x * (1.0F / by);\n    return magnitudes(t) | ((t"),
    ("E", "amax_of(x, kNvfp4Block) / 6.0F / g", "amax_of(x, kNvfp4Block) / (6.0F * g)"),
    ("E", "t < 0x1p-6F ? 0x1p-6F : t", "t"),
    ("E", "e4m3_encode(t < 0x1p-6F", "e4m3_encode_nonsaturating(t < 0x1p-6F"),
    ("all", "(a <= 0.25F)", "(a < 0.25F)"),
    ("all", "(a < 0.75F)", "(a <= 0.75F)"),
    ("all", "(a <= 1.25F)", "(a < 1.25F)"),
    ("all", "(a < 1.75F)", "(a <= 1.75F)"),
    ("all", "(a <= 2.5F)", "(a < 2.5F)"),
    ("all", "(a < 3.5F)", "(a <= 3.5F)"),
    ("all", "(a <= 5.0F)", "(a < 5.0F)"),
    ("four-over-six", "t6 * 1.5F", "t6 * 1.4F"),
    ("four-over-six", "errors[1] < errors[0] ? 1 : 0", "errors[1] <= errors[0] ? 1 : 0"),
    ("four-over-six", "rcp_ftz(d), candidates[c]", "1.0F / d, candidates[c]"),
    ("four-over-six", "const float t6 = G * (amax * kSixth);", "const float t6 = (G * amax) * kSixth;"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/test"))
    build = pathlib.Path(parser.parse_args().build).resolve()
    text = SOURCE.read_text()
    # The flags of any file of the library will do: they are all compiled alike.
    entry = next(e for e in json.loads((build / "compile_commands.json").read_text()) if "/sx_quant.dir/" in e["command"])
    command = shlex.split(entry["command"])
    command = command[next(i for i, word in enumerate(command) if "g++" in word or "clang++" in word):]
    flags = command[: command.index("-o")]
    tests = sorted(str(p) for p in (build / "src/quant/CMakeFiles/quant_test.dir").rglob("*.o"))
    libraries = [str(build / "src/quant/libsx_quant.a"), str(build / "src/base/libsx_base.a")]
    survivors = 0
    with tempfile.TemporaryDirectory() as scratch:
        mutant, obj, program = (pathlib.Path(scratch) / name for name in ("nvfp4.cpp", "nvfp4.o", "quant_test"))
        for profile, old, new in MUTANTS:
            if old not in text:
                print(f"STALE     {profile}: {old!r} is not in {SOURCE.name}")
                survivors += 1
                continue
            mutant.write_text(text.replace(old, new, 1))
            built = subprocess.run([*flags, "-Wno-error", "-w", "-o", str(obj), "-c", str(mutant)], cwd=build, capture_output=True, text=True)
            if built.returncode == 0:
                built = subprocess.run([flags[0], *tests, str(obj), *libraries, "-Wl,--allow-multiple-definition", "-lgtest", "-lgmock",
                                        "-lgtest_main", "-lrapidcheck", "-lfmt", "-lspdlog", "-lpthread", "-o", str(program)],
                                       cwd=build, capture_output=True, text=True)
            if built.returncode != 0:
                sys.exit(f"mutate_quant: error: a mutant does not build:\n{built.stderr[-1500:]}")
            noticed = subprocess.run([str(program), "--gtest_brief=1"], cwd=ROOT, capture_output=True).returncode != 0
            survivors += not noticed
            print(f"{'noticed  ' if noticed else 'SURVIVED '} {profile}: {' '.join(old.split())[:60]} -> {' '.join(new.split())[:60]}", flush=True)
    print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} mutants are noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
