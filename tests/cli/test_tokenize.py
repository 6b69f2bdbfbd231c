"""sextant tokenize over the golden tokenizers and templates."""
import json
import pathlib
import subprocess

import pytest
from conftest import BIN, GOLDEN, environment

TOKENIZERS = sorted(p.parent.name for p in GOLDEN.glob("tokenizers/*/cases.json"))


def lines(sextant, args, objects):
    stdin = "".join(json.dumps(o) + "\n" for o in objects)
    done = sextant("tokenize", *args, "--jsonl", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_jsonl_equals_every_case(sextant, golden, name):
    path = golden / "tokenizers" / name / "tokenizer.json"
    cases = json.loads((path.parent / "cases.json").read_text())["encode"]
    plain = lines(sextant, [path], [{"text": c["text"]} for c in cases])
    special = lines(sextant, [path, "--special"], [{"text": c["text"]} for c in cases])
    decoded = lines(sextant, [path], [{"ids": c["ids"]} for c in cases])
    for case, a, b, c in zip(cases, plain, special, decoded, strict=True):
        assert a == {"ids": case["ids"]}
        assert b == {"ids": case.get("ids_special", case["ids"])}
        assert c == {"text": case.get("decoded", case["text"])}


def test_there_are_golden_tokenizers():
    assert len(TOKENIZERS) >= 8


def test_forms_of_one_answer(sextant, golden):
    path = golden / "tokenizers/gpt2/tokenizer.json"
    ids = sextant.json("tokenize", path, "Hello world")
    assert ids["count"] == len(ids["ids"]) == len(ids["pieces"])
    text = sextant("tokenize", path, "Hello world", "--ids").stdout
    assert list(map(int, text.split())) == ids["ids"]
    table = sextant("tokenize", path, "Hello world").stdout.splitlines()
    assert len(table) == 1 + ids["count"] and str(ids["ids"][0]) in table[1]
    assert sextant("tokenize", path, "--ids", stdin="Hello world").stdout == text
    assert sextant("tokenize", path, "--decode", text.strip()).stdout == "Hello world"
    assert sextant("tokenize", path, "--decode", stdin=json.dumps(ids["ids"])).stdout == "Hello world"
    assert sextant.json("tokenize", path, "--decode", text.strip())["text"] == "Hello world"
    assert sextant("tokenize", path.parent, "Hello world", "--ids").stdout == text


def test_bad_lines_are_answered_and_the_next_goes_on(sextant, golden):
    path = golden / "tokenizers/gpt2/tokenizer.json"
    stdin = '{"text": "a"}\nnonsense\n{}\n{"ids": [999999999]}\n{"ids": ["x"]}\n{"text": 5}\n\n{"text": "a"}'
    done = sextant("tokenize", path, "--jsonl", stdin=stdin)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert done.returncode == 0 and answers[0] == answers[-1] and len(answers) == 7
    for answer in answers[1:-1]:
        assert answer["error"]["code"] == "input" and answer["error"]["status"] == 3


@pytest.mark.parametrize("args", [["--decode", "1 two"], ["--decode", "-1"], ["--decode", "99999999"]])
def test_bad_ids(sextant, golden, args):
    sextant.fails(3, "tokenize", golden / "tokenizers/gpt2/tokenizer.json", *args)


def test_templates_through_jsonl(sextant, golden):
    """Every case of the golden templates that does not read the clock."""
    data = json.loads((golden / "templates/cases.json").read_text())
    by_template = {}
    for case in data["cases"]:
        by_template.setdefault(case["template"], []).append(case)
    n_equal = 0
    for name, cases in by_template.items():
        path = golden / "templates" / (name if name.endswith(".jinja") else name + ".jinja")
        if "strftime_now" in path.read_text():
            continue
        objects = []
        for case in cases:
            messages = data["conversations"][case["conversation"]]
            objects.append({**data["always"], "messages": messages,
                            "add_generation_prompt": case["add_generation_prompt"], **case["kwargs"]})
        for case, answer in zip(cases, lines(sextant, [path], objects), strict=True):
            if "output" in case and "text" in answer:
                assert answer["text"] == case["output"], (name, case["conversation"])
                n_equal += 1
            elif "output" in case:
                assert case.get("or_error"), (name, case["conversation"], answer)
            else:
                assert "error" in answer, (name, case["conversation"])
                if case["error"]["kind"] == "raise":
                    assert case["error"]["message"] in answer["error"]["message"]
    assert n_equal > 50


def test_chat_file(sextant, talker, tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "Hi"}]))
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert sextant("tokenize", talker, "--chat", chat).stdout == expected
    document = sextant.json("tokenize", talker, "--chat", chat)
    assert document["text"] == expected and document["ids"][0] == 1 and document["ids"].count(2) == 1
    assert sextant("tokenize", talker / "chat_template.jinja", "--chat", chat).stdout == expected
    chat.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False}))
    assert sextant("tokenize", talker, "--chat", "-", stdin=chat.read_text()).stdout == expected[:-22]
    sextant.fails(64, "tokenize", talker / "chat_template.jinja", "text")
    chat.write_text("{}")
    sextant.fails(3, "tokenize", talker, "--chat", chat)


def test_answers_come_line_by_line(golden):
    """A program on the other side of two pipes gets each answer before it asks again."""
    with subprocess.Popen([BIN, "tokenize", golden / "tokenizers/gpt2/tokenizer.json", "--jsonl"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as child:
        for _ in range(3):
            child.stdin.write('{"text": "Hello"}\n')
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["ids"]
        child.stdin.close()
        assert child.wait(20) == 0


def test_reader_that_leaves_ends_the_stream_quietly(golden, tmp_path):
    many = tmp_path / "many.jsonl"
    many.write_text('{"text": "Hello"}\n' * 50000)
    script = (f'"{BIN}" tokenize "{golden}/tokenizers/gpt2/tokenizer.json" --jsonl < "{many}" | head -n 1;'
              'echo "${PIPESTATUS[0]}"')
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=environment())
    assert done.stdout.endswith("\n0\n") and done.stderr == ""
