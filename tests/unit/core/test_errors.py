"""Every error crosses a process boundary: it pickles, whatever its constructor takes."""

from __future__ import annotations

import importlib
import inspect
import pickle
import time
from datetime import UTC, datetime

from tests.architecture.modules import MODULES

from masquerade.core import errors
from masquerade.core.query import Query


def below(kind):
    """Yield every class of errors below one."""
    for one in type.__subclasses__(kind):
        yield one
        yield from below(one)


# what constructors take, by the name of the parameter
TAKEN = {
    "advice": "Install it.",
    "again": True,
    "column": "smoker",
    "culprits": ["north"],
    "file": "people.csv",
    "message": "is none",
    "name": "iris",
    "needs": ("people.csv",),
    "problem": "is missing",
    "queries": [Query(by=("a",))],
    "reason": "north is silent",
    "refusals": [errors.Refusal("singular", "cannot be undone", Query(by=("a",)))],
    "row": 3,
    "silent": True,
    "since": datetime(2026, 11, 17, tzinfo=UTC),
    "spent": True,
    "tried": ["a directory"],
    "what": "people.parquet",
}


def made(kind):
    """Return an error of a class, with everything that its constructor takes."""
    if not any("__init__" in vars(one) for one in kind.__mro__ if one.__module__.startswith("masquerade.")):
        return kind("what it says")
    parameters = list(inspect.signature(kind).parameters.values())
    placed = [TAKEN[it.name] for it in parameters if it.kind is not it.KEYWORD_ONLY]
    return kind(*placed, **{it.name: TAKEN[it.name] for it in parameters if it.kind is it.KEYWORD_ONLY})


def test_every_class_of_errors_pickles_with_all_it_says():
    for module in (one for one in MODULES if not one.name.endswith("__main__")):
        importlib.import_module(module.name)
    kinds = {kind for kind in below(BaseException) if kind.__module__.split(".")[0] == "masquerade"}
    assert len(kinds) > 35
    assert {"NotFetched", "Overflow", "FirstQueries", "MasqueradeWarning"} < {kind.__name__ for kind in kinds}
    for kind in kinds:
        error = made(kind)
        error.add_note("a note")
        back = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(back) is kind
        assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


def test_a_hint_takes_no_longer_than_an_error_may():
    known = ["ab" * 40_000, "cd"]
    began = time.thread_time()
    assert errors.did_you_mean("ba" * 40_000, known) == ""
    assert errors.did_you_mean("smoker", [f"smoke{i}" for i in range(5000)]) == ""
    assert errors.did_you_mean("cde", known) == " Did you mean 'cd'?"
    assert time.thread_time() - began < 2
