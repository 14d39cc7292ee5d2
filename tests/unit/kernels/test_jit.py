"""Compiled code is kept where nobody else can put code; without such a folder kernels run all the same."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import numpy as np
import pytest

import masquerade
from masquerade.core.errors import MasqueradeWarning
from masquerade.core.util.private_file import is_safe_folder
from masquerade.kernels import jit

NOBODY = 65534
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
# as another user, who may read everything (the interpreter may lie in root's home) and write where users may
AS_NOBODY = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@pytest.fixture(autouse=True)
def _asked_anew():
    jit.cache_folder.cache_clear()
    yield
    jit.cache_folder.cache_clear()


def add_one(values):
    """Add one to every value."""
    for place in range(values.size):
        values[place] += 1


def chosen(monkeypatch, source: Path, **environment: str) -> Path | None:
    """Return where code of a source folder is kept in an environment."""
    monkeypatch.setattr(jit.load_numba().config, "CACHE_DIR", environment.pop("NUMBA_CACHE_DIR", ""))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    jit.cache_folder.cache_clear()
    return jit.cache_folder(source)


@pytest.mark.skipif(os.name != "posix", reason="files have no modes here")
def test_cache_folder_is_the_first_that_nobody_else_can_write_to(tmp_path, monkeypatch):
    source, given, home, scratch = (tmp_path / name for name in ("kernels", "given", "home", "scratch"))
    for folder in (source, home, scratch):
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    settings = {"NUMBA_CACHE_DIR": str(given), "XDG_CACHE_HOME": str(home)}
    assert chosen(monkeypatch, source, **settings) == given
    assert stat.S_IMODE(given.stat().st_mode) == 0o700
    given.chmod(0o777)
    with pytest.warns(MasqueradeWarning, match="others could put code there"):
        assert chosen(monkeypatch, source, **settings) == source / "__pycache__"
    (source / "__pycache__").chmod(0o775)
    assert chosen(monkeypatch, source, XDG_CACHE_HOME=str(home)) == home / "masquerade"
    home.chmod(0o777)  # others could put another folder in its place
    private = scratch / f"masquerade-{os.geteuid()}"
    assert chosen(monkeypatch, source, XDG_CACHE_HOME=str(home)) == private
    home.chmod(0o1777)  # the owner of a name alone can move it
    assert chosen(monkeypatch, source, XDG_CACHE_HOME=str(home)) == home / "masquerade"
    home.chmod(0o777)
    private.chmod(0o707)
    assert chosen(monkeypatch, source, XDG_CACHE_HOME=str(home)) is None


def test_a_planted_pickle_runs_in_a_cache_of_numba_and_not_in_ours(tmp_path):
    """The attack: the index of a cache is a pickle, and the folder takes files of others."""
    cache, sign, code = tmp_path / "cache", tmp_path / "sign", tmp_path / "code"
    for folder in (cache, code):
        folder.mkdir()
    cache.chmod(0o777)
    (code / "victim.py").write_text(
        "import numba\n\n\ndef twice(x):\n    return 2 * x\n\n\n"
        "if __name__ == '__main__':\n    print(numba.njit(cache=True)(twice)(2))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(code)}

    def run(program: str) -> str:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout.strip()

    unsafe = "import numba, victim; print(numba.njit(cache=True)(victim.twice)(2))"
    assert run(unsafe) == "4"
    (index,) = cache.rglob("*.nbi")
    version = pickle.loads(index.read_bytes())  # noqa: S301  (ours, to keep the form that numba expects)
    index.write_bytes(pickle.dumps(version) + pickle.dumps(_Planted(sign)))
    if ROOT:
        os.chown(index, NOBODY, NOBODY)
    subprocess.run([sys.executable, "-c", unsafe], env=environment, capture_output=True, check=False)  # noqa: S603
    assert sign.exists()
    sign.rmdir()
    environment["PYTHONPATH"] = f"{code}:{Path(masquerade.__file__).parents[1]}"
    safe = "import victim; from masquerade.kernels.jit import compiled; print(compiled(victim.twice)(2))"
    assert run(safe) == "4"
    assert not sign.exists()
    cache.chmod(0o755)  # closed afterwards: what was planted before is still there, and is another user's
    assert is_safe_folder(cache)
    if ROOT:
        assert run(safe) == "4"
        assert not sign.exists()


class _Planted:
    """A pickle that makes a file when it is read."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def __reduce__(self):
        return os.mkdir, (str(self._sign),)


