"""`python -m tests.fuzz --inputs 2000000`: mutated inputs for every decoder and loader.

What fails is kept in tests/fuzz/corpus at once, where the tests try it ever after. The inputs run in a child
process: an input that ends the process is kept as well. Figures go to a file, every ten thousand inputs. Exit
code 1 tells that something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.run import Kept, Outcome, fuzz
from tests.fuzz.targets import CORPUS


def main() -> int:
    """Run the inputs in a child process, and keep the input that ended it."""
    parser = argparse.ArgumentParser(description="Fuzz every decoder and loader.")
    parser.add_argument("--inputs", type=int, default=2_000_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="parts of names of targets, with commas")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    parser.add_argument("--keep", type=Path, default=CORPUS, help="a folder for inputs that failed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        kept = Kept(given.keep, Path(folder, "current"))
        child = os.fork()
        if child == 0:
            os._exit(run_inputs(given, kept))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code in {0, 1}:
            return code
        target, data = kept.read_current()
        why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        place = kept.fail(target, data) if target else "before the first input"
        sys.stdout.write(f"{target}: ended the process ({why})\n  {place}\n")
        return 1


def run_inputs(given: argparse.Namespace, kept: Kept) -> int:
    """Return 1 if inputs failed, after writing the figures."""
    began = time.monotonic()

    def write_figures(outcome: Outcome) -> None:
        last = f"; the last: {outcome.failures[-1][:2]}" if outcome.failures else ""
        sys.stderr.write(f"{outcome.inputs:,} inputs, {len(outcome.failures)} failures{last}\n")
        figures = {"seed": given.seed, "seconds": round(time.monotonic() - began), **outcome.to_dict()}
        if given.out is not None:
            given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

    outcome = fuzz(given.inputs, given.seed, only=given.only, kept=kept, tell=write_figures)
    write_figures(outcome)
    for target, why, data in outcome.failures:
        sys.stdout.write(f"{target}: {why}\n  {kept.fail(target, data)}\n")
    figures = {
        name: value for name, value in outcome.to_dict().items() if name not in {"by_target", "failures"}
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
