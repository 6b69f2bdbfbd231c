"""doctor through the whole program: odd paths and files, the lock, and what stands on the terminal and on the page."""
import hashlib
import html.parser
import json
import os
import pathlib
import shutil
import struct
import subprocess
import threading
import time

import pytest

from conftest import BIN, GOLDEN, Safetensors, environment, write_safetensors

NVFP4, OWN = "modelopt-llama3-shared", "modelopt-llama3-separate"
DOWN = "model.layers.0.mlp.down_proj."
ODD = ["a b", "it's", 'say "so"', "größe-模型", "line\nbreak", "-v", "\u202eedoc", "<b>&amp;"]
CONTROLS = {"\x1b", "\x85", "\u202e", "\u2066", "\u061c", "\n"}


def change(path, name=None, value=None):
    """Writes the model anew, with other bytes of one tensor."""
    file = Safetensors(path / "model.safetensors")
    file.header.pop("__metadata__", None)
    tensors = {n: (e["dtype"], e["shape"], file.body[e["data_offsets"][0]:e["data_offsets"][1]]) for n, e in file.header.items()}
    if name:
        tensors[name] = (*tensors[name][:2], value)
    write_safetensors(path / "model.safetensors", tensors)
    return path


def healthy(at, base=NVFP4):
    return pathlib.Path(shutil.copytree(GOLDEN / base, at))


def warned(at):
    """total_size of the index is wrong: F1."""
    path = healthy(at, OWN)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["metadata"] = {"total_size": 1}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def broken(at):
    """A global scale of zero: C3."""
    return change(healthy(at), DOWN + "weight_scale_2", struct.pack("<f", 0))


def unreadable(at):
    path = healthy(at)
    (path / "model.safetensors").write_bytes(b"")
    return path


def inverted(at):
    """Every global scale stored the other way round: P10, which opening does not see and the quick checks of a load do."""
    path = healthy(at)
    file = Safetensors(path / "model.safetensors")
    for name, entry in file.header.items():
        if name.endswith("weight_scale_2"):
            begin, end = entry["data_offsets"]
            value, = struct.unpack("<f", file.body[begin:end])
            file.body = file.body[:begin] + struct.pack("<f", 1 / value) + file.body[end:]
    text = json.dumps(file.header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + file.body)
    return path


KINDS = {"healthy": (healthy, 0, 0), "warnings": (warned, 0, 1), "errors": (broken, 2, 2), "unreadable": (unreadable, 3, 3)}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.text, self.open = "", []
        self.feed(pathlib.Path(path).read_text())
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe", "object", "a", "b")
        if tag not in ("meta", "line", "rect", "path", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        self.text += data


# ------------------------------------------------------------------ status, paths and files

@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ODD)
def test_status_and_page_under_an_odd_path(sextant, tmp_path, name, kind):
    make, status, strict = KINDS[kind]
    (tmp_path / name).mkdir()
    path, page = make(tmp_path / name / "model"), tmp_path / name / "page.html"
    reference = GOLDEN / (OWN if kind == "warnings" else NVFP4)
    done = sextant("doctor", path, "--html", page, "--engine", "vllm", "--against", reference)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert done.stdout.startswith(f"verdict     {kind}") and not CONTROLS - {"\n"} & set(done.stdout + done.stderr)
    text = Page(page).text
    assert kind in text and not CONTROLS - {"\n"} & set(text)
    document = sextant.json("doctor", path, "--strict", status=strict)
    assert document["verdict"] == kind and document["model"].endswith("model") and name in document["model"]


@pytest.mark.parametrize("kind", KINDS)
def test_status_with_a_lock(sextant, tmp_path, kind):
    make, status, strict = KINDS[kind]
    path = make(tmp_path / "it's a model")
    assert sextant("doctor", path, "--write-lock").returncode == status
    assert (path / "sextant.lock.json").exists() == (kind != "unreadable")
    assert sextant("doctor", path).returncode == status
    assert sextant("doctor", path, "--strict").returncode == strict


