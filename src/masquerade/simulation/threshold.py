"""Formulation 1: rows open if their quasi-identifier occurs at least k times (threshold reporting).

In the production form people query a randomness server once and report once, and the collector opens rows.
The faithful form follows Wright's talk of 2005: a dealer's polynomial, shares in the exponent, and a miner
that interpolates.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.core.schema import Schema
from masquerade.crypto.errors import ProofRejected
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.protocols.k_anonymity.threshold import faithful
from masquerade.protocols.k_anonymity.threshold.class_opening import Verdict
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import Notice, ReportLayout
from masquerade.protocols.k_anonymity.threshold.roles import Client, Collector, RandomnessServer
from masquerade.protocols.k_anonymity.threshold.row_schema import (
    Form,
    faithful_guarantee,
    production_guarantee,
)
from masquerade.simulation.costs import Culprit, Meter, PopulationCost, Result
from masquerade.simulation.people import People, Trouble, check_clear, name_of

Mode = Literal["production", "faithful"]
MODES: tuple[Mode, ...] = get_args(Mode)
Row = tuple[bytes, bytes]  # quasi-identifier and sensitive values
Opened = tuple[
    tuple[Row, ...], dict[str, int], tuple[Culprit, ...]
]  # rows, number of closed rows by reason, bad reports
EPOCH, SERVER = "simulation", "randomness server"
TOGETHER = 1000  # requests that the server handles in one batch
BELOW, BAD = "the class has fewer than k good points", "the point differs from the dealt one"


@dataclass(frozen=True, slots=True, eq=False)
class KAnonymity(Result):
    """Result of an epoch: opened rows, closed rows by reason, faults, cost and guarantee.

    `as_expected` is True if the opened rows are those that the clear table of all good reports would show.
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
    cost: PopulationCost
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"formulation": 1, **Result.to_dict(self)}


def k_anonymity(
    people: People,
    k: int,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    mode: Mode = "production",
    *,
    trouble: Trouble | None = None,
) -> KAnonymity:
    """Open the rows whose quasi-identifier occurs at least k times (formulation 1).

    Every message is encoded as bytes.

    Parameters
    ----------
    people : People
        Records of the people. Their policy must not disguise any variable.
    k : int
        Smallest size of a class that opens.
    quasi : sequence of str
        Quasi-identifiers.
    sensitive : sequence of str
        Sensitive variables.
    mode : {"production", "faithful"}, optional
        Threshold reporting with a randomness server, or the form of the talk.
    trouble : Trouble, optional
        Shares of the people who leave, and who send an invalid share.

    Returns
    -------
    KAnonymity
        Opened rows, faults and costs.

    Raises
    ------
    InputError
        If the mode is unknown, a column is named twice, there are too few people, or the policy disguises
        variables.
    """
    if mode not in MODES:
        raise InputError(f"The mode must be one of {', '.join(MODES)}. Got {mode!r} instead.")
    check_clear(people, k)
    form = _form_of(people.policy.schema, quasi, sensitive)
    labels = {name: people.policy.schema.decode(name, people.codes[name]) for name in form.schema}
    leaving, cheating = (trouble or Trouble()).among(len(people))
    rows = {
        place: form.fill(dict(zip(labels, row, strict=True)))
        for place, row in enumerate(zip(*labels.values(), strict=True))
        if place not in leaving
    }
    meter = Meter(len(people), rounds=1)
    if mode == "production":
        compile_kernels()
        opened, closed, faults = _production(rows, form, k, cheating, meter)
        guarantee = production_guarantee(form.terms(EPOCH, k), form)
    else:
        opened, closed, faults = _faithful(rows, k, cheating, meter)
        guarantee = faithful_guarantee(k, form.quasi, form.sensitive)
    good = [row for place, row in rows.items() if place not in cheating]
    sizes = Counter(own for own, _ in good)
    return KAnonymity(
        mode,
        len(people),
        k,
        form.quasi,
        form.sensitive,
        len(opened),
        len({own for own, _ in opened}),
        closed,
        len(leaving),
        len(cheating),
        faults,
        Counter(opened) == Counter(row for row in good if sizes[row[0]] >= k),
        meter.cost(list(rows), list(rows)),
        guarantee,
    )


