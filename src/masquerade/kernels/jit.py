"""Compilation of functions to machine code, the cache of that code, and NumPy twins for little work.

Numba takes half a second to load, and a kernel that is not cached yet takes longer to compile. So Numba is
loaded when a kernel is first called, and a kernel may have a twin in NumPy with the same results to the last
bit. Twins run until their work would have paid for loading Numba.

Compiled code is cached as pickles, and anyone who can change a pickle can run code when it is loaded. So the
cache is the first of the following folders that is writable and that, with all its parents, only this user or
root can change: `NUMBA_CACHE_DIR`, the `__pycache__` next to the source, the user's cache folder, and the
user's own folder within the temporary folder. If there is none, each process compiles its functions again.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, update_wrapper
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from masquerade.core.errors import MasqueradeWarning
from masquerade.core.util.private_file import HAS_MODES, is_safe_folder

F = TypeVar("F", bound=Callable[..., Any])
BESIDE = "__pycache__"
ENOUGH_WORK: Final = 1 << 26  # elements processed by twins in about 0.3 s, the cost of loading Numba
CALL_WORK: Final = 1 << 11  # elements that take as long as the fixed cost of a NumPy call
LARGE: Final = 500_000  # from this number of rows on, compiled code is loaded immediately
_setting = threading.RLock()
_work = 0
_only: Literal["compiled", "twin"] | None = None
_on_compile: Callable[[], None] | None = None


@lru_cache
def load_numba() -> Any:
    """Return the module numba, with settings from the environment only."""
    import numba  # noqa: PLC0415  (takes half a second to load)

    # Numba also reads .numba_config.yaml in the working directory, which may name an attacker's folder
    config: Any = numba.config
    config._config_fname = ""  # noqa: SLF001  (there is no other way to ignore the file)
    config.reload_config()
    return numba


def compiled(function: F) -> F:
    """Compile a function on its first call, cache the code if possible, and release the GIL."""
    return cast("F", Kernel(function))


def numpy_twin(kernel: Callable[..., Any], work: Callable[..., int] | None = None) -> Callable[[F], F]:
    """Return a decorator for a NumPy function that replaces a kernel while there is little work.

    `work` returns the number of elements that a call processes; by default the size of its largest array.
    """

    def register(function: F) -> F:
        cast("Kernel", kernel).set_twin(function, work or _largest_size)
        return function

    return register


def is_little(work: int) -> bool:
    """Return True if NumPy should process this number of elements, because Numba does not pay yet."""
    global _work  # noqa: PLW0603  (one count per process, as compiled code is loaded once per process)
    if _work < ENOUGH_WORK:
        _work += work + CALL_WORK  # threads may lose an addition, which only delays the change
    return _work < ENOUGH_WORK


def expect_rows(rows: int) -> None:
    """Stop using twins if many rows are about to be processed."""
    if rows >= LARGE:
        is_little(ENOUGH_WORK)


def expect_work(elements: int) -> None:
    """Stop using twins if the work ahead takes at least as long as loading compiled code."""
    if elements >= ENOUGH_WORK:
        is_little(ENOUGH_WORK)


@contextmanager
def only(implementation: Literal["compiled", "twin"]) -> Iterator[None]:
    """Run the compiled code, or the twin, of all kernels that have both; an audit tests each of them."""
    global _only  # noqa: PLW0603  (other threads get the same results by either)
    before, _only = _only, implementation
    try:
        yield
    finally:
        _only = before


def announce_compilation(say: Callable[[], None] | None) -> None:
    """Set a function that is called once, before the first compilation of a kernel that no cache has."""
    global _on_compile  # noqa: PLW0603  (as above)
    _on_compile = say


class Kernel:
    """A function that is compiled on its first call, or replaced by its twin while there is little work."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.twin: Callable[..., Any] | None = None
        self._work_of: Callable[..., int] = _largest_size
        self._dispatcher: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function, or its twin."""
        if _only is not None and self.twin is not None:
            return self.twin(*arguments) if _only == "twin" else self.load()(*arguments)
        if self._dispatcher is None:
            if self.twin is not None and is_little(self._work_of(*arguments)):
                return self.twin(*arguments)
            return self.load()(*arguments)
        return self._dispatcher(*arguments)

    def set_twin(self, twin: Callable[..., Any], work: Callable[..., int]) -> None:
        """Set the function to call while there is little work, and the measure of a call's work."""
        self.twin, self._work_of = twin, work

    def load(self) -> Any:
        """Return the dispatcher of Numba, which compiles a version for each combination of types."""
        with _setting:
            if self._dispatcher is None:
                dispatcher = _dispatcher(self.function)
                names = self.function.__globals__
                for name in self.function.__code__.co_names:
                    called = names.get(name)
                    if isinstance(called, Kernel):  # Numba can compile calls of its dispatchers only
                        names[name] = dispatcher if called is self else called.load()
                self._dispatcher = dispatcher
        return self._dispatcher


