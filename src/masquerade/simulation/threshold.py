"""Formulation 1: rows open whose quasi-identifier occurs at least k times; costs, and whose shares are bad.

In the production form people ask a randomness server once, report once, and the collector opens. The
faithful form is the talk's: a dealer's polynomial, shares in the exponent, a miner that interpolates.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.core.schema import Schema
from masquerade.crypto.errors import ProofRejected
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.protocols.threshold import faithful
from masquerade.protocols.threshold.class_opening import REASONS, Verdict
from masquerade.protocols.threshold.client import Client
from masquerade.protocols.threshold.collector import Collector
from masquerade.protocols.threshold.guarantee import faithful_guarantee, production_guarantee
from masquerade.protocols.threshold.messages import Notice
from masquerade.protocols.threshold.report_layout import Layout
from masquerade.protocols.threshold.row_schema import Form
from masquerade.protocols.threshold.server import RandomnessServer
from masquerade.protocols.threshold.stores import EvaluationLedger
from masquerade.simulation.costs import Cost, Meter
from masquerade.simulation.misbehaviour import Culprit, Trouble, name_of
from masquerade.simulation.people import People, check_clear
from masquerade.simulation.results import Result

Mode = Literal["production", "faithful"]
MODES: tuple[Mode, ...] = get_args(Mode)
Row = tuple[bytes, bytes]  # quasi-identifier and sensitive part
SERVER, COLLECTOR, DEALER, MINER = "randomness server", "collector", "dealer", "miner"
TOGETHER = 1000  # requests that the server takes from its queue at once
BELOW, BAD = "the class has fewer than k good points", "the point is not the one it was dealt"


@dataclass(frozen=True, slots=True, eq=False)
class KAnonymity(Result):
    """What came out of an epoch: how many rows opened and why others did not, faults, cost, guarantee.

    `closed` counts rows by the reason why they did not open. `as_expected` tells that exactly those rows
    opened that the clear table of all who sent good reports would show.
    """

    mode: Mode
    n: int
    k: int
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    opened: int
    classes: int
    closed: dict[str, int]
    left: int
    cheated: int
    faults: tuple[Culprit, ...]
    as_expected: bool
    cost: Cost
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"formulation": 1, **Result.to_dict(self)}


@dataclass(frozen=True, slots=True, eq=False)
class EpochOutcome:
    """Open rows, how many others did not open for which reason, bad reports, cost and guarantee."""

    rows: tuple[Row, ...]
    closed: dict[str, int]
    faults: tuple[Culprit, ...]
    cost: Cost
    guarantee: Guarantee


def k_anonymity(
    people: People,
    k: int,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    mode: Mode = "production",
    *,
    trouble: Trouble | None = None,
) -> KAnonymity:
    """Open the rows whose quasi-identifier occurs at least k times (formulation 1), every message as bytes.

    People who leave take no part; people who cheat send a share that is not their own.
    """
    if mode not in MODES:
        raise InputError(f"The mode must be one of {', '.join(MODES)}. Got {mode!r} instead.")
    check_clear(people, k)
    form = form_of(people.policy.schema, quasi, sensitive)
    rows = rows_of(people, form)
    leaving, cheating = (trouble or Trouble()).among(len(people))
    run = production_epoch if mode == "production" else faithful_epoch
    if mode == "production":
        compile_kernels()
    result = run(rows, form, k, leaving, cheating)
    good = [row for place, row in enumerate(rows) if place not in leaving | cheating]
    sizes = Counter(own for own, _ in good)
    expected = Counter(row for row in good if sizes[row[0]] >= k)
    return KAnonymity(
        mode,
        len(people),
        k,
        form.quasi,
        form.sensitive,
        len(result.rows),
        len({own for own, _ in result.rows}),
        result.closed,
        len(leaving),
        len(cheating),
        result.faults,
        Counter(result.rows) == expected,
        result.cost,
        result.guarantee,
    )


def form_of(schema: Schema, quasi: Sequence[str], sensitive: Sequence[str]) -> Form:
    """Return the form of the variables that take part, in the order of the schema."""
    named = (*quasi, *sensitive)
    for name in named:
        schema[name]
        if named.count(name) > 1:
            raise InputError(f"{name!r} is named twice: a column is a quasi-identifier or sensitive.")
    chosen = Schema([schema[name] for name in schema if name in named])
    ordered = [tuple(name for name in chosen if name in some) for some in (quasi, sensitive)]
    return Form(chosen, ordered[0], ordered[1])


def rows_of(people: People, form: Form) -> list[Row]:
    """Return everybody's row, filled in on the form."""
    labels = {name: people.policy.schema.decode(name, people.codes[name]) for name in form.schema}
    return [
        form.fill({name: column[place] for name, column in labels.items()}) for place in range(len(people))
    ]


