"""A whole epoch: exactly the classes with k reports open, and nothing else leaves a client readable."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.k_anonymity.threshold.world import Insiders, World

from masquerade.protocols.k_anonymity.threshold.class_opening import Verdict, open_reports
from masquerade.protocols.k_anonymity.threshold.messages import ThresholdTerms


def expected(rows, k):
    sizes = Counter(quasi for quasi, _ in rows)
    return Counter(row for row in rows if sizes[row[0]] >= k)


@pytest.mark.parametrize("shown", [False, True])
def test_exactly_the_classes_with_k_reports_open(shown):
    rows = [(f"zip{size}".encode(), f"ill {size}.{i}".encode()) for size in range(1, 6) for i in range(size)]
    world = World(ThresholdTerms("spring", 3, 12, 16, shown))
    opening = world.opening(world.reports(rows))
    assert Counter(opening.rows()) == expected(rows, 3)
    assert opening.small == {1: 1, 2: 1}  # what else the collector learns
    assert opening.faults() == []
    assert (opening.received, opening.opened, opening.count(Verdict.BELOW_K)) == (15, 12, 3)
    assert "12 rows of 3 classes open" in opening.summary()


def test_the_table_of_the_talk():
    table = [
        ("11-12-39", "07030", "No Allergy", "Colitis"),
        ("08-02-57", "07029", "No Allergy", "Stroke"),
        ("03-24-79", "07030", "Penicillin", "Pharyngitis"),
        ("08-02-57", "07029", "Sulfur", "Diphtheria"),
        ("11-12-39", "07030", "No Allergy", "Colitis"),
    ]
    rows = [("|".join(row[:2]).encode(), "|".join(row[2:]).encode()) for row in table]
    world = World(ThresholdTerms("talk", 2, 32, 64))
    opened = Counter(world.opening(world.reports(rows)).rows())
    assert opened == Counter(rows[i] for i in (0, 1, 3, 4))  # all but Pharyngitis


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5),
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=4)), max_size=40),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_output_is_k_anonymous_and_nothing_large_is_missing(k, rows, shown, random):
    insiders = Insiders(World(ThresholdTerms("any", k, 2, 4, shown)).layout)
    reports = [insiders.report(*row) for row in rows]
    reports += random.sample(reports, len(reports) // 3)  # replayed
    random.shuffle(reports)
    opening = open_reports(insiders.layout, b"".join(reports))
    assert Counter(opening.rows()) == expected(rows, k)
    assert all(size >= k for size in Counter(quasi for quasi, _ in opening.rows()).values())
    assert {fault.verdict for fault in opening.faults()} <= {Verdict.REPEATED}


@pytest.mark.parametrize("shown", [False, True])
def test_clear_values_never_leave_a_client(shown):
    world = World(ThresholdTerms("spring", 3, 16, 16, shown))
    rows = [(b"QUASI-0703%d" % (i % 3), b"SECRET-%d" % i + b"!" * (i % 8)) for i in range(9)]
    people = [world.client(str(i)) for i in range(9)]
    requests = [person.request(quasi) for person, (quasi, _) in zip(people, rows, strict=True)]
    replies = world.server.evaluate(requests)
    reports = [p.report(r, part) for p, r, (_, part) in zip(people, replies, rows, strict=True)]
    for request in requests:
        assert b"QUASI" not in request
    for report in reports:
        assert b"SECRET" not in report
        assert (b"QUASI" in report) == shown
    assert len({len(request) for request in requests}) == 1
    assert len({len(report) for report in reports}) == 1  # whatever the lengths of rows
    small = World(ThresholdTerms("summer", 4, 16, 16), server=world.server)
    assert list(small.opening(small.reports(rows)).rows()) == []


def test_a_row_that_is_too_long_is_refused_before_anything_leaves():
    person = World().client("ann")
    with pytest.raises(ValueError, match="at most 12 bytes"):
        person.request(b"q" * 13)
    assert person._blinded is None


def test_rows_of_a_class_come_in_no_order():
    insiders = Insiders(World(ThresholdTerms("any", 2, 2, 4)).layout)
    reports = b"".join(insiders.report(b"q", i.to_bytes(2, "big")) for i in range(40))
    orders = {tuple(part for _, part in open_reports(insiders.layout, reports).rows()) for _ in range(3)}
    assert len(orders) == 3  # two alike by chance: 3 in 40!
    assert tuple(i.to_bytes(2, "big") for i in range(40)) not in orders
