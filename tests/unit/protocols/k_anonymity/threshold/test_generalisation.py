"""People who generalise before submission: every row opens once, at the finest level at which k agree."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.schema import Schema
from masquerade.protocols.k_anonymity.threshold import (
    Client,
    Collector,
    EvaluationLedger,
    Form,
    GeneralisedForm,
    Notice,
    RandomnessServer,
)

ZIPS = ["07029", "07030", "07101", "08000", "08001"]
AGES = ["20", "25", "30", "35"]
FORM = Form(Schema({"zip": ZIPS, "age": AGES, "ill": ["a", "b", "c"]}), ("zip", "age"), ("ill",))
TENS = {"twenties": ["20", "25"], "thirties": ["30", "35"]}
LEVELS = GeneralisedForm(
    FORM,
    {
        "zip": [{"070": ZIPS[:2], "071": ZIPS[2:3], "080": ZIPS[3:]}, {"07": ZIPS[:3], "08": ZIPS[3:]}],
        "age": [TENS],
    },
)


def collected(rows, levels, k):
    """Run the protocol level by level; return the rows that opened at each, and what tags there were."""
    server = RandomnessServer(os.urandom(32), EvaluationLedger())
    credentials = [server.enrol(f"person {i}") for i in range(len(rows))]
    still, found, tags_seen = list(range(len(rows))), [], []
    for level in range(levels.levels):
        form = levels.at(level)
        terms = levels.terms("spring", level, k)
        notice = server.open(terms.encode())
        digest = Notice.decode(notice).digest
        clients = {
            i: Client(credentials[i], notice, identity=server.identity, published=digest) for i in still
        }
        filled = {i: form.fill(levels.row(rows[i], level)) for i in still}
        replies = server.evaluate([clients[i].request(filled[i][0]) for i in still])
        reports = {i: clients[i].report(reply, filled[i][1]) for i, reply in zip(still, replies, strict=True)}
        collector = Collector(notice, identity=server.identity, k=k)
        collector.begin(server.close(terms.epoch))
        for report in sorted(reports.values()):
            collector.take(report)
        opening = collector.open_classes(form.readable)
        codes = form.codes(opening)
        labels = [
            [form.schema[name].categories[code] for code in codes[name].tolist()] for name in form.schema
        ]
        found.append(Counter(zip(*labels, strict=True)))
        tags = collector.opened_tags(form.readable)
        tags_seen.append(tags)
        still = [i for i in still if not clients[i].is_open(tags)]
    return found, tags_seen, still


def in_clear(rows, levels, k):
    """Return the same from rows that are seen: the finest level at which k of those still closed agree."""
    still, found = list(rows), []
    for level in range(levels.levels):
        at = [levels.row(row, level) for row in still]
        sizes = Counter((row["zip"], row["age"]) for row in at)
        opens = [sizes[row["zip"], row["age"]] >= k for row in at]
        found.append(Counter((r["zip"], r["age"], r["ill"]) for r, own in zip(at, opens, strict=True) if own))
        still = [row for row, own in zip(still, opens, strict=True) if not own]
    return found, still


def people(number):
    generator = np.random.default_rng()
    return [
        {
            "zip": ZIPS[min(generator.geometric(0.5) - 1, 4)],
            "age": AGES[generator.integers(4)],
            "ill": "abc"[generator.integers(3)],
        }
        for _ in range(number)
    ]


@pytest.mark.parametrize(("number", "k"), [(40, 3), (25, 4), (6, 2)])
def test_what_opens_is_the_finest_level_of_the_clear_rows(number, k):
    rows = people(number)
    found, tags, still = collected(rows, LEVELS, k)
    clear, left = in_clear(rows, LEVELS, k)
    assert found == clear
    assert sorted(map(str, left)) == sorted(str(rows[i]) for i in still)
    assert sum(opened.total() for opened in found) + len(still) == number  # nobody twice
    for opened in found:  # every group that is shown has k rows at least
        assert all(size >= k for size in Counter(row[:2] for row in opened.elements()).values())
    assert not set.intersection(*map(set, tags))  # nothing in common from level to level


def test_nobody_is_left_alone_beside_those_who_opened_finer():
    """Five of one zip open; the sixth, of the zip beside, must not open as "the five and one"."""
    rows = [{"zip": "07029", "age": "20", "ill": "a"}] * 5 + [{"zip": "07030", "age": "20", "ill": "b"}]
    found, _, still = collected(rows, LEVELS, 5)
    assert [opened.total() for opened in found] == [5, 0, 0]
    assert still == [5]


@pytest.mark.parametrize(
    ("hierarchies", "told"),
    [
        ({"ill": [{"any": ["a", "b", "c"]}]}, "not a quasi-identifier"),
        ({"age": [{"young": ["20", "25"]}]}, "every category"),
        ({"age": [{"young": ["20", "25"], "old": ["25", "30", "35"]}]}, "every category"),
        ({"age": [TENS, {"x": ["20", "30"], "y": ["25", "35"]}]}, "is split"),
        ({}, "no grouping"),
    ],
)
def test_hierarchies_that_are_none_are_refused(hierarchies, told):
    with pytest.raises(SchemaError, match=told):
        GeneralisedForm(FORM, hierarchies)


def test_a_value_that_is_not_on_the_form_is_refused_and_not_shown():
    with pytest.raises(UnknownValue) as told:
        LEVELS.row({"zip": "99999", "age": "20", "ill": "a"}, 1)
    assert "99999" not in str(told.value)
