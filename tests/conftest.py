"""What every test may use."""

import os
import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from tests.quick_files import quick_folder

# the same examples in every run, however slow the machine; HYPOTHESIS=search looks for others
slowly = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, database=None, **slowly)
settings.register_profile("search", **slowly)
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))

pytest_plugins = ["tests.skips"]

# a shell that starts tests in the background lets them, and all programs that they start, ignore interrupts
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

if folder := quick_folder():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)  # where pytest makes the folders of tests

if os.name == "posix":  # elsewhere the library is tested, not its services
    from masquerade.services.parties import example

    # of several processes that run tests, each has ports of its own
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    example.PORTS = range(10_000 + 2500 * worker, 12_500 + 2500 * worker)

    pytest_plugins.append("tests.servers.fixtures")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return what puts a distribution of one module on the path."""

    def install(name, groups, text=""):
        place = tmp_path / name
        about = place / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (place / f"{name}.py").write_text(text, encoding="utf-8")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            "".join(
                f"[masquerade.{group}]\n"
                + "".join(f"{key} = {name}:{value}\n" for key, value in items.items())
                for group, items in groups.items()
            )
        )
        monkeypatch.syspath_prepend(place)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return install


@pytest.fixture
def files_opened(monkeypatch):
    """Return a list of the data files that readers open, one entry for every opening."""
    opened, plain, arrow = [], Path.open, pa.OSFile

    def noted(path):
        if str(path).endswith((".csv", ".gz", ".parquet", ".arrow", ".feather")):
            opened.append(str(path))
        return path

    monkeypatch.setattr(Path, "open", lambda path, *how, **also: plain(noted(path), *how, **also))
    monkeypatch.setattr(pa, "OSFile", lambda path: arrow(noted(path)))
    return opened
