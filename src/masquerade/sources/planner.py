"""Where to count: in memory what fits easily, in an engine what does not or what lies there already."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final, Literal, get_args

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.frames.files import open_batches
from masquerade.sources.chunks import is_path
from masquerade.sources.duck import DuckFiles
from masquerade.sources.scanned import Table
from masquerade.sources.tables import Watch

LOG = logging.getLogger("masquerade.sources")
EngineName = Literal["auto", "memory", "duckdb"]
LARGEST_IN_MEMORY: Final = 1 << 28  # bytes of codes: 256 MiB, some 25 million records of ten variables
SHARE_OF_FREE: Final = 8  # and never more than this part of the memory that is free
TEXT_OF_A_VALUE: Final = 2  # bytes that a value takes in a CSV file, at least: a letter and a comma


def table_for(
    data: Any, given: Table | None, policy: Policy, *, engine: EngineName, watch: Watch | None
) -> Table | None:
    """Return the engine's table to count in: the one given, or files if they are large; None for memory."""
    if engine not in get_args(EngineName):
        raise InputError(
            f"The engine must be one of {', '.join(get_args(EngineName))}. Got {engine!r} instead."
        )
    if not is_path(data):
        if engine == "duckdb" or (engine == "memory" and given is not None):
            raise InputError(f"engine={engine!r} is for files; a frame or table is counted where it lies.")
        return None if given is None else chosen(given, "the records stay there")
    if engine == "memory" or data == "-":
        return None
    if engine == "duckdb":
        return chosen(DuckFiles(data, watch=watch), "asked for")
    needed, allowed = codes_of(data, policy), largest_in_memory()
    reason = f"{mebibytes(needed)} of codes, memory is used up to {mebibytes(allowed)}"
    if needed <= allowed:
        LOG.info("counting in memory: %s", reason)
        return None
    return chosen(DuckFiles(data, watch=watch), reason)


def chosen(table: Table, reason: str) -> Table:
    """Return a table after a word about it in the log."""
    LOG.info("counting in %s: %s", table.title, reason)
    return table


def codes_of(data: Any, policy: Policy) -> int:
    """Return how many bytes the records would take in memory, at most."""
    with open_batches(data, []) as files:
        rows, size, names = files.total_rows, files.total_bytes or 0, files.file_names
    if rows is None:  # a CSV file: only its size is known
        rows = size // (TEXT_OF_A_VALUE * max(len(names), 1))
    return rows * max(len(policy.schema), 1)


def largest_in_memory() -> int:
    """Return how many bytes of codes are held without asking."""
    return min(LARGEST_IN_MEMORY, free_memory() // SHARE_OF_FREE)


def free_memory() -> int:
    """Return the bytes that this process may still take: of the machine, or of its control group."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no control group, or one without a limit
        return free
    return max(min(free, limit - used), 0)


def mebibytes(size: int) -> str:
    """Return a size in words."""
    return f"{size / (1 << 20):,.0f} MiB"
