"""The activation quantizer's signal to noise against the table of docs/nvfp4.md 4.1, on the samples the table was computed from."""
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BIN, ROOT

BENCH = BIN.parent / "bench" / "quantizer_snr"
COLUMNS = ["gauss", "laplace", "t4", "outch", "swiglu"]


def expected():
    """{log2 r: five figures}; "-1 ... -7" stands for all between, "<= -19" for what is below."""
    rows = {}
    for line in (ROOT / "docs/nvfp4.md").read_text().split("### 4.1")[1].split("### 4.2")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.match(r"^(-|<= -)?[0-9]", cells[0]) and len(cells) == 8:
            figures = [float(cell) for cell in cells[1:6]]
            keys = {"-1 ... -7": [-1, -4, -7], "<= -19": [-19, -20, -22]}.get(cells[0]) or [float(cells[0])]
            rows |= {float(key): figures for key in keys}
    return rows


@pytest.mark.skipif(not BENCH.exists(), reason="built without benchmarks")
@pytest.mark.parametrize("quantizer", ["A", "B", "C"])
def test_snr_is_that_of_the_table(tmp_path, quantizer):
    subprocess.run([sys.executable, ROOT / "tools/golden/nvfp4_snr.py", "data", tmp_path], check=True)
    lines = subprocess.run([BENCH, tmp_path, quantizer], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[0].split()[2:] == COLUMNS
    found = {float(row[0]): [float(cell) for cell in row[1:]] for row in (line.split() for line in lines[1:])}
    table = expected()
    assert len(table) >= 25 and set(table) <= set(found)
    worst = max((abs(a - b), ratio) for ratio, row in table.items() for a, b in zip(row, found[ratio]))
    assert worst[0] <= 0.1, worst
