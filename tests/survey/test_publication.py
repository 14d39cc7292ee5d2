"""What an open survey shows, attacked: polls, own reports, withdrawals, quotas, exports, restarts."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import httpx
import numpy as np
import pytest
from pyarrow import parquet
from tests.survey.world import change, collecting, free_port, matrix_of, report, store_url
from typer.testing import CliRunner

from masquerade.cli.app import app
from masquerade.core.errors import FileError, InputError
from masquerade.crypto import certificates
from masquerade.crypto.keys import new_token
from masquerade.services.common.problems import PartyUnreachable
from masquerade.survey.collector import collector as collector_module
from masquerade.survey.collector import publication
from masquerade.survey.collector.collector import SurveyCollector
from masquerade.survey.collector.collector_client import fetch_figures, fetch_reports
from masquerade.survey.collector.example import body_of, write_example
from masquerade.survey.collector.figures import FigureSource, figures
from masquerade.survey.collector.store import SurveyStore, report_id
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.page import body_size

K = 10
AGES = 3


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Let the clock of collectors in this process stand still: tests turn it themselves (`publish`)."""
    monkeypatch.setattr(collector_module, "_FIGURES_SECONDS", 1e6)


def exact_figures(store, survey):
    """Return the figures of all reports at this moment, as a collector without batches shows them."""
    counts = store.count_reports()
    quotas = [] if store.quotas is None else store.quotas.counts_in(counts)
    shown = FigureSource(counts, store.counts(), quotas, lambda _, __: True)
    return figures(shown, survey, store.versions(), store.quotas)


def observed_counts(told, policy):
    """Return how often each code was reported, by variable: what an attacker computes from shares."""
    found = {}
    for version in told["estimates"]:
        if version["policy"] != policy.id:
            continue
        n = told["versions"][policy.id]
        for question in version["questions"]:
            if "shares" in question:
                shares = np.array([it["share"] for it in question["shares"]])
                name = question["name"]
                found[name] = n * shares @ matrix_of(policy, name)
    return found


def recover(before, after, policy):
    """Return the codes of the one report by which two answers differ, None if it is not one."""
    if not before["reports"] or (after["reports"] or 0) - before["reports"] != 1:
        return None
    first, second = observed_counts(before, policy), observed_counts(after, policy)
    moved = [np.rint(second[name] - first[name]).astype(int) for name in policy.schema]
    return tuple(int(np.argmax(step)) for step in moved) if all(sum(step) == 1 for step in moved) else None


def cell_counts(told):
    """Return every count that an answer of the team's page shows or implies, by cell."""
    found = {("begun",): told["begun"], ("withdrawn",): told["withdrawn"], ("reports",): told["reports"]}
    found |= {("quota", i): it["count"] for i, it in enumerate(told["quotas"])}
    found |= {("version", name): number for name, number in told["versions"].items()}
    found |= {("mode", name): number for name, number in told["modes"].items()}
    for version in told["estimates"]:
        n = told["versions"].get(version["policy"], told["reports"])
        for question in version["questions"]:
            if question["name"] == "age" and "shares" in question:
                for it in question["shares"]:
                    found[version["policy"], "age", it["answer"]] = round(n * it["share"])
        for stratum in version.get("strata", []):
            for group in stratum["groups"]:
                found[version["policy"], "stratum", stratum["by"], group["label"]] = group["n"]
    return {cell: number for cell, number in found.items() if number is not None}


class Attacker:
    """Polls the team's page after every event, and compares all that it shows."""

    def __init__(self, collector, http):
        self.collector, self.http, self.history = collector, http, []
        token = collector.settings.team_token.read_text().strip()
        self.headers = {"Authorization": f"Bearer {token}"}

    def poll(self):
        """Let the clock turn once, and look."""
        self.collector.publish()
        reply = self.http.post("/v1/team", headers=self.headers)
        assert reply.status_code == 200
        self.history.append(reply.json())
        return self.history[-1]

    def send(self, codes, *, mode=None, secret=None, policy=None):
        survey = self.collector.survey
        values = json.loads(body_of(survey, codes))
        values |= {} if secret is None else {"id": report_id(secret).hex()}
        values |= {} if policy is None else {"policy": policy}
        values |= {} if mode is None else {"mode": mode}
        return self.http.post("/v1/reports", content=self.padded(values)).status_code

    def withdraw(self, secret):
        return self.http.post("/v1/withdraw", content=self.padded({"code": secret.hex()})).status_code

    def padded(self, values):
        return json.dumps(values).encode().ljust(body_size(self.collector.survey))

    def check(self, history=None):
        """Assert that every count that changed, of arrivals alone, changed by k or more."""
        moved = 0
        last = {}
        for told in self.history if history is None else history:
            for cell, number in cell_counts(told).items():
                step = abs(number - last.get(cell, 0))
                assert step == 0 or step >= K, (cell, step)
                moved += step > 0
                last[cell] = number
        return moved


