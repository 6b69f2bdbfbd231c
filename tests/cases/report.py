"""What `sextant doctor MODEL --json` answers, held to its contract (docs/cli.md), and the comparison with what a test expects."""
import json
import math
import pathlib

import jsonschema

STATUS = {"healthy": 0, "warnings": 0, "errors": 2, "unreadable": 3}
SEVERITIES = ("error", "warning", "note")
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((pathlib.Path(__file__).parents[2] / "docs" / "doctor.schema.json").read_text()))
MEMBERS = {"id", "slug", "severity", "message", "remedy", "tensor", "layer", "expert", "index", "offset", "value", "expected", "count"}


def number(value):
    """NaN and infinities are the strings nan, inf and -inf."""
    return float(value) if value in ("nan", "inf", "-inf") else value


class Expected:
    def __init__(self, severity, id, slug=None, says=(), **members):
        self.severity, self.id, self.slug, self.members = severity, id, slug, members
        self.says = [says] if isinstance(says, str) else says

    def __repr__(self):
        return f"{self.severity} {self.id} {self.slug or ''} {self.members} {self.says or ''}"

    def differences(self, finding):
        """What of one finding is not as expected; None where it is another kind of finding."""
        if (finding["id"], finding["severity"]) != (self.id, self.severity) or self.slug not in (None, finding["slug"]):
            return None
        wrong = [f"says no {words!r}: {finding['message']}" for words in self.says if words not in finding["message"]]
        for name, want in self.members.items():
            got = number(finding[name])
            if isinstance(want, float):
                same = isinstance(got, (int, float)) and (math.isnan(got) and math.isnan(want) or math.isclose(got, want, rel_tol=1e-5))
            else:
                same = got == want
            if not same:
                wrong.append(f"{name} is {got!r}, expected {want!r}")
        return wrong


def error(id, slug=None, **members):
    return Expected("error", id, slug, **members)


def warning(id, slug=None, **members):
    return Expected("warning", id, slug, **members)


def note(id, slug=None, **members):
    return Expected("note", id, slug, **members)


class Report:
    def __init__(self, done, strict=False):
        assert done.returncode in (0, 1, 2, 3), (done.returncode, done.stdout[-2000:], done.stderr)
        self.status, self.document = done.returncode, json.loads(done.stdout)
        wrong = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in SCHEMA.iter_errors(self.document)]
        assert not wrong, wrong
        self.verdict, self.findings = self.document["verdict"], self.document["findings"]
        for finding in self.findings:
            assert MEMBERS <= set(finding) and finding["severity"] in SEVERITIES and finding["count"] >= 1, finding
            assert finding["message"] and "\n" not in finding["message"], finding
        severities = {finding["severity"] for finding in self.findings}
        if self.verdict != "unreadable":
            expected = "errors" if "error" in severities else "warnings" if "warning" in severities else "healthy"
            assert self.verdict == expected, (self.verdict, self.findings)
        status = 1 if strict and self.verdict == "warnings" else STATUS[self.verdict]
        assert self.status == status, (self.status, self.verdict)

    @property
    def dialect(self):
        return self.document["dialect"]["name"]

    def of(self, *severities):
        return [finding for finding in self.findings if finding["severity"] in severities]

    def lines(self):
        return [f"{f['severity']} {f['id']} {f['slug']} {f['tensor']}: {f['message']}" for f in self.findings]

    def holds(self, *expected):
        """Every expected finding is there, and no error or warning besides."""
        text = "\n".join(["", *self.lines()])
        left = self.of("error", "warning")
        for want in expected:
            tried = [(want.differences(finding), finding) for finding in self.findings]
            found = next((finding for wrong, finding in tried if wrong == []), None)
            assert found is not None, f"expected {want}; nearest: {[wrong for wrong, _ in tried if wrong]}; found:{text}"
            if found in left:
                left.remove(found)
        assert not left, f"not expected: {[(f['id'], f['slug']) for f in left]}; found:{text}"
        return self

    def unreadable(self, *says):
        """The checkpoint could not be opened: one finding F3."""
        assert (self.verdict, self.status) == ("unreadable", 3), (self.verdict, self.status, self.lines())
        assert [(f["id"], f["slug"], f["severity"]) for f in self.findings] == [("F3", "unreadable", "error")], self.lines()
        for words in says:
            assert words.lower() in self.findings[0]["message"].lower(), (words, self.findings[0]["message"])
        return self
