"""The real model, fetched once a run of the tests, and its NVFP4 form with each tensor's own global scale (as the golden data)."""
import os
import pathlib
import subprocess
import sys

import pytest

from smollm2 import PROGRAM, ROOT


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    out = os.environ.get("SEXTANT_SMOLLM2") or str(tmp_path_factory.mktemp("smollm2") / "bf16")
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "fetch_smollm2.py"), "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == out
    return pathlib.Path(out)


@pytest.fixture(scope="session")
def nvfp4(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("nvfp4") / "own"
    done = subprocess.run([PROGRAM, "quantize", str(source), str(out), "--global-scale", "own"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out
