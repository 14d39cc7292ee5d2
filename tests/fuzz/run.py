"""The run: inputs from a seed, one after the other, each within its time, memory and errors."""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from masquerade.core.errors import MasqueradeError
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import Target, targets
from tests.quick_files import quick_folder

MOST_SECONDS = 2.0  # of this thread's own time: it holds on a busy machine
MOST_MEMORY = 512 << 20  # bytes beyond what the process took before
STOPPED = 20  # seconds of processor time after which an input is given up


class TooSlow(BaseException):
    """An input that would go on for ever; no loader catches it."""


@dataclass
class Outcome:
    """What a run found: how many inputs, refused ones, the slowest, the memory; and failures."""

    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    slowest_target: str = ""
    memory: int = 0
    by_target: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str, bytes]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "inputs": self.inputs,
            "refused": self.refused,
            "targets": len(self.by_target),
            "slowest_seconds": round(self.slowest, 3),
            "slowest_target": self.slowest_target,
            "memory_mib": round(self.memory / 2**20, 1),
            "by_target": dict(sorted(self.by_target.items())),
            "failures": [[target, why, data.hex()] for target, why, data in self.failures],
        }


class Kept:
    """Inputs on the disk: the one under test, in case it ends the process, and all that failed."""

    def __init__(self, folder: Path, current: Path) -> None:
        self._folder, self._current = folder, current
        self._file = current.open("wb", buffering=0)

    def start(self, target: str, data: bytes) -> None:
        """Write an input before it is tried."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(target.encode() + b"\n" + data)

    def fail(self, target: str, data: bytes) -> Path:
        """Write an input that failed into the corpus."""
        path = self._folder / target / hashlib.sha256(data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def read_current(self) -> tuple[str, bytes]:
        """Return the target and the input that was tried last; the target is empty before the first."""
        target, _, data = self._current.read_bytes().partition(b"\n")
        return target.decode(), data


def fuzz(
    inputs: int,
    seed: int,
    *,
    only: str = "",
    kept: Kept | None = None,
    tell: Callable[[Outcome], object] = lambda _: None,
) -> Outcome:
    """Run so many mutated inputs; the same seed gives the same ones."""
    chance = random.Random(seed)  # noqa: S311  (to be repeated, not to be secret)
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=quick_folder()) as folder, _quiet():
        some = only.split(",")
        listed = [one for one in targets(Path(folder)).values() if any(part in one.name for part in some)]
        for target in listed:  # what is built once is not what an input takes
            for data in target.seeds:
                _try_kept(target, data, Outcome(), _memory(), kept)
        base = _memory()
        for target in chance.choices(listed, [one.weight for one in listed], k=inputs):
            _try_kept(target, mutated(target.seeds, chance, plain=target.plain), outcome, base, kept)
            outcome.memory = _memory() - base
            if outcome.inputs % 10_000 == 0:
                tell(outcome)
    return outcome


def each_seed() -> Outcome:
    """Run every seed and every input of the corpus as it is."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=quick_folder()) as folder, _quiet():
        for target in targets(Path(folder)).values():
            for data in target.seeds:
                _try(target, data, outcome, _memory())
    return outcome


def _try_kept(target: Target, data: bytes, outcome: Outcome, base: int, kept: Kept | None) -> None:
    """Try an input that is on the disk before, and stays there if it fails."""
    if kept is None:
        _try(target, data, outcome, base)
        return
    kept.start(target.name, data)
    failures = len(outcome.failures)
    _try(target, data, outcome, base)
    if len(outcome.failures) > failures:
        kept.fail(target.name, data)


def _try(target: Target, data: bytes, outcome: Outcome, base: int) -> None:
    began, why = time.thread_time(), ""
    signal.setitimer(signal.ITIMER_VIRTUAL, STOPPED)
    try:
        target.run(data)
    except MasqueradeError as error:
        outcome.refused += 1
        try:
            str(error).encode()
        except UnicodeEncodeError:
            why = f"an error that cannot be printed: {type(error).__name__}"
    except TooSlow:
        why = f"gave no answer in {STOPPED} s"
    except Exception as error:  # noqa: BLE001  (that is what is looked for)
        if type(error) in target.only:
            outcome.refused += 1
        else:
            why = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.thread_time() - began
    outcome.inputs += 1
    outcome.by_target[target.name] += 1
    if seconds > outcome.slowest:
        outcome.slowest, outcome.slowest_target = seconds, target.name
    if not why and seconds > MOST_SECONDS:
        why = f"took {seconds:.1f} s"
    if not why and _memory() - base > MOST_MEMORY:
        why = f"took {(_memory() - base) >> 20} MiB"
    if why:
        outcome.failures.append((target.name, why, data))


def _memory() -> int:
    """Return the most memory that this process ever took."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def _quiet() -> Iterator[None]:
    """Let nothing warn, and stop what takes too long."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.signal(signal.SIGVTALRM, before)
