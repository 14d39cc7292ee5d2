"""Fuzzing: mutated inputs for every decoder and loader; `python -m tests.fuzz` runs it for hours."""
