"""Checkpoints made byte by byte and what the program says about each: cases from practice, healthy models, planted faults.

A package, so that its conftest and that of tests/cli can be run together. numpy only, and no code of the program or of a safetensors
library: an error here and an error there would have to be the same twice.
"""
