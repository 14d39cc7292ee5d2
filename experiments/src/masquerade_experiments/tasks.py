"""An experiment divided into tasks: each is some runs at one setting, with their seeds and a key.

The seed of a run is computed from the experiment, the setting and the run's number, so results do not depend
on how runs are divided into tasks, on the order of tasks, or on the number of processes.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import masquerade
from masquerade.core import InputError
from masquerade_experiments.catalogue import ENTRIES, Planned
from masquerade_experiments.experiment import Experiment, Setting, Value

FORMAT = 1  # version of saved results; results of other versions are not used
PIECES = 48  # approximate number of tasks per experiment: enough to share; little is lost if interrupted
NO_MATTER = {"cli", "report", "drawing", "papers", "sklearn"}  # parts of the library that no run depends on


@dataclass(frozen=True, slots=True)
class Task:
    """Runs `first` up to but not including `last` of one setting; `key` names their saved result."""

    id: str
    module: str
    setting: Setting
    first: int
    last: int
    key: str

    def seed(self, run: int) -> int:
        """Return the seed of a run."""
        return seed_of(self.id, self.setting, run)


def tasks_of(planned: Planned, experiment: Experiment, *, runs: int, quick: bool) -> list[Task]:
    """Return the tasks of an experiment. Each run of each setting is in exactly one task.

    An experiment that repeats another one has the same tasks.
    """
    planned = original_of(planned, experiment)
    settings = [plain_setting(setting, planned.id) for setting in experiment.settings(quick)]
    # divide by the usual number of runs, not the requested number, so that saved tasks can be used for both
    usual = experiment.quick_runs if quick else experiment.runs
    size = -(-usual // max(1, PIECES // max(1, len(settings))))
    digest = digest_of(planned.module)
    return [
        Task(
            planned.id,
            planned.module,
            setting,
            first,
            min(first + size, runs),
            hashed([FORMAT, planned.id, setting, first, min(first + size, runs), quick, digest]).hex(),
        )
        for setting in settings
        for first in range(0, runs, size)
    ]


def original_of(planned: Planned, experiment: Experiment) -> Planned:
    """Return the experiment that this one repeats, or else the experiment itself."""
    return next(
        (entry for entry in ENTRIES if isinstance(entry, Planned) and entry.id == experiment.repeats), planned
    )


def seed_of(identity: str, setting: Setting, run: int) -> int:
    """Return the seed of one run: 63 bits of a SHA-256 digest."""
    return int.from_bytes(hashed([identity, dict(setting), run])[:8], "big") >> 1


def hashed(values: list[Any]) -> bytes:
    """Return the SHA-256 of plain values, independent of the order of their names."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).digest()


def plain_setting(setting: Setting, identity: str) -> dict[str, Value]:
    """Return a setting with values of built-in Python types."""
    return {name: plain(value, f"{identity}, setting {name!r}") for name, value in setting.items()}


def plain(value: Any, where: str) -> Value:
    """Return a value as a built-in Python type; NumPy's numbers are accepted."""
    if not isinstance(value, (str, int, float, bool, type(None))) and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise InputError(
        f"{where}: a value must be a text, a number, true, false or None, not {type(value).__name__}."
    )


def digest_of(module: str) -> str:
    """Return a digest of the sources that an experiment's results depend on.

    These are its module, the modules of its folder and of this package that it imports, and the library.
    """
    digest = hashlib.sha256(library_digest())
    for path in sorted(own_sources(module)):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def library_digest() -> bytes:
    """Return a digest of all parts of the library that a run may use."""
    root = Path(masquerade.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in NO_MATTER:
            digest.update(f"{place.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.digest()


def own_sources(module: str) -> set[Path]:
    """Return the files of a module and of all modules of its folder and of this package that it imports."""
    scopes = ("masquerade_experiments.", module.rpartition(".")[0] + ".")
    found: dict[str, Path] = {}
    left = [module]
    while left:
        name = left.pop()
        path = source_file(name)
        if path is None or name in found:
            continue
        found[name] = path
        imported = imports_in(ast.parse(path.read_bytes()))
        left += [other for other in imported if other.startswith(scopes)]
    return set(found.values())


def imports_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names of all imported modules, and names that may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def source_file(module: str) -> Path | None:
    """Return the file of a module; None if the name is not a module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