def _dispatcher(function: Callable[..., Any]) -> Any:
    numba = load_numba()
    source = Path(function.__code__.co_filename).parent
    folder, setting = cache_folder(source), numba.config.CACHE_DIR
    try:  # numba reads this setting when a function is declared; its default is next to the source
        numba.config.CACHE_DIR = "" if folder in {None, source / BESIDE} else str(folder)
        options = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
        dispatcher = numba.njit(cache=folder is not None, **options)(function)
    finally:
        numba.config.CACHE_DIR = setting
    _keep_cache_optional(dispatcher)
    return dispatcher


def _largest_size(*arguments: Any) -> int:
    """Return the number of elements of the largest array, also within tuples."""
    return max(
        (_largest_size(*one) if isinstance(one, tuple) else getattr(one, "size", 1) for one in arguments),
        default=1,
    )


@lru_cache
def cache_folder(source: Path) -> Path | None:
    """Return the cache folder for compiled functions of a source folder; None if no folder is safe."""
    chosen = load_numba().config.CACHE_DIR
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
    """Return True if a folder exists or can be created, is writable, and is safe to load code from.

    Functions of a source folder with this name are cached there, or in a subfolder whose name starts with it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_safe_folder(folder):
            return False
        tempfile.TemporaryFile(dir=folder).close()
        closed = not folder.stat().st_mode & 0o077  # no other user can reach its content
        entries = (*folder.iterdir(), *folder.glob(f"{name}_*/*"))
        return all(_is_safe(one.lstat(), closed=closed) for one in entries)
    except OSError:
        return False


def _is_safe(status: os.stat_result, *, closed: bool) -> bool:
    """Return True if only this user and root can have written a file."""
    return not HAS_MODES or (
        status.st_uid in {os.geteuid(), 0}
        and (closed or stat.S_ISLNK(status.st_mode) or not status.st_mode & 0o022)
    )


def _say_compiling() -> None:
    """Call the function that announces compilation, at most once."""
    global _on_compile
    say, _on_compile = _on_compile, None
    if say is not None:
        say()


def _keep_cache_optional(dispatcher: Any) -> None:
    """Let a function run even if its code cannot be cached or loaded; it is then compiled again."""
    cache: Any = getattr(dispatcher, "_cache", None)
    load, save = getattr(cache, "load_overload", None), getattr(cache, "save_overload", None)
    if load is None or save is None:
        return

    def load_if_readable(*arguments: Any) -> Any:
        code = None
        try:
            code = load(*arguments)
        except Exception:  # noqa: BLE001  (a pickle may raise anything, such as for a class that was renamed)
            with suppress(OSError):
                cache.flush()  # numba reads the index again before it saves
        if code is None:
            _say_compiling()
        return code

    def save_quietly(*arguments: Any) -> None:
        with suppress(OSError):
            save(*arguments)

    cache.load_overload, cache.save_overload = load_if_readable, save_quietly