@cache
def compile_kernels() -> None:
    """Open a class of three with a bad report among them, so that no role is charged for compiling."""
    form = Form(Schema({"quasi": ["a", "b"], "sensitive": ["c", "d"]}), ("quasi",), ("sensitive",))
    row = form.fill({"quasi": "a", "sensitive": "c"})
    production_epoch([row] * 4, form, 2, frozenset(), frozenset({0}))


def production_epoch(
    rows: Sequence[Row], form: Form, k: int, leaving: frozenset[int], cheating: frozenset[int]
) -> EpochOutcome:
    """Run an epoch; reports reach the collector in random order, as through something that hides senders."""
    meter = Meter(len(rows))
    staying = [place for place in range(len(rows)) if place not in leaving]
    terms = form.terms("simulation", k)
    server = meter.watched(RandomnessServer(os.urandom(32), EvaluationLedger()), SERVER)
    notice = server.open(terms.encode())
    published, layout = Notice.decode(notice).digest, Layout.of(Notice.decode(notice))
    clients, requests, replies = {}, {}, dict[int, bytes]()
    for place in staying:
        credential = server.enrol(f"person {place}")
        with meter.user(place):
            clients[place] = Client(credential, notice, identity=server.identity, published=published)
            requests[place] = clients[place].request(rows[place][0])
    for at in range(0, len(staying), TOGETHER):
        some = staying[at : at + TOGETHER]
        answers = server.evaluate([requests[place] for place in some])
        replies |= dict(zip(some, answers, strict=True))
    closing = server.close(terms.epoch)
    reports = []
    for place in staying:
        with meter.user(place):
            report = clients[place].report(replies[place], rows[place][1])
        meter.sent[place] = len(requests[place]) + len(report)
        meter.received[place] = len(notice) + len(replies[place])
        reports.append(with_bad_share(layout, report) if place in cheating else report)
    order = np.random.default_rng().permutation(len(reports))
    with meter.role(COLLECTOR):
        collector = Collector(notice, identity=server.identity, k=k)
        collector.begin(closing)
        collector.take(b"".join([reports[i] for i in order]))
        opening = collector.open_classes(form.readable)
    others = [verdict for verdict in Verdict if verdict is not Verdict.OPENED]
    return EpochOutcome(
        tuple(opening.rows()),
        {REASONS[verdict]: n for verdict in others if (n := opening.count(verdict))},
        tuple(Culprit(f"report {fault.report + 1}", fault.reason) for fault in opening.faults()),
        meter.cost(staying, staying, 1),
        production_guarantee(terms, form),
    )


def faithful_epoch(
    rows: Sequence[Row], form: Form, k: int, leaving: frozenset[int], cheating: frozenset[int]
) -> EpochOutcome:
    """Run an epoch; the miner sees who submits which quasi-identifier."""
    meter = Meter(len(rows))
    staying = [place for place in range(len(rows)) if place not in leaving]
    with meter.role(DEALER):
        dealer = faithful.Dealer("simulation", k=k, users=len(rows), sensitive_size=len(rows[0][1]))
        dealing = dealer.dealing()
        deals = [dealer.deal(place + 1) for place in range(len(rows))]
    submissions = []
    for place in staying:
        with meter.user(place):
            submission = faithful.User(dealing, deals[place]).submit(*rows[place])
        meter.received[place] = len(dealing) + len(deals[place])
        meter.sent[place] = len(submission)
        submissions.append(with_other_point(submission) if place in cheating else submission)
    faults: list[Culprit] = []
    with meter.role(MINER):
        miner = faithful.Miner(dealing)
        for place, submission in zip(staying, submissions, strict=True):
            try:
                miner.take(submission)
            except ProofRejected:
                faults.append(Culprit(name_of(place), BAD))
        opened = miner.open_classes()
    faults += [Culprit(name_of(index - 1), why) for index, why in opened.faults]
    closed = Counter(fault.why for fault in faults)
    closed[BELOW] = len(staying) - len(opened.rows) - len(faults)
    return EpochOutcome(
        opened.rows,
        {why: n for why, n in closed.items() if n},
        tuple(faults),
        meter.cost(staying, staying, 1),
        faithful_guarantee(k, form.quasi, form.sensitive),
    )


def with_bad_share(layout: Layout, report: bytes) -> bytes:
    """Return a report whose share is off by one bit."""
    record = layout.read(report).copy()
    record["y"][:, 0] ^= np.uint64(1)
    return bytes(record.tobytes())


def with_other_point(submission: bytes) -> bytes:
    """Return a submission with another point than the one that was dealt."""
    given = faithful.Submission.decode(submission)
    other = given.point + ristretto255.generator
    return faithful.Submission(given.index, given.quasi, other, given.proof, given.sealed).encode()
