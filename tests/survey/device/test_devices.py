"""Devices as processes of their own, over TLS: small, killed at every step, and counted once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.statistical.checks import normal_bound
from tests.survey.world import change, collecting, free_port

import masquerade as mq
from masquerade.core.errors import FileError, InputError
from masquerade.crypto import certificates, oprf
from masquerade.crypto.errors import KeySpent, ProofRejected
from masquerade.services.common.problems import NotAdmitted, PartyUnreachable
from masquerade.survey import Survey
from masquerade.survey.collector.example import write_example
from masquerade.survey.collector.export import export
from masquerade.survey.collector.store import Report, SurveyStore
from masquerade.survey.collector.store import report_id as collectors_id
from masquerade.survey.device.participation import Participation, Record, default_record, report_id
from masquerade.survey.device.publication import terms_text
from masquerade.survey.device.terms import DeviceTerms

ROW = {"age": "30 to 49", "pills": "yes", "told": "no", "nights": "some"}
OWN = {"limit": "gamma=50", "clear": ("age",)}  # what the owners of these devices accept
MOST_KB = 40_000
CODE = "import sys; from masquerade.cli import main; sys.argv[0] = 'masquerade'; main()"
SMALL = """
import json, sys
from masquerade import people
terms, row, record, *more = sys.argv[1:]
people.report(terms, json.loads(row), record=record, invitation=more[0] if more else None, patience=120,
              limit="gamma=50", clear=("age",))
heavy = sorted({"numpy", "numba", "pandas", "pyarrow", "scipy", "httpx", "cryptography"} & set(sys.modules))
most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"heavy": heavy, "kb": int(most)}))
"""
KILLED = """
import os, signal, sys
from masquerade import people
from masquerade.services.common import device_client
from masquerade.survey.device import participation
step = sys.argv[1]

def deadly(module, name, *, after, what=None):
    real = getattr(module, name)
    def called(*given, **named):
        if named.get("what") != what:
            return real(*given, **named)
        found = real(*given, **named) if after else None
        os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(module, name, called)

{"spent": lambda: deadly(participation, "write_new", after=True, what="the γ of a report"),
 "drawn": lambda: deadly(participation, "write_new", after=False, what="a report that was drawn"),
 "kept": lambda: deadly(participation, "write_new", after=True, what="a report that was drawn"),
 "asked": lambda: deadly(participation.Participation, "_request_token", after=True),
 "sent": lambda: deadly(device_client.DeviceClient, "post", after=True)}[step]()
people.report(sys.argv[2], {"age": "30 to 49", "pills": "yes", "told": "no", "nights": "some"},
              record=sys.argv[3], invitation=sys.argv[4] if len(sys.argv) > 4 else None,
              limit="gamma=50", clear=("age",))
