"""The one place where functions are compiled to machine code, and where that code is kept.

Compiled code is kept as pickles, and a user who can change a pickle runs code when it is read. So it is kept
in the first of these folders that takes files and that only this user or root can change, it and all above
it: `NUMBA_CACHE_DIR`, the `__pycache__` beside the source, the user's cache folder, a folder of the user's
own under the temporary one. Without any, every process compiles its functions again.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from masquerade.core.errors import MasqueradeWarning
from masquerade.core.util.private_file import HAS_MODES, is_safe_folder

F = TypeVar("F", bound=Callable[..., Any])
config: Any = numba.config  # the settings that numba reads from the environment
# Numba also reads .numba_config.yaml of the working directory, which may name a folder of somebody's pickles
config._config_fname = ""  # noqa: SLF001  (there is no other way to leave the file out)
config.reload_config()
BESIDE = "__pycache__"
_setting = threading.Lock()


def compiled(function: F) -> F:
    """Compile a function on first call, keep the result if there is a folder for it, and release the GIL."""
    source = Path(function.__code__.co_filename).parent
    with _setting:
        folder, setting = cache_folder(source), config.CACHE_DIR
        try:  # read while a function is declared; beside the source numba keeps code by itself
            config.CACHE_DIR = "" if folder in {None, source / BESIDE} else str(folder)
            dispatcher = numba.njit(
                cache=folder is not None, nogil=True, boundscheck=False, error_model="numpy"
            )(function)
        finally:
            config.CACHE_DIR = setting
    _save_if_possible(dispatcher)
    return cast("F", dispatcher)


@lru_cache
def cache_folder(source: Path) -> Path | None:
    """Return the folder in which compiled functions of a source folder are kept, None if there is none."""
    chosen = config.CACHE_DIR
    if chosen:
        if _is_usable(Path(chosen), source.name):
            return Path(chosen)
        warnings.warn(
            f"NUMBA_CACHE_DIR={chosen} is not used: it cannot be written to, or others could put code there.",
            MasqueradeWarning,
            stacklevel=2,
        )
    return next((folder for folder in _usual_folders(source) if _is_usable(folder, source.name)), None)


def _usual_folders(source: Path) -> Iterator[Path]:
    yield source / BESIDE
    own_cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with suppress(RuntimeError):  # no home
        yield (own_cache if own_cache.is_absolute() else Path.home() / ".cache") / "masquerade"
    with suppress(FileNotFoundError):  # no temporary folder
        if HAS_MODES:
            yield Path(tempfile.gettempdir()) / f"masquerade-{os.geteuid()}"


def _is_usable(folder: Path, name: str) -> bool:
    """Return True if a folder is there, or can be made, that is safe to load code from and takes files.

    Functions of a source folder with this name are kept in it, or in a folder of its own that begins so.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_safe_folder(folder):
            return False
        tempfile.TemporaryFile(dir=folder).close()
        closed = not folder.stat().st_mode & 0o077  # nobody else reaches what is in it
        entries = (*folder.iterdir(), *folder.glob(f"{name}_*/*"))
        return all(_is_safe(one.lstat(), closed=closed) for one in entries)
    except OSError:
        return False


def _is_safe(status: os.stat_result, *, closed: bool) -> bool:
    """Return True if nobody but this user and root can have written a file."""
    return not HAS_MODES or (
        status.st_uid in {os.geteuid(), 0}
        and (closed or stat.S_ISLNK(status.st_mode) or not status.st_mode & 0o022)
    )


def _save_if_possible(dispatcher: Any) -> None:
    """Run a function also if its code cannot be kept: a full disk costs time only."""
    cache: Any = getattr(dispatcher, "_cache", None)
    save = getattr(cache, "save_overload", None)
    if save is None:
        return

    def save_quietly(*arguments: Any) -> None:
        with suppress(OSError):
            save(*arguments)

    cache.save_overload = save_quietly
