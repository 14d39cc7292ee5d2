"""A collection as it runs: two servers with real TLS on loopback, an office, and people."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
from tests.services.background import background

from masquerade.protocols.k_anonymity.threshold.messages import Notice, ReportLayout
from masquerade.services.common.client import Operator
from masquerade.services.common.settings import check_files, load
from masquerade.services.threshold import enrolment_office
from masquerade.services.threshold.client import Collection, Submission
from masquerade.services.threshold.collector import CollectorService
from masquerade.services.threshold.example import FORM as EXAMPLE
from masquerade.services.threshold.example import write_collection
from masquerade.services.threshold.randomness_server import RandomnessService
from masquerade.services.threshold.settings import (
    CollectionSettings,
    CollectorSettings,
    OfficeSettings,
    RandomnessSettings,
)

K = 5
MODELS = {
    "randomness": RandomnessSettings,
    "collector": CollectorSettings,
    "office": OfficeSettings,
    "collection": CollectionSettings,
}
SERVERS = {"randomness": RandomnessService, "collector": CollectorService}
FORM = {
    "quasi": {**EXAMPLE["quasi"]},
    # eight answers: a row's sensitive part is nine bytes that do not stand anywhere by chance
    "sensitive": {**EXAMPLE["sensitive"], **{f"answer{i}": list(range(250)) for i in range(8)}},
}
ILLNESSES = ["none", "asthma", "diabetes", "depression"]
# class sizes: three classes reach k, three do not; islands are always small
CLASSES = {
    ("under 30", "female", "north"): 20,
    ("30 to 59", "male", "north"): 21,
    ("60 and over", "female", "south"): 10,
    ("under 30", "male", "islands"): 4,
    ("30 to 59", "female", "islands"): 4,
    ("60 and over", "male", "islands"): 1,
}


def sixty():
    """Return 60 people in six classes, with sensitive values that go round."""
    rows, generator = [], np.random.default_rng(1)
    for (age, sex, region), size in CLASSES.items():
        for _ in range(size):
            i = len(rows)
            row = {
                "person": f"P{i:03d}",
                "age": age,
                "sex": sex,
                "region": region,
                "illness": ILLNESSES[i % 4],
            }
            answers = generator.integers(0, 250, 8).tolist()
            rows.append(row | {f"answer{j}": answer for j, answer in enumerate(answers)})
    return rows


def labels(row):
    return {name: value for name, value in row.items() if name != "person"}


class WatchedSubmission(Submission):
    """A submission whose report is noted in `reports`."""

    def __init__(self, reports, row, credential, to, record):
        super().__init__(labels(row), credential, to, record)
        self._reports, self._person = reports, row["person"]

    def _save(self, record):
        super()._save(record)
        if record.report and not record.delivered:
            self._reports[self._person] = record.report


class World:
    """The folders of a deployment, and what runs in them."""

    def __init__(self, folder, rows=None, *, files=None, **changes):
        self.rows = rows or sixty()
        self.folder = folder
        self.files = files or write_collection(
            folder, **{"k": K, "rows": self.rows, "form": FORM, "epoch": "spring", **changes}
        )
        self.running = {}
        self.collections = []
        self.reports = {}  # by person, as they left: a record of a delivered report has its tag alone

    def settings(self, name):
        settings = load(self.files[name], MODELS[name], environment={})
        check_files(settings, self.files[name])
        return settings

    @contextmanager
    def served(self, *names):
        """Run servers; each may be stopped and started by itself."""
        try:
            for name in names or ("randomness", "collector"):
                self.start(name)
            yield self
        finally:
            for name in list(self.running):
                self.stop(name)

    def start(self, name):
        settings = self.settings(name)
        with ExitStack() as stack:
            server = SERVERS[name](settings)
            stack.callback(server.close)
            host, port = settings.listen.host, settings.listen.port
            url = stack.enter_context(
                background(server.service(), host=host, port=port, tls=settings.tls_files(), grace_seconds=2)
            )
            settings.address_file.write_text(url)
            stack.callback(settings.address_file.unlink)
            self.running[name] = (stack.pop_all(), server)

    def stop(self, name):
        for one in self.collections:
            one.close()  # it connects again when it is used
        self.running.pop(name)[0].close()

    def restart(self, name):
        self.stop(name)
        self.start(name)

    def operate(self, name, what, **values):
        with Operator(self.settings(name), wait=1.0) as operator:
            return operator.ask(what, values)

    def enrol(self, *people):
        return enrolment_office.enrol(list(people), self.settings("office"))

    def collection(self, **options):
        made = Collection(self.settings("collection"), **{"retries": 1, "timeout": 10.0, **options})
        self.collections.append(made)
        return made

    def record(self, person):
        return self.folder / f"{person}.record"

    def report(self, person):
        return self.reports[person]

    def submission(self, row, credential, to):
        return WatchedSubmission(self.reports, row, credential, to, self.record(row["person"]))

    def everybody(self, to, rows=None):
        """Enrol people and have them ask; return their submissions."""
        rows = self.rows if rows is None else rows
        credentials = self.enrol(*[row["person"] for row in rows])
        made = [self.submission(row, credentials[row["person"]], to) for row in rows]
        for one in made:
            one.ask()
        return made

    def layout(self, to):
        return ReportLayout.of(Notice.decode(to.notice()))

    def raw(self, name, place, body, **options):
        """Post as somebody without credentials would, past our own client; return status and what is said."""
        url = f"https://127.0.0.1:{self.settings(name).listen.port}/v1/{place}"
        headers = {"Masquerade-Version": "1"}
        answer = httpx.post(url, content=body, headers=headers, verify=context(self), timeout=100, **options)
        return answer.status_code, answer.content

    def said(self, name, place, body):
        status, content = self.raw(name, place, body)
        return status, json.loads(content).get("error")


def context(world):
    import ssl  # noqa: PLC0415

    return ssl.create_default_context(cafile=str(world.folder / "tls" / "ca.pem"))


def spoilt(layout, report):
    """Return a report whose share is off by one bit."""
    record = layout.read(report).copy()
    record["y"][:, 0] ^= np.uint64(1)
    return record.tobytes()
