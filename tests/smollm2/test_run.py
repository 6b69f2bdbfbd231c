"""The real model's numbers: greedy continuations and perplexities equal what transformers gave in float32
(tests/golden/smollm2, made by tools/golden/smollm2_golden.py), and the memory that running takes."""
import json
import os
import re
import subprocess
import sys

import pytest

from smollm2 import GOLDEN, PROGRAM, PROMPTS

GREEDY = json.loads((GOLDEN / "greedy.json").read_text(encoding="utf-8"))
EVAL = json.loads((GOLDEN / "eval.json").read_text(encoding="utf-8"))["files"]


def sextant(*arguments, **options):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("variant", ["bf16", "nvfp4_w4a16"])
def test_greedy_continuations_where_the_margin_decides(variant, source, nvfp4, tmp_path):
    """Our own continuation may leave the golden one only at a step whose margin is within 1e-3 of the logits' rms; the steps
    before that step and, fed with the golden ids, the steps after it are all compared."""
    model = source if variant == "bf16" else nvfp4
    compared = 0
    for prompt in PROMPTS:
        name = prompt["name"]
        golden = GREEDY[name][variant]
        want, at = golden["ids"], 0
        while at < len(want):
            ids = tmp_path / "ids.json"
            ids.write_text(json.dumps(prompt["ids"] + want[:at]))
            lines = sextant("run", model, "--ids", ids, "--raw", "--json", "--policy", "f32", "--temperature", 0, "--ignore-eos",
                            "--max-tokens", len(want) - at).splitlines()
            got = json.loads(lines[-1])["ids"]
            assert len(got) == len(want) - at
            same = 0
            while same < len(got) and got[same] == want[at + same]:
                same += 1
            compared += same
            at += same
            if at < len(want):
                assert golden["margin"][at] <= 1e-3 * golden["rms"][at], (name, at)
                at += 1
    assert compared > 500


@pytest.mark.parametrize("text", ["eval.txt", "eval_prose.txt"])
@pytest.mark.parametrize("variant", ["bf16", "nvfp4_w4a16"])
def test_perplexity(variant, text, source, nvfp4):
    model = source if variant == "bf16" else nvfp4
    answer = json.loads(sextant("eval", model, "--text", GOLDEN / text, "--policy", "f32", "--json"))
    want = EVAL[text][variant]
    assert abs(answer["perplexity"] / want["perplexity"] - 1) < 2e-4
    assert len(answer["window_nll_sum"]) == len(want["window_nll_sum"])
    for got, expected in zip(answer["window_nll_sum"], want["window_nll_sum"]):
        assert abs(got / expected - 1) < 2e-4


# Runs a command and prints its largest resident set in kilobytes. A process of its own: the system counts the memory of who starts a
# program as the program's, until it is loaded, and pytest may hold more than the program does.
PEAK = """
import os, sys
null = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null), 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_memory_of_running(nvfp4):
    """VmHWM at most 1.10 x weights + KV + 200 MB. The key/value cache of 512 positions is 30 layers x 2 x 192 x 2 bytes each."""
    weights = (nvfp4 / "model.safetensors").stat().st_size
    kv = 512 * 30 * 2 * 3 * 64 * 2
    done = subprocess.run([sys.executable, "-c", PEAK, PROGRAM, "run", str(nvfp4), "Hello", "--max-tokens", "32", "--context", "512",
                           "--temperature", "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak = 1024 * int(done.stdout)
    assert peak <= 1.10 * weights + kv + 200e6


def test_an_answer_streams_and_says_what_it_took(nvfp4):
    done = subprocess.run([PROGRAM, "run", str(nvfp4), "What is the capital of France?", "--max-tokens", "24", "--temperature", "0"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert re.search(r"[\d.]+ tok(ens)?/s", done.stderr)
    assert "GB/s" in done.stderr

