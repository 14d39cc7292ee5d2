"""Formulation 1 with a randomness server: people ask it once, report once, and the collector opens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import numpy as np

from masquerade.core.schema import Schema
from masquerade.protocols.threshold.class_opening import REASONS, Verdict
from masquerade.protocols.threshold.client import Client
from masquerade.protocols.threshold.collector import Collector
from masquerade.protocols.threshold.guarantees import production_guarantee
from masquerade.protocols.threshold.messages import Notice
from masquerade.protocols.threshold.report_layout import Layout
from masquerade.protocols.threshold.row_schema import Form
from masquerade.protocols.threshold.server import RandomnessServer
from masquerade.protocols.threshold.stores import EvaluationLedger
from masquerade.simulation.costs import Meter
from masquerade.simulation.outcome import Caught
from masquerade.simulation.threshold_outcome import Opened, Row

SERVER, COLLECTOR = "randomness server", "collector"
TOGETHER = 1000  # requests that the server takes from its queue at once


def run(rows: Sequence[Row], form: Form, k: int, leaving: frozenset[int], cheating: frozenset[int]) -> Opened:
    """Run an epoch; reports reach the collector in random order, as through something that hides senders."""
    compile_kernels()
    return epoch(rows, form, k, leaving, cheating)


@cache
def compile_kernels() -> None:
    """Open a class of three with a bad report among them, so that no role is charged for compiling."""
    form = Form(Schema({"quasi": ["a", "b"], "sensitive": ["c", "d"]}), ("quasi",), ("sensitive",))
    epoch([form.fill({"quasi": "a", "sensitive": "c"})] * 4, form, 2, frozenset(), frozenset({0}))


def epoch(
    rows: Sequence[Row], form: Form, k: int, leaving: frozenset[int], cheating: frozenset[int]
) -> Opened:
    """Run one epoch from its notice to its opening."""
    meter = Meter(len(rows))
    staying = [place for place in range(len(rows)) if place not in leaving]
    terms = form.terms("simulation", k)
    server = RandomnessServer(os.urandom(32), EvaluationLedger())
    with meter.role(SERVER):
        notice = server.open(terms.encode())
    published = Notice.decode(notice).digest
    layout = Layout.of(Notice.decode(notice))
    clients, requests = {}, {}
    for place in staying:
        with meter.role(SERVER):
            credential = server.enrol(f"person {place}")
        with meter.user(place):
            clients[place] = Client(credential, notice, identity=server.identity, published=published)
            requests[place] = clients[place].request(rows[place][0])
    replies: dict[int, bytes] = {}
    for at in range(0, len(staying), TOGETHER):
        some = staying[at : at + TOGETHER]
        with meter.role(SERVER):
            answers = server.evaluate([requests[place] for place in some])
        replies |= dict(zip(some, answers, strict=True))
    with meter.role(SERVER):
        closing = server.close(terms.epoch)
    reports = []
    for place in staying:
        with meter.user(place):
            report = clients[place].report(replies[place], rows[place][1])
        meter.sent[place] = len(requests[place]) + len(report)
        meter.received[place] = len(notice) + len(replies[place])
        reports.append(spoilt(layout, report) if place in cheating else report)
    order = np.random.default_rng().permutation(len(reports))
    with meter.role(COLLECTOR):
        collector = Collector(notice, identity=server.identity, k=k)
        collector.begin(closing)
        collector.take(b"".join([reports[i] for i in order]))
        opening = collector.open_classes(form.readable)
    closed = {
        REASONS[verdict]: opening.count(verdict)
        for verdict in Verdict
        if verdict is not Verdict.OPENED and opening.count(verdict)
    }
    faults = tuple(Caught(f"report {fault.report + 1}", fault.reason) for fault in opening.faults())
    return Opened(
        tuple(opening.rows()),
        closed,
        faults,
        meter.cost(staying, staying, 1),
        production_guarantee(terms, form),
    )


def spoilt(layout: Layout, report: bytes) -> bytes:
    """Return a report whose share is off by one bit."""
    record = layout.read(report).copy()
    record["y"][:, 0] ^= np.uint64(1)
    return bytes(record.tobytes())
