"""Batches: published numbers of an open survey move by k reports or more, in every cell and every history."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey.collector.batches import (
    MODES_DIMENSION,
    TOTAL,
    CellPlan,
    ReportBatches,
    SteppedCount,
    quota_dimension,
    variable_dimension,
)
from masquerade.survey.collector.quotas import Quota

K = 10


def policy(p):
    binary = {"kind": "binary", "p": p}
    variables = {
        "age": {"categories": ["young", "middle", "old"]},
        "sex": {"categories": ["f", "m"]},
        "pills": {"categories": ["yes", "no"], "channel": binary},
    }
    return Policy.from_dict({"masquerade": 1, "variables": variables})


VERSIONS = {one.id: one for one in (policy(0.25), policy(0.2))}
QUOTAS = (Quota("age", "young", 30), Quota("pills", "yes", 40))
DIMENSIONS = (MODES_DIMENSION, variable_dimension("age"), variable_dimension("sex"), quota_dimension(1))


def cells_of(name, content):
    """Name every cell that a report is in, without the code under test."""
    mode, (age, sex, pills) = content
    yield from ((name, TOTAL[0], 0), (name, MODES_DIMENSION, mode), (name, quota_dimension(1), pills == 0))
    yield from ((name, variable_dimension("age"), age), (name, variable_dimension("sex"), sex))


class History:
    """A survey, and all that an attacker saw of it: which reports were in a cell when it was shown last."""

    def __init__(self, *, joint):
        self.joint, self.number, self.withdrawn = joint, 0, 0
        self.stored, self.published = {}, {}  # numbers of reports, by version and content
        self.present = {}  # version and content, by number
        self.plan = CellPlan(VERSIONS, 2, QUOTAS, joint=joint)
        self.seen = {}  # by cell: the numbers of its reports when it was shown last
        self.steps = []
        self.restart()

    def counts(self):
        found = {}
        for (name, content), own in self.stored.items():
            if own:
                found.setdefault(name, {})[content] = len(own)
        return found

    def restart(self):
        self.published = {}
        self.batches = ReportBatches(self.plan, K, self.counts(), untouched=not self.withdrawn)

    def arrive(self, name, content):
        self.number += 1
        self.stored.setdefault((name, content), set()).add(self.number)
        self.present[self.number] = (name, content)

    def withdraw(self, choice):
        if self.present:
            number = next(islice(self.present, choice % len(self.present), None))
            self.stored[self.present.pop(number)].remove(number)
            self.withdrawn += 1

    def name_reports(self):
        """Return which reports are published: equal ones are exchangeable, so withdrawn ones go first."""
        found = {}
        for name, own in self.batches.published_counts().items():
            for content, number in own.items():
                stored = self.stored.get((name, content), set())
                reports = self.published.get((name, content), set())
                if len(reports) > number:
                    reports = set(sorted(reports, key=lambda it: it not in stored)[:number])
                elif len(reports) < number:
                    reports = reports | set(sorted(stored - reports)[: number - len(reports)])
                assert len(reports) == number
                found[name, content] = reports
        self.published = found
        return found

    def look(self):
        """Advance as the clock does, and compare every cell that is shown with what was shown before."""
        if not self.batches.advance(self.counts()):
            return
        published = self.name_reports()
        names = {name for name, _ in published}
        shown = {name: {TOTAL[0], *(d for d in DIMENSIONS if self.batches.shows(name, d))} for name in names}
        now = {cell: set() for cell in self.seen if cell[1] in shown.get(cell[0], ())}  # 0 if none is left
        for (name, content), reports in published.items():
            for cell in cells_of(name, content):
                if cell[1] in shown[name]:
                    now.setdefault(cell, set()).update(reports)
            if self.joint:  # a row shows everything that is clear together
                now.setdefault((name, "row", content[0], *content[1][:2]), set()).update(reports)
        for cell, reports in now.items():
            changed = len(reports ^ self.seen.get(cell, set()))
            assert changed == 0 or changed >= K, (cell, changed)
            if changed:
                self.steps.append((cell, changed))
        self.seen |= now


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 2**30), st.integers(1, 30)),
        st.tuples(st.just("withdraw"), st.integers(0, 2**30), st.integers(1, 15)),
        st.tuples(st.sampled_from(["look", "restart"]), st.just(0), st.just(1)),
    ),
    max_size=60,
)


def live(history, events, weights=(8, 3, 1)):
    names = sorted(VERSIONS)
    for event, choice, times in events:
        for i in range(times):
            random_choice = random.Random(choice + i)  # noqa: S311
            if event == "arrive":
                age = random_choice.choices(range(3), weights)[0]
                content = (int(random_choice.random() < 0.1), (age, random_choice.randrange(2), choice % 2))
                history.arrive(names[random_choice.random() < 0.2], content)
            elif event == "withdraw":
                history.withdraw(random_choice.randrange(2**30))
            elif event == "restart":
                history.restart()
            if choice % 3:  # sometimes the clock comes after every report, sometimes after many
                history.look()
        history.look()


@pytest.mark.parametrize("joint", [False, True])
@settings(max_examples=150, deadline=None)
@given(events=EVENTS)
def test_no_history_moves_a_shown_cell_by_fewer_than_k(joint, events):
    live(History(joint=joint), events)


@pytest.mark.parametrize("joint", [False, True])
def test_long_random_histories_move_often_and_never_by_fewer_than_k(joint):
    """Thousands of reports: every kind of cell is shown and moves, so the check above is not empty."""
    moved = Counter()
    for seed in range(4):
        chance, history = random.Random(seed), History(joint=joint)  # noqa: S311
        kinds = ["arrive"] * 12 + ["withdraw"] * 2 + ["look"] * 4 + ["restart"] * (seed % 2)
        live(
            history,
            [(chance.choice(kinds), chance.randrange(2**30), chance.randrange(1, 30)) for _ in range(120)],
        )
        moved.update(cell[1] for cell, _ in history.steps)
        assert history.withdrawn > 10
    assert set(moved) == {TOTAL[0], *DIMENSIONS, *(["row"] if joint else [])}
    assert min(moved.values()) >= 10


def fill(history, name, *contents):
    for content in contents:
        history.arrive(name, content)


def test_nothing_is_shown_after_a_restart_until_k_reports_arrived_since():
    """Whatever was pending then: with what was shown before, a step of one could follow."""
    name, history = min(VERSIONS), History(joint=False)
    fill(history, name, *[(0, (i % 2, i % 2, i // 20)) for i in range(40)])
    history.look()
    assert sum(history.batches.published_counts()[name].values()) == 40
    fill(history, name, (0, (0, 0, 1)))
    history.restart()
    history.look()
    assert history.batches.published_counts() == {}
    fill(history, name, *[(0, (0, 0, 1))] * (K - 1))
    history.look()
    assert history.batches.published_counts() == {}
    fill(history, name, (0, (1, 1, 1)))
    history.look()
    assert sum(history.batches.published_counts()[name].values()) == 51
    assert not history.batches.shows(name, variable_dimension("age"))  # one of them had one arrival
    fill(history, name, *[(0, (1, 1, 1))] * (K - 1))
    history.look()
    assert not history.batches.shows(name, variable_dimension("age"))
    fill(history, name, (0, (1, 1, 1)))
    history.look()
    assert not history.batches.shows(name, variable_dimension("age"))  # the other had nine, and one before
    fill(history, name, *[(0, (0, 0, 0))] * K)
    history.look()
    assert history.batches.shows(name, variable_dimension("age"))


def test_a_category_that_nobody_chose_is_shown_unless_reports_were_withdrawn_before_the_start():
    name = min(VERSIONS)
    for withdrawn in (0, 1):
        history = History(joint=False)
        fill(history, name, *[(0, (0, i % 2, i // 20)) for i in range(40)])
        history.withdrawn = withdrawn
        history.restart()
        fill(history, name, *[(0, (0, i % 2, i // 20)) for i in range(40)])
        history.look()
        assert history.batches.shows(name, variable_dimension("sex"))
        assert history.batches.shows(name, variable_dimension("age")) == (not withdrawn)


def test_equal_batches_are_published_whatever_the_number_of_looks():
    """A look moves nothing by itself: the same reports between two turns of the clock give the same set."""
    name = min(VERSIONS)
    found = []
    for looks in (1, 5):
        history = History(joint=False)
        for turn in range(30):
            fill(history, name, *[(0, ((turn + i) % 3, i % 2, i % 2)) for i in range(7)])
            for _ in range(looks):
                history.look()
        found.append(history.batches.published_counts())
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.parametrize("k", [0, 1, 9])
def test_batches_below_ten_are_refused(k):
    with pytest.raises(InputError, match=f"at least 10 reports.*Got {k}"):
        ReportBatches(CellPlan(VERSIONS, 2), k, {}, untouched=True)


def test_stepped_counts_show_steps_of_k_alone():
    chance, count, number = random.Random(1), SteppedCount(K, 4), 4  # noqa: S311
    shown = [0]
    for _ in range(500):
        number += chance.randrange(4)
        value = count.advance(number)
        shown += [] if value is None else [value]
    steps = {after - before for before, after in pairwise(shown)}
    assert len(steps) > 2
    assert all(step == 0 or step >= K for step in steps)