def test_seconds_include_opening(sextant, tmp_path):
    """Of a header of 60,000 tensors without a byte, opening is most of the work and of the time."""
    header = json.dumps({f"t.{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(60_000)}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    start = time.monotonic()
    summary = sextant.json("doctor", path, "--quick")["summary"]
    wall = time.monotonic() - start
    assert summary["tensors"] == 60_000 and 0.5 * wall < summary["seconds"] < wall


def test_a_checkpoint_that_cannot_be_read_has_no_word_of_an_engine(sextant, tmp_path):
    # Not even that nothing keeps the engine from reading it.
    path = unreadable(tmp_path / "m")
    done = sextant("doctor", path, "--engine", "vllm", "--html", tmp_path / "page.html")
    assert done.returncode == 3 and "vllm" not in done.stdout and "vllm" not in Page(tmp_path / "page.html").text
    assert "engine" not in sextant.json("doctor", path, "--engine", "vllm", status=3)


FILES = {
    "empty file": lambda p: p.write_bytes(b""),
    "FIFO": os.mkfifo,
    "directory": lambda p: p.mkdir(),
    "link to itself": lambda p: p.symlink_to(p.name),
    "link to nothing": lambda p: p.symlink_to("nothing"),
    "device": lambda p: p.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "sextant.lock.json", "generation_config.json"])
@pytest.mark.parametrize("kind", FILES)
def test_what_stands_in_the_place_of_a_file(sextant, tmp_path, name, kind):
    path = healthy(tmp_path / "m")
    (path / name).unlink(missing_ok=True)
    FILES[kind](path / name)
    status = 2 if name == "sextant.lock.json" else 3
    document = sextant.json("doctor", path, status=status, timeout=20)
    finding, = [f for f in document["findings"] if f["severity"] == "error"]
    assert name in finding["message"] and finding["id"] == ("F5" if status == 2 else "F3")
    # As a reference there is nothing to judge: an error.
    if status == 3:
        assert name in sextant.fails(3, "doctor", GOLDEN / NVFP4, "--against", path, timeout=20)


def test_directories_in_a_loop(sextant, tmp_path):
    path = healthy(tmp_path / "m")
    (path / "again").symlink_to(".")
    assert sextant("doctor", path, timeout=20).returncode == 0
    assert sextant("doctor", path / "again/again/again", timeout=20).returncode == 0
    (tmp_path / "loop").symlink_to("loop")
    for arguments in ([tmp_path / "loop"], [path, "--against", tmp_path / "loop"], [path, "--html", tmp_path / "loop"]):
        assert "loop" in sextant.fails(3, "doctor", *arguments, timeout=20)


def without_override(*arguments):
    """Root, too, is held to the permissions."""
    prefix = []
    if os.getuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root, and no setpriv")
        prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override,-dac_read_search"]
    return subprocess.run([*prefix, str(BIN), *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment())


def test_a_directory_that_may_not_be_written(tmp_path):
    path = healthy(tmp_path / "m")
    path.chmod(0o555)
    try:
        assert without_override("doctor", path).returncode == 0
        done = without_override("doctor", path, "--write-lock")
        assert done.returncode == 3 and "must be writable" in done.stderr and done.stderr.count("\n") == 1
        done = without_override("doctor", path, "--html", path / "page.html")
        assert done.returncode == 3 and "cannot write the output file" in done.stderr
    finally:
        path.chmod(0o755)
    (path / "config.json").chmod(0)
    done = without_override("doctor", path)
    assert done.returncode == 3 and "Permission denied" in done.stdout


def test_html_into_a_fifo_and_a_full_device(sextant, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "fifo").read_text()))
    reader.start()
    assert sextant("doctor", GOLDEN / NVFP4, "--html", tmp_path / "fifo").returncode == 0
    reader.join(20)
    assert read[0].startswith("<!DOCTYPE html>") and (tmp_path / "fifo").is_fifo()
    assert "No space left" in sextant("doctor", GOLDEN / NVFP4, "--html", "/dev/full").stderr
    assert "with -o" not in sextant.fails(3, "doctor", GOLDEN / NVFP4, "--html", tmp_path)