def test_a_kernel_runs_though_its_code_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "cache_folder", lambda _: None)
    values = np.zeros(3, dtype=np.int64)
    jit.compiled(add_one)(values)
    assert values.tolist() == [1, 1, 1]
    monkeypatch.setattr(jit, "cache_folder", lambda _: tmp_path)
    kept = jit.compiled(add_one)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    kept(values)
    assert values.tolist() == [2, 2, 2]
    assert str(tmp_path) != jit.load_numba().config.CACHE_DIR  # as it was for others' functions


@pytest.mark.parametrize(
    "content",
    [b"cmasquerade.kernels.jit\nRenamed\n.", b"", b"\x80\x05"],
    ids=["renamed class", "cut", "torn"],
)
def test_an_unreadable_cache_is_written_again(tmp_path, monkeypatch, content):
    monkeypatch.setattr(jit, "cache_folder", lambda _: tmp_path)
    values = np.zeros(3, dtype=np.int64)
    jit.compiled(add_one)(values)
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(pickle.dumps(numba.__version__) + content)
    kernel = jit.compiled(add_one)
    kernel(values)
    assert values.tolist() == [2, 2, 2]
    assert not kernel.load().stats.cache_hits
    again = jit.compiled(add_one)
    again(values)
    assert values.tolist() == [3, 3, 3]
    assert again.load().stats.cache_hits


@pytest.fixture
def open_folder():
    """A folder that every user reaches, as those of a run are not."""
    with tempfile.TemporaryDirectory(prefix="masquerade-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize(
    "scratch",
    [pytest.param(True, id="temporary folder", marks=pytest.mark.slow), pytest.param(False, id="nowhere")],
)
def test_disguise_works_for_a_user_without_a_home_from_an_install_that_is_read_only(open_folder, scratch):
    """The attack's precondition is shown first: numba alone finds no folder, and the import fails."""
    installed, work, shared = (open_folder / name for name in ("installed", "work", "tmp"))
    source = Path(masquerade.__file__).parent
    shutil.copytree(source, installed / "masquerade", ignore=shutil.ignore_patterns("__pycache__"))
    plain = "import numba\n\n\n@numba.njit(cache=True)\ndef one():\n    return 1\n"
    (installed / "masquerade" / "plain.py").write_text(plain)
    for folder in (work, shared):
        folder.mkdir()
    if ROOT:
        os.chown(work, NOBODY, NOBODY)
    else:
        for folder in (installed / "masquerade").rglob("*"):
            folder.chmod(folder.stat().st_mode & 0o555)
    shared.chmod(0o1777)
    taken = shared / f"masquerade-{NOBODY if ROOT else os.geteuid()}"
    if not scratch:  # somebody was there first
        taken.mkdir(mode=0o555)
    (work / "people.csv").write_text("who,ill\n" + "".join(f"{n},{'yn'[n % 2]}\n" for n in range(50)))
    (work / "policy.yaml").write_text(
        "masquerade: 1\nvariables: {ill: {categories: ['y', 'n'], channel: {kind: binary, p: 0.25}}}\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(installed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        "TMPDIR": str(shared),
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        prefix = AS_NOBODY if ROOT else ()
        return subprocess.run(  # noqa: S603
            [*prefix, *command], env=environment, cwd=work, capture_output=True, text=True, check=False
        )

    before = run(sys.executable, "-c", "import masquerade.plain")
    assert "no locator available" in before.stderr
    program = "from masquerade.cli import main; main()"
    options = ["disguise", "people.csv", "--policy", "policy.yaml", "--out", "out.csv"]
    done = run(sys.executable, "-c", program, *options, "--memo", "memo", "--new-memo", "--id", "who")
    assert done.returncode == 0, done.stderr
    assert len((work / "out.csv").read_text().splitlines()) == 51
    kept = list(shared.glob("masquerade-*/*/*.nbi"))
    assert bool(kept) is scratch
    assert scratch is (taken.stat().st_mode & 0o777 == 0o700)


def test_a_numba_file_of_the_working_directory_names_no_cache_folder(tmp_path):
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'theirs'}\n")
    shown = "import numba; print(numba.config.CACHE_DIR)"
    load = "from masquerade.kernels.jit import load_numba; load_numba()"
    attacked = f"{shown}; {load}; print(numba.config.CACHE_DIR)"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", attacked], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == [str(tmp_path / "theirs"), ""]
