"""The one place where functions are compiled to machine code."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function on first call, keep the result on disk, and release the GIL while it runs."""
    return cast("F", numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")(function))