# ------------------------------------------------------------------ an empty value

@pytest.mark.parametrize("arguments", [
    ["doctor", "M", "--html", ""], ["doctor", "M", "--against", ""], ["doctor", "M", "-o", ""], ["doctor", "M", "--output", ""],
    ["doctor", ""], ["run", ""], ["run", "M", "--ids", ""], ["eval", "M", "--text", ""], ["eval", "M", "--ids", ""],
    ["eval", "M", "--text", "t", "--against", ""], ["compare", "M", "--dump", ""], ["compare", "M", "--dump", "M", "--dump-name", ""],
    ["inspect", "M", "--tensor", ""], ["inspect", ""], ["quantize", "M", ""], ["quantize", "", "OUT"], ["quantize", "M", "OUT", "--keep", ""],
    ["quantize", "M", "OUT", "--recipe", ""], ["quantize", "M", "OUT", "--calibration", ""], ["quantize", "M", "OUT", "--max-memory", ""],
    ["tokenize", "M", "--chat", ""], ["tokenize", "", "Hi"], ["bench", ""], ["run", "M", "Hi", "--policy", ""], ["run", "M", "Hi", "--isa", ""],
    ["doctor", "M", "--allow", ""], ["explain", ""], ["explain", "3", "--layer", ""], ["-o", "", "version"],
    ["doctor", "M", "--html="], ["doctor", "M", "--html=", "--strict"], ["doctor", "--html=", "M"],
])
def test_an_empty_value_is_wrong_usage_and_not_passed_over(sextant, tmp_path, arguments):
    values = {"M": str(GOLDEN / NVFP4), "OUT": str(tmp_path / "out")}
    line = sextant.fails(64, *[values.get(a, a) for a in arguments])
    assert "expected a value" in line
    assert os.listdir(tmp_path) == []


def test_an_empty_text_is_a_text(sextant, talker):
    assert sextant.json("tokenize", talker, "")["ids"] == []
    assert sextant("run", talker, "Hi", "--system", "", "--max-tokens", "1").returncode == 0


# ------------------------------------------------------------------ the lock

def lock_of(path):
    return json.loads((path / "sextant.lock.json").read_text())


def locked(sextant, path, **members):
    """Locked, then with other members of the lock (None: without)."""
    sextant("doctor", path, "--write-lock")
    lock = {**lock_of(path), **members}
    (path / "sextant.lock.json").write_text(json.dumps({k: v for k, v in lock.items() if v is not None}))
    return path


def at_load(sextant, tmp_path, path, status=0):
    """The warnings of a load, which goes on."""
    (tmp_path / "ids").write_text("1 2 3")
    done = sextant("run", path, "--ids", tmp_path / "ids", "--max-tokens", "2", timeout=20)
    assert done.returncode == status, done.stderr
    return [line.removeprefix("sextant: warning: ") for line in done.stderr.splitlines() if "warning: " in line]