"""


def published(folder, collector, authority=None):
    file = folder / "terms.json"
    file.write_text(terms_text(collector.survey, authority))
    return file


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gather")
    with collecting(folder / "work") as (collector, _, _):
        yield collector, published(folder, collector), folder


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("invited")
    with collecting(folder / "work", invited=True) as (collector, _, _):
        yield collector, published(folder, collector), folder


def kept(collector):
    return sorted(codes for _, _, codes in collector.store.reports())


def test_a_report_is_drawn_once_kept_and_taken_once(world, tmp_path):
    collector, terms, _ = world
    before = len(kept(collector))
    part = Participation(DeviceTerms.load(terms), tmp_path / "mine")
    assert part.state is None
    assert part.draw(ROW, **OWN)
    drawn = Record.load(tmp_path / "mine")
    for _ in range(20):  # a draw again would differ sooner or later: 2^-20
        assert not Participation(DeviceTerms.load(terms), tmp_path / "mine").draw(ROW, **OWN)
    assert part.send()
    assert not part.send()
    assert not Participation(DeviceTerms.load(terms), tmp_path / "mine").send()
    assert Record.load(tmp_path / "mine").reports == drawn.reports
    assert len(kept(collector)) == before + 1
    assert drawn.reports in kept(collector)
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0
    assert part.withdraw()
    assert not part.withdraw()
    assert len(kept(collector)) == before
    assert not part.send()


def test_withdrawal_without_a_connection_keeps_the_report_from_leaving(world, tmp_path, monkeypatch):
    """Before, a report that could not be withdrawn for want of a connection left with the next attempt."""
    collector, terms, _ = world
    before = len(kept(collector))
    part = Participation(DeviceTerms.load(terms), tmp_path / "mine")
    assert part.draw(ROW, **OWN)
    with monkeypatch.context() as offline:
        offline.setattr(part, "terms", replace(part.terms, collector="http://127.0.0.1:9"))
        with pytest.raises(PartyUnreachable):
            part.withdraw(timeout=1.0, patience=0.0)
    assert Participation(DeviceTerms.load(terms), tmp_path / "mine").state == "withdrawn"
    assert not part.send()
    assert not part.withdraw()  # the collector never had it
    assert len(kept(collector)) == before


def test_the_record_says_what_was_drawn_and_nothing_of_what_was_answered(world, tmp_path):
    _, terms, _ = world
    files = []
    for i, pills in enumerate(("yes", "no")):
        part = Participation(DeviceTerms.load(terms), tmp_path / str(i))
        part.draw(ROW | {"pills": pills}, **OWN)
        files.append(json.loads((tmp_path / str(i)).read_text()) | {"code": "", "reports": []})
    assert files[0] == files[1]


def test_ids_are_those_that_collectors_delete_by():
    code = os.urandom(10)
    assert report_id(code) == collectors_id(code).hex()


def test_who_is_not_asked_answers_with_what_stands_for_that(world):
    terms = DeviceTerms.load(world[1])
    assert terms.codes(ROW | {"pills": "no", "told": "yes"})["told"] == 1
    assert terms.codes({name: ROW[name] for name in ROW if name != "told"} | {"pills": "no"})["told"] == 1
    assert terms.codes(ROW | {"told": "yes"})["told"] == 0


def test_all_that_is_wrong_with_a_row_is_said_and_no_value_shown(world, tmp_path):
    part = Participation(DeviceTerms.load(world[1]), tmp_path / "mine")
    with pytest.raises(InputError, match=r"'pils'.*'age' must be one of.*'pills'.*'nights'") as told:
        part.draw({"age": "seventy", "pils": "yes", "told": "yes"})
    assert "seventy" not in str(told.value)
    with pytest.raises(InputError, match=r"send age in clear.*--clear age"):
        part.draw(ROW, limit="gamma=50")
    with pytest.raises(InputError, match=r"more than your limit \(γ = 2\).*γ = .* per person.*--limit"):
        part.draw(ROW, limit="gamma=2", clear=("age",))
    with pytest.raises(InputError, match="omit the invitation"):
        part.use("abc")
    assert not (tmp_path / "mine").exists()


def test_another_policy_another_collector_and_a_broken_record_are_refused(world, tmp_path):
    collector, terms, _ = world
    values = json.loads(terms.read_text())
    part = Participation(DeviceTerms.load(terms), tmp_path / "mine")
    part.draw(ROW, **OWN)
    for other in ({"policy": "0" * 64}, {"collector": "https://elsewhere.example.org"}):
        with pytest.raises(InputError, match="another policy, or for another collector"):
            Participation(DeviceTerms.parse(json.dumps(values | other)), tmp_path / "mine")
    foreign = Participation(
        DeviceTerms.parse(json.dumps(values | {"policy": "0" * 64})), tmp_path / "other" / "mine"
    )
    foreign.draw(ROW, **OWN)
    before = kept(collector)
    with pytest.raises(InputError, match="a policy that does not belong to this survey"):
        foreign.send()
    assert kept(collector) == before
    (tmp_path / "mine").write_text("{}")
    with pytest.raises(FileError, match="no other report is drawn"):
        Participation(DeviceTerms.load(terms), tmp_path / "mine")


@pytest.mark.parametrize(
    "wrong",
    [
        {"masquerade_gather": 2},
        {"collector": "http://example.org"},
        {"issuer": "ab"},
        {"policy": None},
        {"size": 0},
        {"report_sizes": [2, 0]},
        {"questions": []},
        {"more": 1},
        {"title": 7},
    ],
)
def test_terms_that_say_anything_else_are_refused_whole(world, wrong):
    with pytest.raises(InputError):
        DeviceTerms.parse(json.dumps(json.loads(world[1].read_text()) | wrong))


def test_an_invitation_admits_one_report_and_another_one_may_be_used(invited, tmp_path):
    collector, file, _ = invited
    terms = DeviceTerms.load(file)
    first, second = collector.store.invite(2)
    one, two = (Participation(terms, tmp_path / name) for name in ("one", "two"))
    one.draw(ROW, **OWN)
    with pytest.raises(InputError, match="Only invited"):
        one.send()
    one.use(f"{terms.collector}/#{first}")
    assert one.send()
    two.draw(ROW, **OWN)
    two.use(first)
    with pytest.raises(KeySpent):
        two.send()
    two.use("never-made")
    with pytest.raises(InputError, match="not an invitation"):
        two.send()
    two.use(second)
    assert two.send()
    assert all(secret not in (tmp_path / "one").read_text() for secret in (first, 'blind":"'))
    # a collector that signs with a key of its own is found out
    third = Participation(replace(terms, issuer=oprf.random_key().public.encode()), tmp_path / "three")
    third.draw(ROW, **OWN)
    third.use(collector.store.invite(1)[0])
    with pytest.raises(ProofRejected, match="key that was published"):
        third.send()


@pytest.mark.parametrize("step", ["spent", "drawn", "kept", "asked", "sent"])
def test_a_device_killed_at_any_step_sends_what_it_drew_and_once(step, world, invited, tmp_path):
    collector, terms, _ = invited if step == "asked" else world
    more = collector.store.invite(1) if step == "asked" else []
    before, record = kept(collector), tmp_path / "mine"
    command = [sys.executable, "-c", KILLED, step, str(terms), str(record), *more]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL  # noqa: S603
    assert record.exists() == (step not in {"spent", "drawn"})
    drawn = Record.load(record)
    part = Participation(DeviceTerms.load(terms), record)
    part.draw(ROW, **OWN)
    if more:
        part.use(more[0])
    assert part.send()
    found = Record.load(record)
    assert drawn is None or (found.reports, found.code) == (drawn.reports, drawn.code)
    assert kept(collector) == sorted([*before, found.reports])


def test_a_certificate_of_others_is_found_out_and_nothing_is_sent(tmp_path):
    authority = certificates.init(tmp_path / "tls").certificate
    pair = certificates.issue(tmp_path / "tls", "gather", hosts=("127.0.0.1",))
    other = certificates.init(tmp_path / "other").certificate.read_text()
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    own = {"settings": {"tls": tls}, "authority": authority}
    with collecting(tmp_path / "work", **own) as (collector, url, _):
        change(tmp_path / "work" / "survey.yaml", collector=url)
        text = terms_text(Survey.load(tmp_path / "work" / "survey.yaml"), other)
        part = Participation(DeviceTerms.parse(text), tmp_path / "mine")
        part.draw(ROW, **OWN)
        with pytest.raises(NotAdmitted, match="did not sign"):
            part.send(patience=0)
        assert kept(collector) == []


def test_a_collector_that_is_away_is_said_and_nothing_is_lost(tmp_path):
    write_example(tmp_path / "work", f"http://127.0.0.1:{free_port()}")
    part = Participation(
        DeviceTerms.parse(terms_text(Survey.load(tmp_path / "work" / "survey.yaml"))), tmp_path / "a"
    )
    part.draw(ROW, **OWN)
    with pytest.raises(PartyUnreachable, match="the same command continues later"):
        part.send(patience=0)
    assert part.state == "drawn"


def test_twenty_devices_over_tls_while_the_gatherer_is_killed(tmp_path):
    """Each device is a process; every report arrives once, and no device loads NumPy or takes 40 MB."""
    authority = certificates.init(tmp_path / "tls").certificate
    pair = certificates.issue(tmp_path / "tls", "gather", hosts=("127.0.0.1",))
    port, work = free_port(), tmp_path / "work"
    write_example(work, f"https://127.0.0.1:{port}", invited=True)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    change(work / "collector.yaml", listen={"port": port}, tls=tls, limits={"per_minute": 10**9})
    terms = tmp_path / "terms.json"
    terms.write_text(terms_text(Survey.load(work / "survey.yaml"), authority.read_text()))
    with SurveyStore(work / "collected") as store:
        codes = store.invite(10)
    # ten are invited; whoever comes second with an invitation is refused
    commands = [
        [sys.executable, "-c", SMALL, str(terms), json.dumps(ROW), str(tmp_path / f"r{i}"), codes[i % 10]]
        for i in range(20)
    ]
    with serving(work / "collector.yaml", tmp_path / "first.log") as server:
        devices = [
            subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
            for one in commands
        ]
        while all(device.poll() is None for device in devices):
            time.sleep(0.02)
        server.kill()
        server.wait()
    with serving(work / "collector.yaml", tmp_path / "second.log"):
        told = [device.communicate() for device in devices]
    done = [json.loads(out) for out, _ in told if out]
    assert len(done) == 10
    assert all("used already" in problem for out, problem in told if not out)
    assert all(one["heavy"] == [] and one["kb"] <= MOST_KB for one in done)
    drawn = [Record.load(tmp_path / f"r{i}") for i in range(20)]
    with SurveyStore(work / "collected") as store:
        found = sorted(codes for _, _, codes in store.reports())
    assert found == sorted(one.reports for one in drawn if one.state == "sent")
    assert len(found) == 10


@contextmanager
def serving(settings, log):
    """Serve in a process of its own, and give it once it listens; at the end it is killed."""
    with log.open("w") as stream:
        command = [sys.executable, "-c", CODE, "gather", "serve", str(settings), "--accept-gamma", "50"]
        server = subprocess.Popen(command, stderr=stream)  # noqa: S603
    try:
        while "listens at" not in log.read_text():
            assert server.poll() is None, log.read_text()
            time.sleep(0.02)
        yield server
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("name", ["world", "invited"])
def test_the_command_itself_is_small(name, request, tmp_path):
    collector, terms, _ = request.getfixturevalue(name)
    (tmp_path / "row.json").write_text(json.dumps(ROW))
    watched = CODE.replace("main()", "") + (
        "\ntry:\n    main()\nfinally:\n"
        "    print(*sorted({'numpy', 'numba', 'pandas'} & set(sys.modules)),"
        " next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))\n"
    )
    more = ["--invitation", collector.store.invite(1)[0]] if name == "invited" else []
    command = [sys.executable, "-c", watched, "gather", "take-part", str(terms), "--row",
               str(tmp_path / "row.json"), "--record", str(tmp_path / "mine"), "--limit", "gamma=50",
               "--clear", "age", *more]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    assert "Sent in clear: age. Someone who thought it 5% likely can think it at most" in done.stderr
    assert "the report was sent" in done.stderr
    assert int(done.stdout) <= MOST_KB


def test_learners_from_gathered_reports_meet_the_truth(tmp_path):
    """2,000 devices' own draws, kept and exported as reports are: counts and naive Bayes meet the truth."""
    policy = {
        "masquerade": 1,
        "variables": {
            name: {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}} for name in "abc"
        },
    }
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy))
    write_example(
        tmp_path / "work", "https://gather.example.org", policy=mq.Policy.load(tmp_path / "policy.yaml")
    )
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    terms = DeviceTerms.parse(terms_text(survey))
    generator = np.random.default_rng()
    a = generator.random(2000) < 0.5
    truth = pd.DataFrame({"a": a, "b": a ^ (generator.random(2000) < 0.2), "c": generator.random(2000) < 0.6})
    truth = truth.replace({True: "yes", False: "no"})
    with SurveyStore(tmp_path / "kept") as store:
        store.register(survey.policy)
        waiting = [
            store.submit(Report(os.urandom(16), terms.policy, 0, terms.mechanism.draw(terms.codes(row))))
            for row in truth.to_dict("records")
        ]
        assert all(one.result() for one in waiting)
        store.end()
        assert export(store, tmp_path / "reports.parquet") == 2000
    gathered, clear = (
        mq.tally(str(tmp_path / "reports.parquet")),
        mq.tally(truth, schema=survey.policy.schema),
    )
    query = [mq.Query(by=("a", "b", "c"))]
    (table,), (known,) = gathered.answer(query), clear.answer(query)
    off = (table.values - known.values) / table.stderr("given_records")
    assert np.abs(off).max() < normal_bound(off.size)
    models = [mq.learn.naive_bayes(source, "a") for source in (gathered, clear)]
    rows = truth.head(50)
    same = [model.predict(rows[["b", "c"]]) for model in models]
    assert np.mean(np.asarray(same[0]) == np.asarray(same[1])) == 1


def test_the_kept_benchmark_says_what_the_page_says():
    kept = json.loads(Path("benchmarks/results/gather.json").read_text(encoding="utf-8"))
    devices, simulated = kept["devices"], kept["simulated"]
    assert devices["processes"] >= 200
    assert devices["most_kb"] <= 24_000
    assert devices["command_kb"] <= 36_000
    assert devices["invited_command_kb"] <= MOST_KB
    assert devices["heavy_modules"] == []
    assert devices["kept_as_drawn"]
    assert simulated["replies"] == {"200": simulated["reports"]}
    assert simulated["reports"] >= 10_000
    assert kept["kept"] == devices["processes"] + 1 + simulated["reports"]
    assert abs(kept["standard_errors_from_the_truth"]) < normal_bound(1)


def test_where_a_device_keeps_its_report_follows_from_the_policy_alone(world, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    terms = DeviceTerms.load(world[1])
    assert default_record(terms) == Path(tmp_path) / "masquerade" / "gather" / f"{terms.policy}.record"
