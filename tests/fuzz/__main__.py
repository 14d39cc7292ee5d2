"""`python -m tests.fuzz --inputs 2000000`: mutated inputs for every decoder and loader.

What fails is kept in tests/fuzz/corpus, where the tests try it ever after; figures go to a file. Exit code 1
tells that something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.fuzz.run import Outcome, fuzz, keep
from tests.fuzz.targets import CORPUS


def main() -> int:
    """Run, print figures, keep what failed."""
    parser = argparse.ArgumentParser(description="Fuzz every decoder and loader.")
    parser.add_argument("--inputs", type=int, default=2_000_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose name holds this")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    parser.add_argument("--keep", type=Path, default=CORPUS, help="a folder for inputs that failed")
    given = parser.parse_args()
    began = time.monotonic()

    def tell(outcome: Outcome) -> None:
        last = f"; the last: {outcome.failures[-1][:2]}" if outcome.failures else ""
        sys.stderr.write(f"{outcome.inputs:,} inputs, {len(outcome.failures)} failures{last}\n")

    outcome = fuzz(given.inputs, given.seed, only=given.only, tell=tell)
    figures = {"seed": given.seed, "seconds": round(time.monotonic() - began), **outcome.to_dict()}
    if given.out is not None:
        given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for path, (target, why, _) in zip(keep(outcome, given.keep), outcome.failures, strict=True):
        sys.stdout.write(f"{target}: {why}\n  {path}\n")
    shown = {name: value for name, value in figures.items() if name not in {"by_target", "failures"}}
    sys.stdout.write(json.dumps(shown) + "\n")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
