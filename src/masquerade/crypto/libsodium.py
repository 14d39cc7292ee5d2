"""Load rbcl's libsodium in a quarter of the memory.

rbcl stores the library as hexadecimal digits in a module and unpacks it on import. That takes 12 MB, which a
person's device may not have. This module reads the digits in pieces, and rbcl then finds the library loaded.
If rbcl's module has a different format, rbcl is imported as usual.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import IO, Final

MODULE: Final = "rbcl._sodium"
_BEFORE, _AFTER = b"bytes.fromhex('", b"'"
_HEAD, _PIECE = 1 << 12, 1 << 16


def unpack(source: IO[bytes], target: IO[bytes]) -> bool:
    """Write the library contained in a module's source to `target`; return False if it has no library."""
    at = source.read(_HEAD).find(_BEFORE)
    if at < 0:
        return False
    source.seek(at + len(_BEFORE))
    while piece := source.read(_PIECE):
        digits, end, _ = piece.partition(_AFTER)
        try:
            target.write(bytes.fromhex(digits.decode("ascii")))
        except ValueError:
            return False
        if end:
            return target.tell() > 0
    return False


def provide() -> None:
    """Load the library before rbcl is imported; its temporary file is removed on return."""
    spec = find_spec("rbcl")
    if MODULE in sys.modules or spec is None or not spec.submodule_search_locations:
        return
    made: Path | None = None
    try:
        with (
            (Path(spec.submodule_search_locations[0]) / "_sodium.py").open("rb") as source,
            tempfile.NamedTemporaryFile(suffix=".so", delete=False) as target,
        ):
            made = Path(target.name)
            whole = unpack(source, target)
        if whole:
            module = ModuleType(MODULE)
            module.__dict__["_sodium"] = ctypes.CDLL(str(made))
            sys.modules[MODULE] = module
    except OSError:
        return  # rbcl then loads it itself and reports the problem
    finally:
        if made is not None:
            with suppress(OSError):  # some systems lock the file of a loaded library
                made.unlink()