def _form_of(schema: Schema, quasi: Sequence[str], sensitive: Sequence[str]) -> Form:
    """Return the form of the selected variables, in the order of the schema."""
    named = (*quasi, *sensitive)
    for name in named:
        schema[name]
        if named.count(name) > 1:
            raise InputError(f"{name!r} is named twice: a column is a quasi-identifier or sensitive.")
    chosen = Schema([schema[name] for name in schema if name in named])
    ordered = [tuple(name for name in chosen if name in some) for some in (quasi, sensitive)]
    return Form(chosen, ordered[0], ordered[1])


@cache
def compile_kernels() -> None:
    """Compile all kernels by opening a small class in advance, so that no role is charged for compilation."""
    form = Form(Schema({"quasi": ["a", "b"], "sensitive": ["c", "d"]}), ("quasi",), ("sensitive",))
    row = form.fill({"quasi": "a", "sensitive": "c"})
    _production(dict.fromkeys(range(4), row), form, 2, {0}, Meter(4))


def _production(
    rows: Mapping[int, Row], form: Form, k: int, cheating: Collection[int], meter: Meter
) -> Opened:
    """Run an epoch. Reports reach the collector in random order, as through an anonymous channel."""
    server = meter.watch(RandomnessServer(os.urandom(32), EvaluationLedger()), SERVER)
    notice = server.open(form.terms(EPOCH, k).encode())
    published, layout = Notice.decode(notice).digest, ReportLayout.of(Notice.decode(notice))
    clients, requests, replies = {}, {}, dict[int, bytes]()
    for place, (quasi, _) in rows.items():
        credential = server.enrol(f"person {place}")
        with meter.charge(place):
            clients[place] = Client(credential, notice, identity=server.identity, published=published)
            requests[place] = clients[place].request(quasi)
    for at in range(0, len(rows), TOGETHER):
        some = list(rows)[at : at + TOGETHER]
        replies |= dict(zip(some, server.evaluate([requests[place] for place in some]), strict=True))
    closing = server.close(EPOCH)
    reports = []
    for place, (_, sensitive) in rows.items():
        with meter.charge(place):
            report = clients[place].report(replies[place], sensitive)
        meter.sent[place] = len(requests[place]) + len(report)
        meter.received[place] = len(notice) + len(replies[place])
        reports.append(_with_bad_share(layout, report) if place in cheating else report)
    order = np.random.default_rng().permutation(len(reports))
    with meter.charge("collector"):
        collector = Collector(notice, identity=server.identity, k=k)
        collector.begin(closing)
        collector.take(b"".join([reports[i] for i in order]))
        opening = collector.open_classes(form.readable)
    others = [verdict for verdict in Verdict if verdict is not Verdict.OPENED]
    return (
        tuple(opening.rows()),
        {verdict.reason: n for verdict in others if (n := opening.count(verdict))},
        tuple(Culprit(f"report {fault.report + 1}", fault.verdict.reason) for fault in opening.faults()),
    )


def _faithful(rows: Mapping[int, Row], k: int, cheating: Collection[int], meter: Meter) -> Opened:
    """Run an epoch. The miner sees who submits which quasi-identifier."""
    size = max(len(sensitive) for _, sensitive in rows.values())
    with meter.charge("dealer"):
        dealer = faithful.PolynomialDealer(EPOCH, k=k, users=meter.n, sensitive_size=size)
        dealing = dealer.dealing()
        deals = [dealer.deal(place + 1) for place in range(meter.n)]
    submissions = {}
    for place, row in rows.items():
        with meter.charge(place):
            submission = faithful.DealtUser(dealing, deals[place]).submit(*row)
        meter.received[place] = len(dealing) + len(deals[place])
        meter.sent[place] = len(submission)
        submissions[place] = _with_other_point(submission) if place in cheating else submission
    faults: list[Culprit] = []
    with meter.charge("miner"):
        miner = faithful.DealtMiner(dealing)
        for place, submission in submissions.items():
            try:
                miner.take(submission)
            except ProofRejected:
                faults.append(Culprit(name_of(place), BAD))
        opened = miner.open_classes()
    faults += [Culprit(name_of(index - 1), why) for index, why in opened.faults]
    closed = Counter(fault.why for fault in faults)
    closed[BELOW] = len(submissions) - len(opened.rows) - len(faults)
    return opened.rows, {why: n for why, n in closed.items() if n}, tuple(faults)


def _with_bad_share(layout: ReportLayout, report: bytes) -> bytes:
    record = layout.read(report).copy()
    record["y"][:, 0] ^= np.uint64(1)
    return bytes(record.tobytes())


def _with_other_point(submission: bytes) -> bytes:
    given = faithful.DealtSubmission.decode(submission)
    return replace(given, point=given.point + ristretto255.generator).encode()