def test_a_lock_holds_hashes_verdict_and_findings(sextant, tmp_path):
    path = locked(sextant, warned(tmp_path / "m"))
    lock = lock_of(path)
    assert (lock["format"], lock["verdict"]) == (1, "warnings")
    assert {"id": "F1", "slug": "total-size", "severity": "warning", "count": 1} in lock["findings"]
    for file in lock["files"]:
        data = (path / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert "F5" not in str(sextant.json("doctor", path)) and "F7" not in str(sextant.json("doctor", path))
    assert not any("lock" in line for line in at_load(sextant, tmp_path, path))


BAD_LOCKS = {
    "format of a later version": (dict(format=2, version="9.1"), ["format 2", "'9.1'", "reads format 1"]),
    "format of no version": (dict(format=7, version=None), ["format 7", "no known version"]),
    "no format": (dict(format=None), ["is no lock", "format"]),
    "format as text": (dict(format="1"), ["is no lock", "format", "a string"]),
    "no version": (dict(version=None), ["is no lock", "version"]),
    "no verdict": (dict(verdict=None), ["is no lock", "verdict"]),
    "no files": (dict(files=None), ["is no lock", "files"]),
    "no file": (dict(files=[]), ["is no lock", "files"]),
    "a file that is a number": (dict(files=[1]), ["is no lock", "sha256"]),
    "no findings": (dict(findings=None), ["is no lock", "findings"]),
    "a finding without id": (dict(findings=[{"slug": "x"}]), ["is no lock", "finding"]),
}


@pytest.mark.parametrize("kind", BAD_LOCKS)
def test_a_lock_that_is_none_is_said_and_the_load_goes_on(sextant, tmp_path, kind):
    members, words = BAD_LOCKS[kind]
    path = locked(sextant, healthy(tmp_path / "m"), **members)
    line, = at_load(sextant, tmp_path, path)
    finding, = [f for f in sextant.json("doctor", path, status=2)["findings"] if f["severity"] == "error"]
    assert finding["id"] == "F5" and finding["message"] in line
    for word in ["sextant.lock.json", *words]:
        assert word in line


@pytest.mark.parametrize("text", ["", "{", "no json", "[1, 2]", "\x00\xff", '{"format": 1, "files": [{"name'])
def test_a_lock_that_is_no_json_or_truncated(sextant, tmp_path, text):
    path = locked(sextant, healthy(tmp_path / "m"))
    (path / "sextant.lock.json").write_text(text)
    line, = at_load(sextant, tmp_path, path)
    assert "sextant.lock.json is no lock" in line and not CONTROLS & set(line)
    assert sextant("doctor", path).returncode == 2
    assert sextant("doctor", path, "--allow", "F5").returncode == 0


def test_a_lock_of_another_model(sextant, tmp_path):
    path = locked(sextant, healthy(tmp_path / "m"))
    other = healthy(tmp_path / "other", "llama3")
    shutil.copy(path / "sextant.lock.json", other)
    line, = at_load(sextant, tmp_path, other)
    assert "of another model" in line and "none of the" in line
    finding, = [f for f in sextant.json("doctor", other, status=2)["findings"] if f["id"] == "F5"]
    assert finding["message"] in line and finding["count"] == 1


def test_files_that_changed_since_the_lock(sextant, tmp_path):
    path = locked(sextant, healthy(tmp_path / "m"))
    (path / "generation_config.json").write_text('{"temperature": 0.5}')
    line, = at_load(sextant, tmp_path, path)
    assert "'generation_config.json'" in line


def test_findings_other_than_those_of_the_lock_are_named(sextant, tmp_path):
    path = locked(sextant, healthy(tmp_path / "n"), findings=[
        {"id": "C6", "slug": "saturated-scales", "severity": "warning", "count": 3}], verdict="warnings", version="0.0.9")
    note, = [f for f in sextant.json("doctor", path)["findings"] if f["id"] == "F7"]
    for words in ["'warnings'", "'0.0.9'", "found then and not now: warning C6 saturated-scales (3)"]:
        assert words in note["message"]
    path = locked(sextant, warned(tmp_path / "w"), findings=[], verdict="healthy")
    note, = [f for f in sextant.json("doctor", path)["findings"] if f["id"] == "F7"]
    assert "found now and not then: warning F1 total-size" in note["message"]


def test_errors_of_the_lock_are_said_at_a_load(sextant, tmp_path):
    # A load reads no tensor to the end; doctor did, and remembers.
    path = locked(sextant, healthy(tmp_path / "m"), verdict="errors", findings=[
        {"id": "C4", "slug": "lost-blocks", "severity": "error", "count": 2}, {"id": "C6", "slug": "saturated-scales", "severity": "warning", "count": 1}])
    line, = at_load(sextant, tmp_path, path)
    assert "F7" in line and "error C4 lost-blocks (2)" in line and "C6" not in line
    (tmp_path / "ids").write_text("1 2")
    done = sextant("run", path, "--ids", tmp_path / "ids", "--max-tokens", "1", "--allow", "C4")
    assert done.returncode == 0 and "F7" not in done.stderr


# ------------------------------------------------------------------ what is said

@pytest.mark.parametrize("options", [[], ["-v"]])
@pytest.mark.parametrize("make", [broken, inverted])
def test_a_refused_load_says_its_sentence_once(sextant, tmp_path, make, options):
    path = make(tmp_path / "m")
    message = sextant.json("doctor", path, status=2)["findings"][0]["message"]
    (tmp_path / "ids").write_text("1 2 3")
    done = sextant("run", path, "--ids", tmp_path / "ids", *options)
    assert done.returncode == 2 and done.stderr.count(message) == 1, done.stderr
    assert done.stdout == "" and done.stderr.splitlines()[0 if not options else -1].startswith("sextant: error: " if not options else "  code:")


def test_a_load_refused_by_two_errors_names_the_other_with_v(sextant, tmp_path):
    path = broken(tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"]["quant_algo"] = "NVFP4_FUTURE"
    (path / "config.json").write_text(json.dumps(config))
    (path / "hf_quant_config.json").unlink(missing_ok=True)
    errors = [f["message"] for f in sextant.json("doctor", path, status=2)["findings"] if f["severity"] == "error"]
    (tmp_path / "ids").write_text("1 2 3")
    loud = sextant("run", path, "--ids", tmp_path / "ids", "-v").stderr
    assert len(errors) > 1 and [loud.count(message) for message in errors] == [1] * len(errors), loud
    assert "more kinds of error" in sextant.fails(2, "run", path, "--ids", tmp_path / "ids")


def test_what_a_terminal_would_obey_is_shown(sextant):
    line = sextant.fails(3, "doctor", "a\u0085b\u009bc\u202ed\u2066e\u200ef\u061cg\x1b[2Jh\ni")
    assert "a\\u{85}b\\u{9b}c\\u{202e}d\\u{2066}e\\u{200e}f\\u{61c}g\\x1b[2Jh i" in line


HEALTHY = sorted(path.parent.name for path in GOLDEN.glob("*/config.json"))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_report_fits_a_screen_and_begins_with_the_verdict(sextant, name):
    running = sextant.start("doctor", name, cwd=GOLDEN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = running.communicate(timeout=60)[0].splitlines()
    if running.returncode == 0 and lines[0].startswith("verdict     healthy"):
        assert len(lines) <= 24 and max(map(len, lines)) <= 100, lines
    else:
        assert lines[0].startswith("verdict     ")


def test_details_come_with_v(sextant, tmp_path):
    path = broken(tmp_path / "m")
    short, long = sextant("doctor", path).stdout, sextant("doctor", path, "-v").stdout
    assert short.splitlines()[0].startswith("verdict     errors") == long.splitlines()[0].startswith("verdict     errors") is True
    for words in ["speaks when:", "model.safetensors, byte ", f"- {DOWN}weight_scale_2", "dialect: ", "scales: ", "not judged: "]:
        assert words in long and words not in short
    assert "(-v)" in short and "(-v)" not in long


def test_the_page_shows_the_engine_and_the_reference(sextant, tmp_path):
    document = sextant.json("doctor", GOLDEN / OWN, "--engine", "vllm", "--against", GOLDEN / OWN, "--html", tmp_path / "page.html")
    text = Page(tmp_path / "page.html").text
    assert "What vllm would do" in text and document["engine"]
    for prediction in document["engine"]:
        for member in ("effect", "symptom", "message", "source"):
            assert prediction[member] in text
    assert "Against the reference" in text and "1.00000" in text
    for row in document["against"]["tensors"][:50]:
        assert row["module"] in text
    plain = sextant("doctor", GOLDEN / OWN, "--html", tmp_path / "plain.html")
    assert plain.returncode == 0 and "would do" not in Page(tmp_path / "plain.html").text
