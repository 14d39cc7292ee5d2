"""A randomness server, people and a collector, speaking in bytes."""

import os

from masquerade.crypto.class_secrets import secret_of
from masquerade.crypto.oprf import output_of
from masquerade.kernels.field61 import PRIME
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import Notice, ReportLayout, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.roles import (
    Client,
    Collector,
    RandomnessServer,
    report_of,
)

SEED = bytes(range(32))


class World:
    """One epoch from its opening to its end."""

    def __init__(self, terms=None, ledger=None, server=None):
        self.terms = terms or ThresholdTerms("spring", 3, 12, 16)
        self.server = server or RandomnessServer(SEED, ledger or EvaluationLedger())
        self.notice = self.server.open(self.terms.encode())
        self.published = Notice.decode(self.notice).digest
        self.layout = ReportLayout.of(Notice.decode(self.notice))

    def client(self, person):
        return Client(
            self.server.enrol(person), self.notice, identity=self.server.identity, published=self.published
        )

    def reports(self, rows):
        """Return everybody's report, made with the server's help."""
        people = [self.client(f"person {i}") for i in range(len(rows))]
        replies = self.server.evaluate([p.request(quasi) for p, (quasi, _) in zip(people, rows, strict=True)])
        return [p.report(r, part) for p, r, (_, part) in zip(people, replies, rows, strict=True)]

    def collector(self, **options):
        collector = Collector(self.notice, identity=self.server.identity, k=self.terms.k, **options)
        collector.begin(self.server.close(self.terms.epoch))
        return collector

    def opening(self, reports, readable=None):
        collector = self.collector()
        for report in reports:
            collector.take(report)
        return collector.open_classes(readable)


class Insiders:
    """People who know the secret of any class: reports without a server, and reports that lie."""

    def __init__(self, layout):
        self.layout = layout
        self.elements = {}
        self.count = 0

    def element(self, quasi):
        return self.elements.setdefault(quasi, os.urandom(32))

    def secret(self, quasi):
        return secret_of(output_of(self.layout.terms.input_of(quasi), self.element(quasi)))

    def report(self, quasi, sensitive=b"", *, x=None, claimed=None, element=None):
        self.count += 1
        return report_of(
            self.layout,
            self.secret(quasi),
            element or self.element(quasi),
            quasi if claimed is None else claimed,
            sensitive,
            x=(1 + int.from_bytes(os.urandom(16), "big") % (PRIME - 1)) if x is None else x,
        )

    def changed(self, report, **fields):
        """Return a report with some fields set to other values."""
        record = self.layout.read(report).copy()
        for name, value in fields.items():
            record[name] = value
        return record.tobytes()
