"""What holds for every command: exit status, streams, --json, help, completion."""
import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import BIN, COMMANDS, environment


def test_version(sextant):
    done = sextant("version")
    assert done.returncode == 0 and done.stdout.startswith("sextant ") and done.stderr == ""
    assert sextant("--version").stdout == " ".join(done.stdout.split()[:2]) + "\n"
    document = sextant.json("version")
    assert document["version"] in done.stdout and "ref" in document["kernels"]


def test_help_lists_what_there_is_and_nothing_else(sextant):
    text = sextant("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"\n  {command}[ ,]", text)
    for command in ["serve", "convert", "repair"]:
        assert f"\n  {command} " not in text
    assert sextant("help").stdout == text == sextant("-h").stdout
    assert "Exit status" in text and "SEXTANT_HOME" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(sextant, command):
    text = sextant("help", command).stdout
    assert f"sextant {command}" in text and "--json" in text and "--threads" in text
    assert sextant(command, "--help").stdout == text == sextant(command, "-h").stdout
    assert max(len(line) for line in text.splitlines()) <= 110
    if command not in ("help", "version"):
        assert "Examples:" in text


def test_no_command_shows_help_and_is_wrong_usage(sextant):
    done = sextant()
    assert done.returncode == 64 and done.stdout == "" and "First steps" in done.stderr


@pytest.mark.parametrize("args", [["doctors", "x"], ["nonsense"], ["rum", "x"]])
def test_unknown_command_names_what_exists(sextant, args):
    text = sextant.fails(64, *args)
    assert f'"{args[0]}"' in text and "run, quantize, doctor, inspect" in text
    if args[0] == "rum":
        assert "did you mean run?" in text


@pytest.mark.parametrize("command", ["serve", "repair"])
def test_a_command_of_a_later_version_is_not_called_unknown(sextant, command):
    text = sextant.fails(64, command, "x")
    assert f"{command} is not in this version" in text and "run, quantize, doctor, inspect" in text


@pytest.mark.parametrize("args", [
    ["run"], ["run", "x", "--nonsense"], ["run", "x", "--threads", "0"], ["run", "x", "-j", "many"],
    ["run", "x", "--color", "pink"], ["tokenize", "x", "--jsonl", "--decode"], ["quantize", "only-one"],
    ["completion", "powershell"], ["help", "nonsense"], ["version", "extra"], ["run", "x", "--top-p", "0"],
    ["run", "x", "--temperature", "nan"], ["run", "x", "hi", "--stop", ""], ["run", "x", "--max-tokens", "0"],
    ["eval", "x"], ["compare", "x"], ["version", "--device", "tpu"],
])
def test_wrong_usage(sextant, args):
    sextant.fails(64, *args)
    document = sextant.json(*args, status=64)
    assert document["error"]["code"] == "usage" and document["error"]["status"] == 64
    assert document["error"]["message"] and isinstance(document["error"]["where"], dict)


@pytest.mark.parametrize("args", [["--device", "cuda"], ["--device", "cuda:1"], ["--mmap"]])
def test_what_this_build_has_not(sextant, args):
    text = sextant.fails(4, "version", *args)
    assert args[0] in text
    assert sextant.json("version", *args, status=4)["error"]["code"] == "unsupported"


def test_json_before_the_command(sextant):
    done = sextant("--json", "version")
    assert json.loads(done.stdout)["version"]


def test_output_file(sextant, tmp_path):
    target = tmp_path / "out.json"
    done = sextant("version", "--json", "-o", target)
    assert done.returncode == 0 and done.stdout == ""
    assert json.loads(target.read_text())["version"]
    # An error leaves the file as it was, nothing half-written beside it, and its document on the terminal.
    done = sextant("inspect", tmp_path / "nothing", "--json", "-o", target)
    assert done.returncode == 3 and json.loads(done.stdout)["error"]["status"] == 3
    assert json.loads(target.read_text())["version"] and os.listdir(tmp_path) == ["out.json"]
    sextant.fails(3, "version", "-o", tmp_path / "no/such/directory/file")


def test_full_disk(sextant):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN, "help", "run"], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=environment())
    assert done.returncode == 5 and "No space left" in done.stderr


def test_broken_pipe_is_quiet(golden):
    model = golden / "llama3"
    script = f'"{BIN}" inspect "{model}" --json | head -c 1; echo ":${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment())
    assert done.stdout == "{:0\n" and done.stderr == ""


def test_color(sextant):
    assert "\x1b[" not in sextant("run").stderr
    assert "\x1b[31m" in sextant("inspect", "nothing", "--color", "always").stderr
    assert "\x1b[" not in sextant("inspect", "nothing", "--color", "never").stderr


def test_verbose_shows_where(sextant):
    done = sextant("inspect", "/nothing/there", "-v")
    assert done.returncode == 3 and "\n  file: /nothing/there" in done.stderr


def test_unknown_model_suggests_names(sextant, golden):
    (sextant.home / "models/smollm2-nvfp4").mkdir(parents=True)
    text = sextant.fails(3, "inspect", "smolm2-nvfp4")
    assert "did you mean smollm2-nvfp4?" in text and str(sextant.home) in text
    assert "llama3" in sextant.fails(3, "inspect", golden / "lama3")
    os.symlink(golden / "llama3", sextant.home / "models/three")
    assert sextant("inspect", "three").returncode == 0


def test_defect_and_memory_statuses_are_documented(sextant):
    text = sextant("--help").stdout
    for status in ["1 a gate", "2 the model has errors", "70 a defect", "130 interrupted", "143 terminated"]:
        assert status in text.replace("\n", " ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_everything(sextant, shell):
    script = sextant("completion", shell).stdout
    for command in COMMANDS:
        assert command in script
    for option in ["temperature", "prefill-chunk", "jsonl", "global-scale"]:
        assert option in script
    assert sextant.json("completion", shell)["script"] == script


def complete(script, *words):
    code = f"""{script}
COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _sextant; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completion_works(sextant, tmp_path):
    script = sextant("completion", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert complete(script, "sextant", "qu") == ["quantize"]
    assert complete(script, "sextant", "run", "m", "--temp") == ["--temperature"]
    assert set(complete(script, "sextant", "quantize", "a", "b", "--dialect", "")) == {"modelopt", "compressed-tensors"}
    assert complete(script, "sextant", "completion", "z") == ["zsh"]
    assert "tokenize" in complete(script, "sextant", "help", "tok")


def test_a_report_never_takes_the_place_of_the_model(sextant, golden, tmp_path):
    model = tmp_path / "m"
    shutil.copytree(golden / "llama3", model)
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    (tmp_path / "link").symlink_to(model / "model.safetensors")
    for options in (["--html", model / "model.safetensors"], ["--html", model / "config.json"], ["--html", tmp_path / "link"],
                    ["-o", model / "model.safetensors"]):
        assert "file of the model itself" in sextant.fails(64, "doctor", model, *options)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert "file of its own" in sextant.fails(64, "doctor", model, "--html", "-")
    assert "no check has this id" in sextant.fails(64, "doctor", model, "--allow", "Z9")
