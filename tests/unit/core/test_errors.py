"""Every error crosses a process boundary: it pickles, whatever its constructor takes."""

from __future__ import annotations

import importlib
import pickle
import time

import pytest
from tests.architecture.modules import MODULES

from masquerade.core import errors
from masquerade.core.query import Query


def below(kind):
    """Yield every class of errors below one."""
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownValue("smoker", 3, "is missing", "people.csv"),
        errors.DataMissing("iris", ["a directory"], "Install it."),
        errors.QueryRefused([errors.Refusal("singular", "cannot be undone", Query(by=("a",)))]),
        errors.RoundAborted("north is silent", spent=True, culprits=["north"]),
        errors.FileError("a.csv: the file is empty."),
    ],
)
def test_errors_pickle_with_all_they_say(error):
    error.add_note("a note")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_every_class_of_errors_pickles():
    for module in (one for one in MODULES if not one.name.endswith("__main__")):
        importlib.import_module(module.name)
    kinds = [kind for kind in below(errors.MasqueradeError) if kind.__module__.startswith("masquerade.")]
    assert len(kinds) > 15
    for kind in kinds:
        error = kind.__new__(kind, "what it says")
        back = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(back), back.args) == (kind, ("what it says",))


def test_a_hint_takes_no_longer_than_an_error_may():
    known = ["ab" * 40_000, "cd"]
    began = time.thread_time()
    assert errors.did_you_mean("ba" * 40_000, known) == ""
    assert errors.did_you_mean("smoker", [f"smoke{i}" for i in range(5000)]) == ""
    assert errors.did_you_mean("cde", known) == " Did you mean 'cd'?"
    assert time.thread_time() - began < 2
