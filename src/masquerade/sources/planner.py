"""Where to count: in memory what fits easily, in an engine what does not or what lies there already."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.frames.file_reader import Batches
from masquerade.frames.formats import STREAM, is_compressed
from masquerade.sources.duckdb_files import DuckFiles
from masquerade.sources.engine_tables import IbisTable, SparkFrame, Table, Watch

LOG = logging.getLogger("masquerade.sources")
ENGINES: Final = ("auto", "memory", "duckdb")
LARGEST_IN_MEMORY: Final = 1 << 26  # bytes of codes: 64 MiB, some 6 million records of ten variables
SHARE_OF_FREE: Final = 8  # and never more than this part of the memory that is free
TEXT_OF_A_VALUE: Final = 2  # bytes that a value takes in a CSV file, at least: a letter and a comma
UNPACKED: Final = 100  # bytes of CSV in a byte of a compressed one, at most, unless rows repeat in order
CONTROL_GROUP: Final = Path("/sys/fs/cgroup")


def table_for(
    data: Any, policy: Policy, *, engine: str, watch: Watch | None = None, allowed: int | None = None
) -> Table | None:
    """Return the engine's table to count in: the one given, or files if they are large; None for memory.

    Files are large whose codes take more bytes than `allowed`, by default `largest_in_memory()`.
    """
    if engine not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {engine!r} instead.")
    if not isinstance(data, Batches):
        given = isinstance(data, (SparkFrame, IbisTable))
        if engine == "duckdb" or (engine == "memory" and given):
            raise InputError(f"engine={engine!r} is for files; a frame or table is counted where it lies.")
        return _chosen(data, "the records stay there") if given else None
    if engine == "duckdb":
        return _chosen(DuckFiles(data, watch=watch), "asked for")
    if engine == "memory" or STREAM in data.paths:
        return None
    needed, most = codes_of(data, policy), largest_in_memory() if allowed is None else allowed
    reason = f"{_mebibytes(needed)} of codes, memory is used up to {_mebibytes(most)}"
    if needed <= most:
        LOG.info("counting in memory: %s", reason)
        return None
    return _chosen(DuckFiles(data, watch=watch), reason)


def _chosen(table: Table, reason: str) -> Table:
    LOG.info("counting in %s: %s", table.title, reason)
    return table


def codes_of(files: Batches, policy: Policy) -> int:
    """Return how many bytes the records would take in memory, at most."""
    rows = files.total_rows
    if rows is None:  # a CSV file: only its size is known
        size = sum(
            Path(path).stat().st_size * (UNPACKED if is_compressed(path) else 1) for path in files.paths
        )
        rows = size // (TEXT_OF_A_VALUE * max(len(files.file_names), 1))
    widths = [np.min_scalar_type(size - 1).itemsize for size in policy.observed.shape(policy.schema)]
    return rows * max(sum(widths), 1)


def largest_in_memory() -> int:
    """Return how many bytes of codes are held without asking."""
    return min(LARGEST_IN_MEMORY, free_memory() // SHARE_OF_FREE)


def free_memory() -> int:
    """Return the bytes that this process may still take: of the machine, or of its control group.

    Pages that only keep files at hand are given back when asked for, so they count as free.
    """
    free = kept_free_by_machine()
    try:
        limit = int((CONTROL_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CONTROL_GROUP / "memory.current").read_text(encoding="ascii"))
        pages = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no control group, or one without a limit
        return free
    return max(min(free, limit - used + int(pages.get("inactive_file", 0))), 0)


def kept_free_by_machine() -> int:
    """Return the bytes that the machine has for new work."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    except (OSError, StopIteration, ValueError):  # another system than Linux
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return pages * os.sysconf("SC_PAGE_SIZE") // 2 if pages else LARGEST_IN_MEMORY * SHARE_OF_FREE


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
