"""Inference control: what may still be answered, against brute force; trackers; what outlives a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.sources.control.answer_history import Answered
from masquerade.sources.control.inference_control import InferenceControl
from masquerade.testing import check_tally

DataDependentRules, Rules, Controlled = mq.DataDependentRules, mq.Rules, mq.Controlled


def table_of(counts: dict[tuple[int, ...], int], names: str) -> pd.DataFrame:
    rows = [values for values, people in counts.items() for _ in range(people)]
    return pd.DataFrame(rows, columns=list(names))


@pytest.fixture
def people() -> pd.DataFrame:
    """A set of two people, a = 1 and b = 1, among a hundred."""
    return table_of({(0, 0): 40, (0, 1): 30, (1, 0): 28, (1, 1): 2}, "ab")


def codes(source, *queries):
    return [refusal.code for refusal in source.check(queries)]


class TestTrackers:
    def test_the_difference_of_two_counts_is_refused(self, people):
        source = Controlled(
            mq.tally(people), Rules(data_dependent=DataDependentRules(5), protect=[["a", "b"]])
        )
        assert codes(source, mq.Query(where={"a": 1, "b": 1})) == ["determined"]
        telling = Controlled(mq.tally(people), Rules(most_variables=9, data_dependent=DataDependentRules(5)))
        assert codes(telling, mq.Query(where={"a": 1, "b": 1})) == ["too_few_people"]
        all_, rest = mq.Query(where={"a": 1}), mq.Query(where={"a": 1, "b": 0})
        assert codes(telling, rest) == []  # 28 people
        telling.answer([all_])
        assert codes(telling, rest) == ["too_few_people"]  # 30 − 28
        with pytest.raises(QueryRefused, match="fewer than 5 people"):
            telling.answer([rest])
        assert codes(Controlled(mq.tally(people), telling.rules), all_, rest) == ["too_few_people"]  # a batch

    def test_all_but_the_union_of_three_is_refused(self):
        counts = dict.fromkeys(product((0, 1), repeat=3), 20) | {(0, 0, 0): 2}
        source = Controlled(
            mq.tally(table_of(counts, "abc")), Rules(most_variables=9, data_dependent=DataDependentRules(5))
        )
        singles = [mq.Query(where={name: 1}) for name in "abc"]
        pairs = [mq.Query(where={x: 1, y: 1}) for x, y in combinations("abc", 2)]
        source.answer([*singles, *pairs])
        # inclusion and exclusion: with all three, n minus the union of three sets is left
        assert codes(source, mq.Query(where={"a": 1, "b": 1, "c": 1})) == ["too_few_people"]
        assert codes(source, mq.Query(by="a")) == []  # follows from what was answered

    def test_an_opposite_of_a_category_is_a_set_too(self):
        counts = {(0, 0): 50, (0, 1): 20, (0, 2): 20, (1, 0): 30, (1, 1): 2, (1, 2): 2}
        source = Controlled(
            mq.tally(table_of(counts, "ab")), Rules(most_variables=9, data_dependent=DataDependentRules(5))
        )
        source.answer([mq.Query(by="a")])
        assert codes(source, mq.Query(where={"a": 1, "b": 0})) == ["too_few_people"]  # 34 − 30: b is 1 or 2
        assert codes(source, mq.Query(where={"a": 0, "b": 0})) == []

    def test_everybody_but_a_few_is_a_small_set(self, people):
        few = table_of({(0, 0): 97, (1, 0): 3}, "ab")
        telling = Rules(most_variables=9, data_dependent=DataDependentRules(5))
        assert codes(Controlled(mq.tally(few), telling), mq.Query(where={"a": 0})) == ["too_few_people"]
        shown = Rules(most_variables=9, data_dependent=DataDependentRules(3, show_empty=True))
        assert codes(Controlled(mq.tally(few), shown), mq.Query(by="a")) == []
        assert codes(Controlled(mq.tally(people), shown), mq.Query(by=("a", "b"))) == ["too_few_people"]


class TestSimulatable:
    def test_refusals_are_the_same_whatever_the_records(self, people):
        other = people.sample(frac=0.3, replace=True).reset_index(drop=True)
        schema = mq.tally(people).schema
        asked = [
            mq.Query(by="a"),
            mq.Query(by="b", where={"a": 1}),
            mq.Query(where={"b": 0}),
            mq.Query(by=("a", "b")),
        ]
        refused = [
            [source.check([query]) for query in asked]
            for source in (
                Controlled(mq.tally(frame, schema=schema), Rules()) for frame in (people, other, people[:0])
            )
        ]
        assert refused[0] == refused[1] == refused[2]
        assert [bool(it) for it in refused[0]] == [False, True, False, True]

    def test_an_impossible_cell_lets_smaller_tables_determine_records(self):
        schema = mq.Schema({"sex": ["m", "f"], "pregnant": ["no", "yes"], "old": ["no", "yes"]})
        barred = ({"sex": "m", "pregnant": "yes"}, {"pregnant": "yes", "old": "yes"})
        frame = pd.DataFrame({"sex": list("mfmf"), "pregnant": ["no"] * 4, "old": ["no", "yes"] * 2})
        source = mq.tally(frame, schema=schema)
        assert codes(Controlled(source, Rules()), mq.Query(by="pregnant")) == []
        known = Controlled(source, Rules(impossible=barred))
        # who is pregnant is a woman and not old: counting them counts a cell of all three variables
        (refusal,) = known.check([mq.Query(by="pregnant")])
        assert refusal.code == "determined"
        assert refusal.reason == (
            "The table of pregnant determines, with earlier answers, a cell of sex × pregnant × "
            "old, which must stay undetermined whatever the counts. Query without pregnant."
        )
        known.answer([mq.Query(by="old")])
        assert codes(known, mq.Query(by="sex")) == []
        assert codes(known, mq.Query(by=("sex", "old"))) == ["determined"]  # men are not pregnant

    def test_at_most_so_many_variables_also_across_impossible_cells(self):
        schema = mq.Schema({name: [0, 1] for name in "abcd"})
        source = mq.tally(pd.DataFrame(0, index=range(5), columns=list("abcd")), schema=schema)
        plain = Controlled(source, Rules(most_variables=2))
        assert codes(plain, mq.Query(by=("a", "b")), mq.Query(where={"a": 1, "b": 0, "c": 0})) == [
            "determined"
        ]
        # b and c are 0 whenever a is 1
        barred = Controlled(source, Rules(most_variables=2, impossible=({"a": 1, "b": 1}, {"a": 1, "c": 1})))
        assert codes(barred, mq.Query(by="a")) == ["determined"]
        assert codes(barred, mq.Query(by="d"), mq.Query(by="b")) == []
        assert codes(barred, mq.Query(by=("b", "d"))) == ["determined"]  # with b = 1 goes a = 0

    def test_a_variable_with_one_value_hides_nothing(self):
        schema = mq.Schema({"a": [0, 1], "b": [0, 1], "only": ["x"]})
        source = mq.tally(pd.DataFrame({"a": [0], "b": [1], "only": ["x"]}), schema=schema)
        assert codes(Controlled(source, Rules()), mq.Query(by=("a", "b"))) == ["determined"]
        assert codes(Controlled(source, Rules()), mq.Query(by=("a", "only"))) == []

    def test_rules_that_came_late_stop_what_earlier_answers_prepared(self, people):
        ledger, schema = MemoryLedger(), mq.tally(people).schema
        InferenceControl(schema, Rules(most_variables=9), ledger).admit([mq.Query(where={"a": 1, "b": 0})])
        strict = InferenceControl(schema, Rules(), ledger)
        assert strict.check([mq.Query()]) == []
        assert [it.code for it in strict.check([mq.Query(by="b")])] == ["determined"]  # a = 0 and b = 0
        assert [it.code for it in strict.check([mq.Query(by="a")])] == ["determined"]  # a = 1 and b = 1


class TestOtherRules:
    def test_overlap(self, people):
        rules = Rules(
            most_variables=9, data_dependent=DataDependentRules(1, most_overlap=30, show_empty=True)
        )
        source = Controlled(mq.tally(people), rules)
        source.answer([mq.Query(where={"a": 1})])
        assert codes(source, mq.Query(where={"a": 1, "b": 0})) == []  # 28 in common
        assert codes(source, mq.Query(where={"b": 0})) == []
        assert codes(source, mq.Query(by="b", where={"a": 0})) == []  # nobody in common
        source.answer([mq.Query(where={"a": 0})])
        assert codes(source, mq.Query(by="b")) == ["overlap"]  # 40 have a = 0 and b = 0
        (refusal,) = source.check([mq.Query(by="b")])
        assert "more than 30 people in common with a cell of the count where a = 0" in refusal.reason

    def test_no_count_is_negative(self):
        """Of 64 people 3 have a = 1 and 3 have b = 1: nobody knows who has both, but they are at most 3."""
        frame = table_of({(0, 0): 60, (0, 1): 1, (1, 0): 1, (1, 1): 2}, "ab")
        asked = [mq.Query(by="a"), mq.Query(by="b")]
        figures = {"least_people": 3, "show_empty": True}
        linear = Rules(most_variables=9, data_dependent=DataDependentRules(**figures))
        assert codes(Controlled(mq.tally(frame), linear), *asked) == []
        for width, refused in ((3, []), (4, ["too_narrow"])):
            rules = Rules(most_variables=9, data_dependent=DataDependentRules(**figures, least_width=width))
            source = Controlled(mq.tally(frame), rules)
            assert codes(source, *asked) == refused

    def test_disguised_counts_cannot_be_small_for_sure(self, people):
        policy = mq.Policy.build(mq.tally(people).schema, {"a": mq.channels.binary("1/4")})
        source = mq.tally(mq.simulate(people, policy, seed=1), policy)
        telling = Controlled(source, Rules(most_variables=9, data_dependent=DataDependentRules(5)))
        with pytest.raises(InputError, match="need exact counts"):
            telling.check([mq.Query(by="a")])
        assert codes(Controlled(source, Rules()), mq.Query(by="a"), mq.Query(by=("a", "b"))) == ["determined"]


class TestHistory:
    def test_what_was_answered_survives_a_killed_process(self, people, tmp_path):
        people.to_parquet(tmp_path / "people.parquet", index=False)
        script = (
            "import sys, time, masquerade as mq\n"
            "from masquerade.protocols.people.ledger import FileLedger\n"
            "rules = mq.Rules(most_variables=9, data_dependent=mq.DataDependentRules(5))\n"
            "source = mq.Controlled(mq.tally('people.parquet'), rules, FileLedger('answered.sqlite'))\n"
            "print(source.answer([mq.Query(where={'a': 1})])[0].values, flush=True)\n"
            "time.sleep(600)\n"
        )
        with subprocess.Popen(  # noqa: S603  (our own script)
            [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout.readline().strip() == b"30.0"
            os.kill(process.pid, signal.SIGKILL)
        rules = Rules(most_variables=9, data_dependent=DataDependentRules(5))
        again = Controlled(mq.tally(people), rules, FileLedger(tmp_path / "answered.sqlite"))
        assert codes(again, mq.Query(where={"a": 1, "b": 0})) == ["too_few_people"]
        (entry,) = again.control.history.entries()
        assert entry == Answered((mq.Query(where={"a": 1}),), (mq.tally(people).schema["a"],))
        assert b"30" not in (tmp_path / "answered.sqlite").read_bytes()  # questions, never answers

    def test_two_sources_with_one_history_answer_as_one(self, people, tmp_path):
        rules = Rules(most_variables=9, data_dependent=DataDependentRules(5))
        first, second = (
            Controlled(mq.tally(people), rules, FileLedger(tmp_path / "answered.sqlite")) for _ in range(2)
        )
        assert codes(second, mq.Query(where={"a": 1, "b": 0})) == []  # it has looked at the history by now
        first.answer([mq.Query(where={"a": 1})])
        with pytest.raises(QueryRefused):
            second.answer([mq.Query(where={"a": 1, "b": 0})])

    def test_other_categories_cannot_be_compared(self, people, tmp_path):
        ledger = FileLedger(tmp_path / "answered.sqlite")
        Controlled(mq.tally(people), Rules(), ledger).answer([mq.Query(by="a")])
        named = people.assign(a=people["a"].map({0: "no", 1: "yes"}))
        with pytest.raises(QueryRefused, match="'a' were answered before with different categories"):
            Controlled(mq.tally(named), Rules(), ledger, other_people=True).check([mq.Query(by="b")])


def test_it_keeps_the_promises_of_a_source():
    rng = np.random.default_rng()
    frame = pd.DataFrame(rng.integers(0, 3, (60, 5)), columns=list("abcde"))
    check_tally(Controlled(mq.tally(frame), Rules()), frame)
    some = Controlled(mq.tally(frame), Rules(protect=[["a", "b"]], most_variables=3))
    check_tally(some, frame)
    assert some.simulatable
    assert "refusals follow from the questions alone" in " ".join(some.guarantee.assumptions)
    assert not some.select(["a", "c"]).check([mq.Query(by=("a", "c"))])


def test_rules_that_make_no_sense_are_refused(people):
    for wrong in (
        lambda: Rules(protect=["a"]),
        lambda: Rules(protect=[[]]),
        lambda: Rules(most_variables=0),
        lambda: DataDependentRules(0),
        lambda: DataDependentRules(least_people=True),
        lambda: DataDependentRules(5, most_overlap=-1),
        lambda: Controlled(mq.tally(people), Rules(protect=[["a", "bb"]])),
        lambda: Controlled(mq.tally(people), Rules(impossible=({"a": 7},))),
        lambda: Controlled(mq.tally(people), Rules(impossible=({},))),
        lambda: Controlled(mq.tally(people), Rules(impossible=({"a": 0}, {"a": 1}))),
        lambda: Controlled(people),
    ):
        with pytest.raises(InputError):
            wrong()
