"""What the tests of the real model share: where things are.

$SEXTANT_BIN is the program (default build/test/sextant), $SEXTANT_GOLDEN holds smollm2/ (default tests/golden).
"""
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN") or ROOT / "tests" / "golden") / "smollm2"
PROGRAM = os.environ.get("SEXTANT_BIN", str(ROOT / "build" / "test" / "sextant"))
PROMPTS = json.loads((GOLDEN / "prompts.json").read_text(encoding="utf-8"))