def codes(i):
    """Return a report of the example: ages 25%, 50% and 25%."""
    return ((0, 1, 1, 2)[i % 4], i % 2, i // 2 % 2, i % 3)


def test_polling_recovers_single_reports_from_exact_figures_and_none_from_batches(tmp_path):
    """The attack on the figures as they were: 8 of 8 reports, clear age included; now none of them."""
    with collecting(tmp_path / "work") as (collector, _, http):
        store, survey, attacker = collector.store, collector.survey, Attacker(collector, http)
        for i in range(48):
            assert attacker.send(codes(i)) == 200
        attacker.poll()
        victims = [(0, 1, 0, 2), (2, 0, 1, 1), (1, 1, 1, 0), (2, 1, 0, 0)]
        victims += [(0, 0, 0, 1), (1, 0, 1, 2), (2, 0, 0, 2), (0, 1, 1, 1)]
        recovered = Counter()
        for victim in victims:
            exact, shown = exact_figures(store, survey), attacker.history[-1]
            assert attacker.send(victim) == 200
            recovered["exact"] += recover(exact, exact_figures(store, survey), survey.policy) == victim
            recovered["batches"] += recover(shown, attacker.poll(), survey.policy) is not None
            assert attacker.history[-1] == shown  # and nothing else moved, whatever an attacker computes
        assert recovered == {"exact": 8, "batches": 0}
        for i in range(40):
            attacker.send(codes(i))
            attacker.poll()
        assert attacker.history[-1]["reports"] > 60
        assert attacker.check() > 10


def test_a_stratum_that_grows_by_one_inside_a_batch_waits(tmp_path):
    with collecting(tmp_path / "work") as (collector, _, http):
        store, survey, attacker = collector.store, collector.survey, Attacker(collector, http)
        for i in range(60):
            attacker.send(codes(i))
        first, exact = attacker.poll(), exact_figures(store, survey)
        assert first["reports"] == 60
        for i in range(12):
            attacker.send((1, i % 2, i // 2 % 2, i % 3))
        attacker.send((2, 0, 0, 1))

        def old(told):
            [by_age] = told["estimates"][0]["strata"]
            return by_age["groups"][2]

        grown = exact_figures(store, survey)
        assert old(grown)["n"] - old(exact)["n"] == 1  # a batch of all reports that shows one of a stratum
        told = attacker.poll()
        assert told["reports"] == 72
        assert old(told) == old(first)
        for i in range(9):
            attacker.send((2, i % 2, 1, i % 3))
        told = attacker.poll()
        assert (told["reports"], old(told)["n"]) == (82, old(first)["n"] + 10)
        attacker.check()


def test_withdrawals_wait_for_a_batch(tmp_path):
    with collecting(tmp_path / "work") as (collector, _, http):
        store, survey, attacker = collector.store, collector.survey, Attacker(collector, http)
        secret_codes = [secrets.token_bytes(10) for _ in range(60)]
        for i, secret in enumerate(secret_codes):
            attacker.send(codes(i), secret=secret)
        first = attacker.poll()
        assert first["reports"] == 60
        young = [secret for i, secret in enumerate(secret_codes) if codes(i)[0] == 1]
        for secret in young[:9]:
            exact = exact_figures(store, survey)
            assert attacker.withdraw(secret) == 200
            assert exact_figures(store, survey)["reports"] == exact["reports"] - 1  # seen at once, one by one
            assert attacker.poll() == first
        attacker.send((0, 1, 1, 1))  # another age: this moves nothing either
        assert attacker.poll() == first
        assert attacker.withdraw(young[9]) == 200
        told = attacker.poll()
        assert (told["reports"], told["withdrawn"]) == (50, 10)
        attacker.check()


def test_nine_own_reports_show_the_tenth_as_it_was_disguised_and_eight_show_nothing(tmp_path):
    """What batches do not hide: k - 1 reports of an attacker's own leave one, which γ alone protects."""
    with collecting(tmp_path / "work") as (collector, _, http):
        survey, attacker = collector.survey, Attacker(collector, http)
        for i in range(60):
            attacker.send(codes(i))
        first = attacker.poll()
        own, victim = [(2, i % 2, 1, 0) for i in range(K - 1)], (2, 0, 0, 1)
        for mine in own[:-1]:
            attacker.send(mine)
        attacker.send(victim)
        assert attacker.poll() == first
        attacker.send(own[-1])
        before, after = (observed_counts(told, survey.policy) for told in (first, attacker.poll()))
        for name, code in zip(survey.policy.schema, victim, strict=True):
            place = list(survey.policy.schema).index(name)
            moved = np.rint(after[name] - before[name]).astype(int)
            moved -= np.bincount([mine[place] for mine in own], minlength=len(moved))
            assert moved.tolist() == np.eye(len(moved), dtype=int)[code].tolist()


def test_invitations_used_move_in_batches(tmp_path):
    with collecting(tmp_path / "work", invited=True) as (collector, _, http):
        attacker, exact = Attacker(collector, http), []
        for code in collector.store.invite(35):
            collector.store.exchange(code, secrets.token_bytes(32))
            exact.append(collector.store.counts()["begun"])
            attacker.poll()
        assert exact == list(range(1, 36))  # each moment at which an invitation was used
        assert [told["begun"] for told in attacker.history[8:10]] == [None, 10]
        assert {told["begun"] for told in attacker.history[10:]} == {10, 20, 30}
        attacker.check()


def test_a_rare_category_and_a_rare_mode_wait(tmp_path):
    asked = [{"variable": name, "text": name} for name in ("age", "pills", "told", "nights")]
    with collecting(tmp_path / "work", own_chance=True, questions=asked) as (collector, _, http):
        attacker = Attacker(collector, http)
        for i in range(100):
            rare = i % 10 == 7
            attacker.send((2 if rare else i % 2, i // 2 % 2, i // 4 % 2, i % 3), mode=int(i % 25 == 4))
            attacker.poll()
        told = attacker.history[-1]
        assert told["modes"] == {"device": told["reports"]}  # four spun: their reports are in no number
        assert attacker.check() > 10
        ages = [cell for cell in cell_counts(told) if cell[1:2] == ("age",)]
        assert len(ages) == AGES


def test_versions_of_an_amended_survey_move_in_batches_of_their_own(tmp_path):
    with collecting(tmp_path / "work") as (collector, _, http):
        attacker, first = Attacker(collector, http), collector.survey.policy.id
        for i in range(60):
            attacker.send(codes(i))
        assert attacker.poll()["reports"] == 60
    policy = tmp_path / "work" / "policy.yaml"
    policy.write_text(policy.read_text().replace("gamma: 19", "gamma: 15"))
    with collecting(tmp_path / "work") as (collector, _, http):
        again, second = Attacker(collector, http), collector.survey.policy.id
        again.history = [*attacker.history]
        assert again.poll()["reports"] is None
        for i in range(100):
            again.send(codes(i))
            if i % 7 == 0:
                again.send(codes(i), policy=first)  # a page that was opened before
            again.poll()
        seen = {name for told in again.history for name in told["versions"]}
        assert seen == {first, second}
        by_version = [{name: told["versions"].get(name) for name in seen} for told in again.history[1:]]
        for name in seen:
            # from the last number that was shown before the restart
            numbers = [60 if name == first else 0, *(it[name] for it in by_version if it[name])]
            assert all(abs(b - a) == 0 or abs(b - a) >= K for a, b in pairwise(numbers))
        assert "pooled" in {version["policy"] for version in again.history[-1]["estimates"]}
        again.check(again.history[1:])


def test_refusals_of_a_quota_tell_what_is_published_and_not_when_one_report_came(tmp_path):
    """Probing by a report that is withdrawn again: the exact count is felt, the published one is known."""
    quotas = [{"variable": "age", "answer": "under 30", "most": 20}]

    def probe(attacker):
        """Return the reply to a report of one's own, which leaves nothing behind."""
        secret = secrets.token_bytes(10)
        reply = attacker.send((0, 1, 1, 1), secret=secret)
        if reply == 200:
            assert attacker.withdraw(secret) == 200
        return reply

    with collecting(tmp_path / "exact", settings={"quotas": quotas}) as (collector, _, http):
        collector.store.quotas._published = None  # by the reports that were kept, as it was
        attacker = Attacker(collector, http)
        for _ in range(19):
            attacker.send((0, 1, 1, 1))
        before = probe(attacker)
        attacker.send((0, 0, 0, 0))  # the victim
        assert (before, probe(attacker)) == (200, 410)
    with collecting(tmp_path / "work", settings={"quotas": quotas}) as (collector, _, http):
        attacker = Attacker(collector, http)
        for i in range(15):
            attacker.send((0, i % 2, 1, 1))
        attacker.poll()
        replies = []
        for _ in range(9):
            attacker.send((0, 0, 0, 0))
            attacker.poll()
            replies.append(probe(attacker))
        assert set(replies) == {200}  # 24 are kept, 15 are published
        assert [it["count"] for told in attacker.history for it in told["quotas"]] == [15] * 10
        attacker.send((0, 0, 0, 0))
        attacker.poll()
        assert attacker.history[-1]["quotas"][0]["count"] >= 20
        assert attacker.send((0, 1, 1, 1)) == 410
        assert attacker.send((1, 1, 1, 1)) == 200


def test_a_quota_of_a_collector_started_again_is_not_full_by_what_waited(tmp_path):
    """By all reports it would be: a refusal right after a restart would tell of the one that waited."""
    own = {"quotas": [{"variable": "age", "answer": "under 30", "most": 16}]}
    with collecting(tmp_path / "work", settings=own) as (collector, _, http):
        attacker = Attacker(collector, http)
        for i in range(15):
            attacker.send((0, i % 2, 1, 1))
        assert attacker.poll()["quotas"][0]["count"] == 15
        assert attacker.send((0, 1, 1, 1)) == 200  # the victim
        attacker.poll()
    with collecting(tmp_path / "work", settings=own) as (collector, _, http):
        attacker = Attacker(collector, http)
        assert attacker.poll()["quotas"][0]["count"] is None
        assert collector.store.quotas.counts_in(collector.store.count_reports()) == [16]
        for _ in range(K):
            assert attacker.send((0, 0, 0, 0)) == 200
        assert attacker.poll()["quotas"][0]["count"] == 26
        assert attacker.send((0, 0, 0, 0)) == 410


def export_rows(path):
    names = ["age", "pills", "told", "nights", "mode"]
    return Counter(tuple(row[name] for name in names) for row in parquet.read_table(path).to_pylist())


def run(*words, code=0):
    result = CliRunner().invoke(app, ["survey", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.stdout if "--json" in words else result.output


def test_exports_and_status_between_reports_follow_the_batches(tmp_path):
    policy = {
        "masquerade": 1,
        "variables": {
            "age": {"categories": ["under 30", "30 to 49", "50 or more"]},
            "told": {"categories": ["yes", "no"]},
            "pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
            "nights": {"categories": ["none", "some", "many"], "channel": {"kind": "symmetric", "p": 0.3}},
        },
    }
    questions = [{"variable": name, "text": name} for name in policy["variables"]]  # all are asked
    work = tmp_path / "work"
    (tmp_path / "export.token").write_text(new_token())
    (tmp_path / "export.token").chmod(0o600)
    own = {"export_token": str(tmp_path / "export.token")}
    with collecting(work, policy=policy, questions=questions, settings=own) as (collector, _, http):
        attacker, tables, exact = Attacker(collector, http), [], []
        for i in range(90):
            attacker.send((i % 3, int(i % 5 == 0), i // 2 % 2, i % 3))
            attacker.poll()
            exact.append(collector.store.count_reports()[collector.survey.policy.id])
            if i % 6 == 5:
                told = run("export", work / "collector.yaml", "--out", tmp_path / f"{i}.parquet")
                assert "in batches" in told or "batches of 10" in told
                tables.append(export_rows(tmp_path / f"{i}.parquet"))
                assert f"{sum(tables[-1].values()):,}" in told
                assert json.loads(run("status", work / "collector.yaml", "--json")) == attacker.history[-1]
        assert {sum(b.values()) - sum(a.values()) for a, b in pairwise(exact)} == {
            1
        }  # all of them, one by one
        assert attacker.check() > 5
        rare = Counter()
        for before, after in pairwise(tables):
            assert not before - after
            joint = Counter(row[:1] + row[2:3] + row[4:] for row in (after - before).elements())
            assert all(number >= K for number in joint.values()), joint
            rare.update(joint)
        assert len(rare) > 1
        assert sum(tables[-1].values()) == attacker.history[-1]["reports"]
        team = http.post("/v1/export", headers=attacker.headers)
        assert team.status_code == 403  # the token of the team's page shows figures alone
        collector.store.end()
        run("export", work / "collector.yaml", "--out", tmp_path / "all.parquet")
        assert sum(export_rows(tmp_path / "all.parquet").values()) == 90
        assert attacker.poll()["reports"] == 90


def test_an_open_survey_without_a_collector_or_token_exports_nothing(tmp_path):
    work = tmp_path / "work"
    write_example(work, f"http://127.0.0.1:{free_port()}")
    survey = Survey.load(work / "survey.yaml")
    with SurveyStore(work / "collected") as store:
        store.register(survey.policy)
        for i in range(50):
            store.add(report(codes(i), policy=survey.policy.id))
    told = run("export", work / "collector.yaml", "--out", tmp_path / "a.csv", code=2)
    assert "The survey is open" in told
    assert not (tmp_path / "a.csv").exists()
    told = run("status", work / "collector.yaml")
    assert "No collector of this survey answers at http://127.0.0.1:" in told
    assert "no full batch of 10 reports yet; open." in told
    (work / "export.token").write_text(new_token())
    (work / "export.token").chmod(0o600)
    change(work / "collector.yaml", export_token="export.token")  # noqa: S106  (the name of a file)
    told = run("export", work / "collector.yaml", "--out", tmp_path / "a.csv", code=2)
    assert "start it with masquerade survey serve" in told.replace("\n", " ")
    run("close", work / "collector.yaml")
    run("export", work / "collector.yaml", "--out", tmp_path / "a.csv")
    assert "50 reports; closed on" in run("status", work / "collector.yaml")


def test_the_last_partial_batch_appears_after_closing_alone(tmp_path):
    with collecting(tmp_path / "work") as (collector, _, http):
        attacker = Attacker(collector, http)
        for i in range(63):
            attacker.send(codes(i))
            attacker.poll()
        before = attacker.history[-1]
        assert before["reports"] < 63
        assert before["batch"] == K
        collector.store.end()
        after = attacker.poll()
        assert (after["reports"], after["batch"]) == (63, None)
        assert after["estimates"] == exact_figures(collector.store, collector.survey)["estimates"]
        collector.store.erase()
        assert attacker.poll()["reports"] == 0


def started(work, log):
    """Serve in a process of its own; return it once it listens."""
    with log.open("w") as stream:
        command = [sys.executable, "-m", "masquerade", "survey", "serve", str(work / "collector.yaml")]
        server = subprocess.Popen(command, stderr=stream)  # noqa: S603
    while "listens at" not in log.read_text():
        assert server.poll() is None, log.read_text()
        time.sleep(0.02)
    return server


def test_killed_and_started_again_it_shows_no_step_below_k(tmp_path):
    """The pending report of a killed collector is not what a new one adds to what was shown before."""
    work, port = tmp_path / "work", free_port()
    write_example(work, f"http://127.0.0.1:{port}")
    change(work / "collector.yaml", limits={"per_minute": 10**9})
    survey, token = Survey.load(work / "survey.yaml"), (work / "team.token").read_text().strip()
    shown = []
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=600) as http:

        def poll():
            told = http.post("/v1/team", headers={"Authorization": f"Bearer {token}"}).json()
            shown.append(told["reports"])
            return told

        def send(number, start=0):
            for i in range(start, start + number):
                assert http.post("/v1/reports", content=body_of(survey, codes(i))).status_code == 200

        def wait_for(condition):
            while not condition(poll()):
                time.sleep(0.1)

        server = started(work, tmp_path / "first.log")
        try:
            send(60)
            wait_for(lambda told: (told["reports"] or 0) >= 60 - AGES * (K - 1))  # of each age nine may wait
            send(1)
            poll()
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            before = shown[-1]
            server = started(work, tmp_path / "second.log")
            with SurveyStore(work / "collected") as store:
                assert exact_figures(store, survey)["reports"] == 61
            assert before < 61
            assert poll()["reports"] is None
            send(9)
            for _ in range(3):
                assert poll()["reports"] is None
            send(1)
            wait_for(lambda told: told["reports"] is not None)
            assert shown[-1] == 71
        finally:
            server.kill()
            server.wait()
    steps = [b - a for a, b in pairwise([0, *filter(None, shown)])]
    assert all(step == 0 or step >= K for step in steps)
    assert sum(step > 0 for step in steps) >= 2


def test_one_collector_at_a_time_publishes_a_survey(tmp_path):
    with collecting(tmp_path / "work") as (collector, _, _):
        with pytest.raises(FileError, match="another collector of this survey is running"):
            SurveyCollector(collector.settings)
        collector.publish()
    with collecting(tmp_path / "work") as (collector, _, _):
        collector.publish()


def test_one_collector_at_a_time_publishes_a_survey_in_postgresql(postgres, tmp_path):
    url = store_url(postgres, tmp_path)
    own = {"state": None, "store": url}
    with collecting(tmp_path / "work", settings=own) as (collector, _, http):
        attacker = Attacker(collector, http)
        with pytest.raises(FileError, match="another collector of this survey is running"):
            SurveyCollector(collector.settings)
        for i in range(60):
            attacker.send(codes(i))
        assert attacker.poll()["reports"] == 60
        turn = collector.publication._lock
        with turn._driver.connect(url, autocommit=True) as other:
            pid = turn._connection.info.backend_pid
            other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
        assert attacker.poll()["reports"] is None  # another could have published in between
        for i in range(60):
            attacker.send(codes(i))
        assert attacker.poll()["reports"] == 120


def test_polls_compute_nothing(tmp_path, monkeypatch):
    """However often it is asked, the page shows what the clock published: requests move no number."""
    with collecting(tmp_path / "work") as (collector, _, http):
        attacker, computed = Attacker(collector, http), []
        for i in range(60):
            attacker.send(codes(i))
        monkeypatch.setattr(collector, "publish", lambda: None)  # not even once
        before = attacker.poll()
        monkeypatch.setattr(publication, "figures", lambda *_: computed.append(1))
        for _ in range(50):
            assert attacker.poll() == before
        assert not computed


def test_settings_refuse_batches_below_ten(tmp_path):
    write_example(tmp_path / "work", "http://127.0.0.1:8765")
    change(tmp_path / "work" / "collector.yaml", batch=9)
    told = " ".join(run("serve", tmp_path / "work" / "collector.yaml", code=2).split())
    assert "batch: A batch must have at least 10 reports: smaller steps show who answered" in told
    change(tmp_path / "work" / "collector.yaml", batch=25)
    with SurveyStore(tmp_path / "work" / "collected") as store:
        assert store.closed_on is None
    assert json.loads(run("status", tmp_path / "work" / "collector.yaml", "--json"))["batch"] == 25


def test_tokens_go_to_a_collector_on_this_machine_alone(tmp_path):
    """Settings that somebody else wrote name a host of theirs and a secret of ours: nothing is sent."""
    pair_folder = tmp_path / "tls"
    authority = certificates.init(pair_folder)
    pair = certificates.issue(pair_folder, "survey", hosts=("survey.example.org",))
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    with collecting(tmp_path / "work", settings={"tls": tls}, authority=authority.certificate) as (
        collector,
        _,
        _,
    ):
        found = fetch_figures(collector.settings)  # by its certificate, whatever name that is for
        assert found["title"] == "Health at work"
        listen = collector.settings.listen.model_copy(update={"host": "192.0.2.1"})
        elsewhere = collector.settings.model_copy(update={"listen": listen})
        with pytest.raises(PartyUnreachable, match=r"192\.0\.2\.1:\d+ is not on this machine"):
            fetch_figures(elsewhere)
        with pytest.raises(InputError, match="The survey is open"):
            fetch_reports(collector.settings)
        other = certificates.issue(pair_folder, "other", hosts=("127.0.0.1",))
        wrong = collector.settings.tls.model_copy(update={"certificate": other.certificate})
        with pytest.raises(Exception, match="not pinned"):
            fetch_figures(collector.settings.model_copy(update={"tls": wrong}))
