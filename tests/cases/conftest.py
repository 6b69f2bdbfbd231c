"""The program as these tests call it, and their options.

$SEXTANT_BIN is the program (default build/test/sextant), $SEXTANT_GOLDEN the golden data (default tests/golden).
"""
import json
import os
import pathlib
import subprocess

import pytest

from .report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SEXTANT_BIN", ROOT / "build/test/sextant")).resolve()


def pytest_addoption(parser):
    parser.addoption("--plants", type=int, default=300, help="how many faults to plant (default 300)")
    parser.addoption("--compare-plants", type=int, default=100, help="how many faults to plant for compare (default 100)")
    parser.addoption("--trace-plants", type=int, default=200, help="how many faults to plant for trace (default 200)")


class Program:
    def __init__(self, home):
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SEXTANT_")} | {"SEXTANT_HOME": str(home)}

    def __call__(self, *arguments, timeout=120, **options):
        return subprocess.run([str(BIN), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=self.environment,
                              stdin=subprocess.DEVNULL, **options)

    def json(self, *arguments, status=0):
        done = self(*arguments, "--json")
        assert done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr)
        return json.loads(done.stdout)

    def doctor(self, model, *options, **run):
        done = self("doctor", model, "--json", *options, **run)
        return Report(done, strict="--strict" in options)

    def refused(self, *arguments):
        """(status, text of the one error line), nothing on standard output."""
        done = self(*arguments)
        lines = [line for line in done.stderr.splitlines() if line.startswith("sextant: error: ")]
        assert done.returncode != 0 and done.stdout == "" and len(lines) == 1, (done.returncode, done.stdout, done.stderr)
        return done.returncode, lines[0].removeprefix("sextant: error: ")

    def first(self, model, name, n=2):
        """The first values of a tensor or, dequantized, of a linear."""
        return self.json("inspect", model, "--tensor", name, "--first", n)["first"]

    def linears(self, model, status=0):
        return {linear["module"]: linear for linear in self.json("inspect", model, status=status)["linears"]}

    def has_option(self, command, option):
        return option in self("help", command).stdout.replace(",", " ").split()


@pytest.fixture(scope="session")
def sextant(tmp_path_factory):
    assert BIN.exists(), f"{BIN} is missing: build it (./test does), or set SEXTANT_BIN"
    return Program(tmp_path_factory.mktemp("home"))


def pytest_terminal_summary(terminalreporter):
    """What became of the planted faults, by kind, over all tests (and all processes that ran them)."""
    for name, title in (("plants", "planted faults"), ("traced plants", "planted faults, traced"),
                        ("compared plants", "planted faults, compared with the original")):
        summarize_plants(terminalreporter, name, title)


def summarize_plants(terminalreporter, wanted, title):
    columns, total = [], {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", []):
                if name == wanted and getattr(report, "when", "") == "call":
                    columns = value["columns"]
                    for kind, row in value["kinds"].items():
                        seen = total.setdefault(kind, [0] * len(columns))
                        total[kind] = [a + b for a, b in zip(seen, row)]
    if not total:
        return
    terminalreporter.section(title)
    total["all"] = [sum(column) for column in zip(*total.values())]
    terminalreporter.write_line(f"{'':24}" + "".join(f"{column:>15}" for column in columns))
    for kind, row in total.items():
        terminalreporter.write_line(f"{kind:24}" + "".join(f"{n or '.':>15}" for n in row))
