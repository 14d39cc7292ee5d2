"""libsodium as rbcl brings it, loaded in a quarter of the memory.

rbcl holds the library as hexadecimal digits in a module and unpacks it whenever that is imported, which takes
12 MB that a person's device may not have. Here the digits are read piece by piece; rbcl then finds the
library loaded. Where its module looks otherwise, it is imported as it is.
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
    """Write the library whose digits stand in a module's source; False if none stand there."""
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
    """Have the library loaded before rbcl is imported; its file is gone from the disk when this returns."""
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
        return  # rbcl tries for itself, and says what is wrong
    finally:
        if made is not None:
            with suppress(OSError):  # a system that does not let go of a loaded library
                made.unlink()
