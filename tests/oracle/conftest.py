"""Before the package tokenizers is loaded: one thread a process, since pytest -n 2 has two of them and every other waits for the program."""
import os

os.environ.setdefault("RAYON_NUM_THREADS", "1")
