"""sextant run: answers, standard input, JSON lines, signals, and the chat on a pseudo-terminal."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from conftest import BIN, Safetensors, environment


def lines_of(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize("name", ["llama3", "llama2", "mistral", "qwen2", "modelopt-llama3-separate", "fp8-block-llama",
                                  "qwen3-moe", "qwen3-moe-mixed", "modelopt-qwen3-moe"])
@pytest.mark.parametrize("threads", [1, 2])
def test_greedy_ids_are_those_of_the_dump(sextant, golden, tmp_path, name, threads):
    dump = Safetensors(golden / name / "dump.safetensors")
    (_, n_tokens), ids = dump.values("input_ids")
    (n_seqs, n_greedy), greedy = dump.values("greedy_ids")
    for s in range(n_seqs):
        prompt = tmp_path / f"{s}.json"
        prompt.write_text(json.dumps(ids[s * n_tokens:(s + 1) * n_tokens]))
        args = ["run", golden / name, "--ids", prompt, "--temperature", "0", "--policy", "f32",
                "--max-tokens", n_greedy, "-j", threads]
        done = lines_of(sextant(*args, "--json"))[-1]
        assert done["ids"] == list(greedy[s * n_greedy:(s + 1) * n_greedy])
        assert done["finish_reason"] == "length"
        assert done["usage"] == {"prompt_tokens": n_tokens, "completion_tokens": n_greedy,
                                 "total_tokens": n_tokens + n_greedy}
        # Without a tokenizer standard output has the ids.
        assert sextant(*args).stdout.split() == [str(i) for i in done["ids"]]


def test_json_lines(sextant, talker):
    args = ["run", talker, "Hello", "--max-tokens", "40", "--seed", "3", "--ignore-eos", "--json"]
    lines = lines_of(sextant(*args))
    tokens, done = lines[:-1], lines[-1]
    assert done["type"] == "done" and all(line["type"] == "token" for line in tokens)
    assert "".join(line["text"] for line in tokens) == done["text"]
    assert [line["id"] for line in tokens if "id" in line] == done["ids"] and len(done["ids"]) == 40
    assert done["seed"] == 3 and done["timings"]["machine_read_bytes_per_s"] > 0
    # C121: the tokenizer has 259 ids, the embedding more; none of those is ever sampled.
    assert all(i < 259 for i in done["ids"])
    # The same text on a pipe, with one line end; a seed reproduces.
    plain = sextant(*args[:-1])
    assert plain.stdout == done["text"] + ("" if done["text"].endswith("\n") else "\n")
    assert lines_of(sextant(*args))[-1]["ids"] == done["ids"]
    other = lines_of(sextant("run", talker, "Hello", "--max-tokens", "40", "--seed", "4", "--ignore-eos", "--json"))[-1]
    assert other["ids"] != done["ids"]


def test_the_closing_line_is_on_standard_error(sextant, talker):
    done = sextant("run", talker, "Hello", "--max-tokens", "8", "--ignore-eos", "--temperature", "0")
    assert re.search(r"8 tokens at [\d.]+ tokens/s; .* reading .*/s of weights, \d+ % of the .*/s that this machine", done.stderr)
    assert sextant("run", talker, "Hello", "--max-tokens", "8", "-q").stderr == ""


def test_prompt_from_standard_input(sextant, talker):
    args = ["--max-tokens", "8", "--temperature", "0", "--json"]
    expected = lines_of(sextant("run", talker, "Hello there", *args))[-1]
    assert lines_of(sextant("run", talker, *args, stdin="Hello there\n"))[-1]["ids"] == expected["ids"]
    raw = lines_of(sextant("run", talker, "Hello there", "--raw", *args))[-1]
    assert raw["usage"]["prompt_tokens"] == len("Hello there")
    system = lines_of(sextant("run", talker, "Hello there", "--system", "Be brief", *args))[-1]
    assert system["usage"]["prompt_tokens"] > expected["usage"]["prompt_tokens"]
    sextant.fails(64, "run", talker, stdin="")


def test_stop_strings(sextant, talker):
    args = ["run", talker, "Hello", "--max-tokens", "60", "--seed", "5", "--ignore-eos", "--json"]
    text = lines_of(sextant(*args))[-1]["text"]
    stop = next(text[i:i + 2] for i in range(10, len(text) - 2) if text[i:i + 2].isascii() and "\ufffd" not in text[i:i + 2])
    lines = lines_of(sextant(*args, "--stop", stop, "--stop", "never to be seen"))
    assert lines[-1]["text"] == text[:text.index(stop)] and lines[-1]["finish_reason"] == "stop"
    assert "".join(line["text"] for line in lines[:-1]) == lines[-1]["text"]


def test_warmup_changes_nothing(sextant, talker):
    args = ["run", talker, "Hello", "--max-tokens", "10", "--temperature", "0", "--json"]
    assert lines_of(sextant(*args))[-1]["ids"] == lines_of(sextant(*args, "--warmup"))[-1]["ids"]


def test_bad_prompts(sextant, golden, talker, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("1 2 999999")
    assert "999999" in sextant.fails(3, "run", golden / "llama3", "--ids", ids)
    ids.write_text("1 two 3")
    assert "two" in sextant.fails(3, "run", golden / "llama3", "--ids", ids)
    ids.write_text("")
    sextant.fails(3, "run", golden / "llama3", "--ids", ids)
    ids.write_text("1 " * 5000)
    assert "maximum context length" in sextant.fails(3, "run", golden / "llama3", "--ids", ids)
    assert "tokenizer.json" in sextant.fails(3, "run", golden / "llama3", "hi")
    sextant.fails(64, "run", golden / "llama3", "hi", "--ids", ids)
    sextant.fails(64, "run", talker, "hi", "--context", "5000")
    sextant.fails(64, "run", talker, "hi", "--policy", "nothing.like.this=f32")
    sextant.fails(4, "run", talker, "hi", "--isa", "sse9")
    # Errors of run are a line of JSON, as its results are.
    done = sextant("run", talker, "hi", "--isa", "sse9", "--json")
    assert len(done.stdout.splitlines()) == 1 and json.loads(done.stdout)["error"]["status"] == 4


@pytest.mark.parametrize("number,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_during_an_answer(sextant, talker, number, status):
    child = sextant.start("run", talker, "Hello", "--ignore-eos", "-j", "1", "--isa", "ref", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert child.stdout.read(1)
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    assert child.returncode == status and err.decode().count("sextant: error: ") == 1


@pytest.mark.parametrize("number,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_while_reading(sextant, talker, number, status):
    for args in (["run", talker], ["tokenize", talker, "--jsonl"]):
        child = sextant.start(*args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.7)
        child.send_signal(number)
        child.communicate(timeout=30)
        assert child.returncode == status


def test_broken_pipe(talker):
    script = f'"{BIN}" run "{talker}" Hello --ignore-eos | head -c 1 >/dev/null; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=environment())
    assert done.stdout == "0\n" and "error" not in done.stderr


class Terminal:
    """The program on a pseudo-terminal, as a person has it."""

    def __init__(self, *args, term="xterm"):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BIN, [str(BIN), *map(str, args)], environment(TERM=term))

    def expect(self, pattern, timeout=30):
        """Waits for new output to match; what came up to the match."""
        deadline = time.monotonic() + timeout
        while True:
            match = re.search(pattern, self.text)
            if match:
                before, self.text = self.text[:match.end()], self.text[match.end():]
                return before
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:
                    data = b""
                assert data or re.search(pattern, self.text), f"ended without {pattern!r}: {self.text!r}"
                self.text += data.decode(errors="replace")

    def type(self, text):
        os.write(self.fd, text.encode())

    def status(self, timeout=30):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("still running")


PROMPT = r"> \x1b\[K$|\r> \x1b\[K"
SHORT = ["--max-tokens", "6", "--ignore-eos", "--temperature", "0"]


def test_chat_keeps_the_conversation_and_leaves_by_ctrl_d(talker):
    terminal = Terminal("run", talker, *SHORT)
    terminal.expect(PROMPT)
    for question in ["Hello", "And now?"]:
        terminal.type(question + "\r")
        terminal.expect(r"\[6 tokens, [\d.]+ tokens/s, the limit was reached\]")
        terminal.expect(PROMPT)
    terminal.type("\x04")
    # Twelve tokens in all. The second turn prefills the last token of the answer, which was never fed, the end of
    # that turn (<|im_end|> and a line end) and what is new; nothing else again.
    closing = terminal.expect(r"12 tokens at .*prompt of (\d+) tokens")
    n = int(re.search(r"prompt of (\d+) tokens", closing).group(1))
    turn = [1 + len(f"user\n{text}") + 1 + 1 + 1 + len("assistant\n") for text in ("Hello", "And now?")]
    assert n == turn[0] + 3 + turn[1]
    assert terminal.status() == 0


def test_chat_commands_and_editing(talker):
    terminal = Terminal("run", talker, *SHORT)
    terminal.expect(PROMPT)
    terminal.type("/help\r")
    terminal.expect("/reset")
    terminal.expect(PROMPT)
    # Left twice, an insertion, Home, a deletion: "Helxlo" without its first letter.
    terminal.type("Hello\x1b[D\x1b[Dx\x1b[H\x1b[3~")
    terminal.expect("elxlo")
    terminal.type("\r")
    terminal.expect("tokens/s")
    terminal.expect(PROMPT)
    terminal.type("\x1b[A")  # the history
    terminal.expect("elxlo")
    terminal.type("\x15/reset\r")
    terminal.expect("forgotten")
    terminal.expect(PROMPT)
    terminal.type("/exit\r")
    assert terminal.status() == 0


def test_ctrl_c_stops_the_answer_only(talker):
    terminal = Terminal("run", talker, "--ignore-eos", "--isa", "ref", "-j", "1")
    terminal.expect(PROMPT)
    terminal.type("Hello\r")
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.expect(r"tokens/s, stopped\]")
    terminal.expect(PROMPT)
    terminal.type("\x03")
    terminal.expect("Ctrl-C again")
    terminal.expect(PROMPT)
    terminal.type("\x03")
    assert terminal.status() == 130


def test_chat_on_a_dumb_terminal(talker):
    terminal = Terminal("run", talker, *SHORT, term="dumb")
    terminal.expect("> ")
    terminal.type("Hello\n")
    terminal.expect("tokens/s")
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_a_killed_chat_gives_the_terminal_back(talker):
    import termios
    terminal = Terminal("run", talker, *SHORT)
    before = termios.tcgetattr(terminal.fd)
    terminal.expect(PROMPT)
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.status() == 143
    assert termios.tcgetattr(terminal.fd)[3] == before[3]
