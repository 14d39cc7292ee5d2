"""Files of tests live in memory where there is room: what is made safe on a disk is waited for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 4 * 2**30


def quick_folder() -> str | None:
    """Return a folder in memory for files of tests, None where there is none or little room."""
    if not (SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)):
        return None
    return str(SHARED_MEMORY) if shutil.disk_usage(SHARED_MEMORY).free >= ROOM else None
