"""The record of an output checker: nothing that was accepted is forgotten, and no file lifts a rule."""

import json
import shutil

import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError, MasqueradeError
from masquerade.services.common.output_record import OutputRecord

ACRO = mq.Rules.profile("acro", magnitudes=True)
TOWNS = {
    "by": ["town"],
    "n": 100,
    "cells": [{"labels": {"town": name}, "count": 50} for name in "ab"],
}
# together with TOWNS it shows the 2 people of town a who are not counted here
MOST_OF_A = {
    "by": [],
    "where": {"town": "a", "hiv": "no"},
    "n": 100,
    "cells": [{"labels": {}, "count": 48}],
}
PLOT = {"type": "plot"}


def accept(record, number, reason=""):
    return record.decide(number, accept=True, by="officer", reason=reason)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "outputs"


@pytest.fixture
def record(folder):
    return OutputRecord(folder)


def test_two_outputs_that_waited_together_are_not_both_accepted(record):
    for output in (TOWNS, MOST_OF_A):
        [entry] = record.add([output], ACRO)
        assert entry["status"] == "pass"  # nothing is accepted yet
    accept(record, 1)
    with pytest.raises(InputError, match=r"status 'fail' \(difference"):
        accept(record, 2)
    assert record.entry(2)["status"] == "fail"
    assert accept(record, 2, "published elsewhere")["decision"]["accepted"]


def remove_first(folder):
    (folder / "0001.json").unlink()


def remove_last(folder):
    (folder / "0002.json").unlink()


def remove_all(folder):
    for path in folder.glob("*.json"):
        path.unlink()


def remove_ledger(folder):
    (folder / "releases.jsonl").unlink()


def cut_ledger(folder):
    (folder / "releases.jsonl").write_bytes(b"")


def change(folder, **values):
    path = folder / "0001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_output(folder):
    change(folder, output=PLOT)


def change_number(folder):
    change(folder, id=2)


def leave_out_the_decision(folder):
    path = folder / "0001.json"
    values = json.loads(path.read_text())
    del values["decision"]
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    "forget",
    [
        remove_first,
        remove_last,
        remove_all,
        remove_ledger,
        cut_ledger,
        change_output,
        change_number,
        leave_out_the_decision,
    ],
)
def test_an_accepted_output_that_is_missing_is_noticed(record, folder, forget):
    record.add([TOWNS, PLOT], ACRO)
    for number in (1, 2):
        accept(record, number, "looked at")
    forget(folder)
    with pytest.raises(FileError):
        record.add([MOST_OF_A], ACRO)
    with pytest.raises(FileError):
        record.entries()


def test_decisions_are_those_of_the_ledger(record, folder):
    record.add([TOWNS], ACRO)
    accept(record, 1)
    change(folder, decision=None)
    assert record.entries()[0]["decision"]["accepted"]
    assert record.add([MOST_OF_A], ACRO)[0]["status"] == "fail"
    record.add([PLOT], ACRO)
    path = folder / "0003.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decision": {"accepted": True}}))
    with pytest.raises(FileError, match="that the ledger does not have"):
        record.entries()


def test_a_process_that_ends_after_the_line_of_a_decision_has_decided(record, monkeypatch):
    record.add([TOWNS], ACRO)
    with monkeypatch.context() as patched:
        patched.setattr(OutputRecord, "_write", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            accept(record, 1)
    assert json.loads((record.folder / "0001.json").read_text())["decision"] is None
    assert record.add([MOST_OF_A], ACRO)[0]["status"] == "fail"
    with pytest.raises(InputError, match="already has a decision"):
        record.decide(1, accept=False, by="officer", reason="second thoughts")


def replace_folder(folder, copy):
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def overwrite_in_place(folder, copy):
    for path in folder.glob("*.json"):
        if not (copy / path.name).exists():
            path.unlink()
    for path in copy.rglob("*"):
        if path.is_file():
            (folder / path.relative_to(copy)).write_bytes(path.read_bytes())


def remove_state(folder, _copy):
    shutil.rmtree(folder / "state")


@pytest.mark.parametrize("put_back", [replace_folder, overwrite_in_place, remove_state])
def test_a_restored_record_passes_nothing(record, folder, tmp_path, put_back):
    record.add([PLOT], ACRO)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    record.add([TOWNS], ACRO)
    accept(record, 2)
    put_back(folder, copy)
    for _ in range(2):  # the doubt outlives the process that noticed
        [entry] = record.add([MOST_OF_A], ACRO)
        assert entry["status"] != "pass"
        assert "restored" in entry["reasons"][-1]
        with pytest.raises(InputError, match="needs a reason"):
            accept(record, entry["id"])


def test_one_process_at_a_time(record):
    with record._open(), pytest.raises(FileError, match="is in use"):
        OutputRecord(record.folder).add([TOWNS], ACRO)


def cell(**values):
    return {"labels": {"town": "a"}, "count": 50, **values}


@pytest.mark.parametrize(
    "output",
    [
        {**TOWNS, "cells": {}},  # ended the process in SciPy
        {**TOWNS, "cells": []},
        {**TOWNS, "cells": [cell(count=10**400)]},
        {**TOWNS, "cells": [cell(count=float("nan"))]},
        {**TOWNS, "cells": [cell(labels={"town": "a", "hiv": "yes"})]},  # a condition that nobody checks
        {**TOWNS, "cells": [cell(labels={"town": ["a", "b"]})]},
        {**TOWNS, "cells": [cell(contributions={"a": 1})]},
        {**TOWNS, "cells": [cell(contributions=["1", "2"])]},
        {**TOWNS, "cells": [cell(contributions=[3, 2], total="5")]},
        {**TOWNS, "by": "t"},
        {**TOWNS, "by": ["town", "town"]},
        {**TOWNS, "where": {"age": ["30", "40"]}},  # a union would look like a category of its own
        {**TOWNS, "where": ["age"]},
        {**TOWNS, "n": float("inf")},
        {**TOWNS, "n": -1},
        {**TOWNS, "gamma": "infinite"},
        {**TOWNS, "gamma": True},
        {**TOWNS, "gamma": 0.5},
        {**TOWNS, "gamma": "1e999999999"},
    ],
)
def test_what_cannot_be_checked_is_refused_and_not_kept(record, output):
    with pytest.raises(MasqueradeError) as told:
        record.add([PLOT, output], ACRO)
    assert isinstance(told.value, InputError)
    assert record.entries() == []


def test_a_stated_gamma_does_not_lift_the_rules_for_whole_counts(record):
    few = {**TOWNS, "cells": [cell(count=3), cell(labels={"town": "b"}, count=97)]}
    estimate = {**TOWNS, "cells": [cell(count=2.75), cell(labels={"town": "b"}, count=97.25)], "gamma": "19"}
    entries = record.add([few, {**few, "gamma": 19}, estimate], ACRO)
    assert [entry["status"] for entry in entries] == ["fail", "review", "pass"]
    negative = {**TOWNS, "cells": [cell(count=-50), cell(labels={"town": "b"}, count=150)]}
    for output in (negative, {"type": "model", "n": 100, "parameters": -50}):
        assert record.add([output], ACRO)[0]["status"] == "review"


def test_many_cells_are_for_review_in_little_memory(record):
    cells = [{"labels": {"a": str(one)}, "count": 20} for one in range(4000)]
    tables = [{"by": ["a"], "n": 80_000, "cells": cells}] * 2
    assert [entry["status"] for entry in record.add(tables, ACRO)] == ["review", "review"]
