"""Draws of a sampler in two new interpreters, where a fixed seed would repeat."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

PATIENCE: Final = 600.0  # seconds until both have ended
# -I: nothing is imported from the working folder before the path of this process is set
PROGRAM: Final = (
    "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task['path']; "
    "from masquerade.audit.new_processes import serve_draws; serve_draws(task)"
)
READY, START = "ready", "start"
PLAIN: Final = (str, int, float, bool, type(None))  # types that JSON round-trips unchanged


@dataclass(frozen=True, slots=True)
class Recipe:
    """Import instructions for a sampler: a function of a module, or its result for `arguments`."""

    module: str
    name: str
    file: str | None
    arguments: tuple[Any, ...] | None = None


def find_recipe(sampler: Callable[..., Any]) -> Recipe | str:
    """Return the recipe to import the sampler in a new process, or the reason why that is impossible."""
    recipe = getattr(sampler, "recipe", None)
    if isinstance(recipe, Recipe):
        return recipe
    module, name = getattr(sampler, "__module__", None), getattr(sampler, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return "the sampler is not a function of a module"
    if module == "__main__":
        return "the sampler is defined in the program that runs the audit"
    loaded = sys.modules.get(module)
    if loaded is None or resolve_name(loaded, name) is not sampler:
        return f"{module}.{name} is not the function that was given"
    return Recipe(module, name, getattr(loaded, "__file__", None))


def resolve_name(module: Any, name: str) -> Any:
    """Return the object that a dotted name of a module refers to, or None."""
    value = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def draw_in_new_processes(
    recipe: Recipe, truths: Sequence[Any], rounds: int, size: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]] | str:
    """Return hashes of reports (rounds × truths × size) from two interpreters, or the reason for a failure.

    Both start to draw at the same moment, so that seeds from a coarse clock are equal, too.
    """
    plain = [truth.item() if isinstance(truth, np.generic) else truth for truth in truths]
    if not all(isinstance(part, PLAIN) for truth in plain for part in _parts(truth)):
        return "the truths are not plain values"
    task = {
        "path": [str(entry) for entry in sys.path],
        "module": recipe.module,
        "name": recipe.name,
        "file": recipe.file,
        "arguments": recipe.arguments,
        "truths": plain,
        "rounds": rounds,
        "size": size,
    }
    text = json.dumps(task)
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.extend(_start() for _ in range(2))
        return _collect(processes, text, (rounds, len(plain), size))
    except OSError:
        return "no new interpreter could be started"
    finally:
        _kill(processes)
        for process in processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                _close(stream)


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-W", "ignore", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _parts(truth: Any) -> tuple[Any, ...]:
    return truth if isinstance(truth, tuple) else (truth,)


def _collect(
    processes: Sequence[subprocess.Popen[str]], task: str, shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]] | str:
    stop = threading.Timer(PATIENCE, _kill, [processes])
    stop.daemon = True
    stop.start()
    try:
        for process in processes:
            _send(process, task)
        replies = [_receive(process) for process in processes]
        if replies != [READY, READY]:
            return "a new process could not import the sampler"
        for process in processes:
            _send(process, START)
        drawn = [_receive(process) for process in processes]
    finally:
        stop.cancel()
    expected = 4 * shape[0] * shape[1] * shape[2]
    if any(len(line) != expected for line in drawn):
        return "the sampler failed in a new process"
    first, second = (np.frombuffer(bytes.fromhex(line), dtype=np.uint16).reshape(shape) for line in drawn)
    return first, second


def serve_draws(task: dict[str, Any]) -> None:
    """Import the sampler, report readiness, wait for the start, draw, and write hashes of the reports."""
    from masquerade.audit.sampler_calls import (  # noqa: PLC0415  (a new process loads what it needs)
        draw_reports,
        hash_reports,
        vectorize_sampler,
    )

    answers = sys.stdout
    sys.stdout = sys.stderr  # a sampler that prints does not corrupt the reply
    sampler = resolve_name(_import_same(task["module"], task["file"]), task["name"])
    if task["arguments"] is not None:
        sampler = sampler(*task["arguments"])
    draw = vectorize_sampler(sampler)
    truths = [tuple(truth) if isinstance(truth, list) else truth for truth in task["truths"]]
    answers.write(READY + "\n")
    answers.flush()
    if sys.stdin.readline().strip() != START:
        return
    codes = [
        hash_reports(draw_reports(draw, truth, task["size"]))
        for _ in range(task["rounds"])
        for truth in truths
    ]
    answers.write(np.stack(codes).tobytes().hex() + "\n")
    answers.flush()


def _import_same(module: str, file: str | None) -> Any:
    """Import a module by name if that gives the same file, else from that file, but never different code."""
    try:
        spec_of_name = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec_of_name = None
    if file is None or (
        spec_of_name is not None and spec_of_name.origin is not None and _same(spec_of_name.origin, file)
    ):
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(module)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _same(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


def _send(process: subprocess.Popen[str], line: str) -> None:
    if process.stdin is not None:
        with suppress(OSError):  # the process has ended: its missing reply shows it
            process.stdin.write(line + "\n")
            process.stdin.flush()


def _receive(process: subprocess.Popen[str]) -> str:
    return "" if process.stdout is None else process.stdout.readline().strip()


def _close(stream: IO[str] | None) -> None:
    if stream is not None:
        with suppress(OSError):  # unsent data is no longer needed
            stream.close()
