"""No command lets more leave about a person than a stated limit, or than the user accepts.

Every command has a line here: a command that is added without one fails the first test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import masquerade as mq
from masquerade.channels.policy import Policy
from masquerade.cli.app import OWN, app, own_command
from masquerade.core.errors import QueryRefused
from masquerade.data.example_networks import eleven_nodes_policy
from masquerade.services.common.settings import load
from masquerade.services.counting.example import write_count
from masquerade.services.counting.person_file import Admission, PersonFile
from masquerade.services.counting.settings import CountDescription
from masquerade.services.parties import messages as say
from masquerade.services.parties.example import two_hospitals_and_a_registry, write_deployment
from masquerade.services.parties.kinds import Partition, find, names
from masquerade.services.parties.node import Node
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import PartySettings
from masquerade.survey import Survey
from masquerade.survey.collector.example import write_example
from masquerade.survey.device.publication import terms_text

NAMES = ("a", "b", "c")  # γ = 9 each: every answer is within 5%:50%, the record of γ = 729 is not
VALUES = {
    "masquerade": 1,
    "variables": {
        name: {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.1}} for name in NAMES
    },
}
STATED = "limit: {breach: 5%:50%}\n"
FIGURES = "shows figures to a user who has the records already"
NO_RECORD = "handles no person's record"
LEFT = "what it shows or stops has left before, under a command that asks"
MADE_UP = "made-up people only"
ASKS = {
    "disguise", "release make", "survey build", "survey serve", "gather publish", "gather serve",
    "count serve", "count enrol", "party serve", "survey package",
}  # fmt: skip
OWNERS = {"gather take-part", "count take-part"}  # devices: the owner of the record states the limit
CLEAR = {"collect submit"}  # nothing is disguised, and the person is told so
# a party adds up what its sessions reveal, says it before consent, and refuses beyond its limit
SESSIONS = {"session plan", "session consent", "session run"}
OTHERWISE = {
    **dict.fromkeys(
        (
            "plan", "estimate", "stats shares", "stats difference", "stats ratio", "stats odds-ratio",
            "stats mantel-haenszel", "stats independence", "stats associations", "stats trend",
            "stats marginal-homogeneity", "stats survival", "stats mean", "stats regress", "stats loglinear",
            "stats quantile", "enough", "survey dossier", "survey report",
            "learn network", "learn structure", "learn rules", "learn naive-bayes", "learn tree",
            "learn linear", "learn k-means", "predict", "privacy", "audit policy", "audit sampler",
            "audit release", "audit canaries make", "audit canaries read", "audit session answers",
            "audit session coalitions", "audit session projection", "release check", "report", "show",
            "policy init", "policy check", "policy id", "policy schema", "anonymize check", "anonymize risk",
        ),
        FIGURES,
    ),
    "anonymize mgas": "suppresses values instead of disguising them: k-anonymity has no γ",
    **dict.fromkeys(
        (
            "simulate users", "simulate k-anonymity", "simulate hidden", "simulate control", "demo",
            "session example", "collect example", "count example", "survey demo",
            "survey try", "count plan",
        ),
        MADE_UP,
    ),
    **dict.fromkeys(
        (
            "miner serve", "session create", "session reconcile", "session cancel", "session status",
            "collect enrol", "collect randomness serve", "collect collector serve",
            "survey init", "gather init", "gather show", "survey invite",
            "gather invite", "config check", "tls init", "tls issue", "tls request", "tls sign",
            "output check", "output decide", "tls rotate", "tls fingerprint",
            "tls token", "tls identity", "policy convert",
        ),
        NO_RECORD,
    ),
    **dict.fromkeys(
        (
            "party ledger", "party restored", "collect close", "collect open", "collect status",
            "collect restored", "count close", "count status", "count restored", "count table",
            "survey status", "survey close", "survey export", "gather status", "gather close",
            "gather export", "gather withdraw", "survey responses",
        ),
        LEFT,
    ),
    **dict.fromkeys(
        ("noise plan", "noise init", "noise show", "noise restored"),
        "a promise of ε and δ for each record, which its ledger keeps: tests/e2e/test_cli_noise.py",
    ),
    "studio": "asks on its own pages, which tests/studio opens",
}  # fmt: skip


def commands(command, path):
    """Yield the names of all commands below one."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path)
    else:
        for name, one in below.items():
            yield from commands(one, [*path, name])


def test_every_command_has_a_line_here():
    known = ASKS | OWNERS | CLEAR | SESSIONS | set(OTHERWISE)
    assert {name for top in OWN for name in commands(own_command(top), [top])} == known


def test_commands_that_let_something_leave_have_the_option_that_accepts_it():
    options = {}
    for top in OWN:
        options |= dict(_options(own_command(top), [top]))
    assert {name for name, given in options.items() if "accept_gamma" in given} == ASKS
    assert {name for name, given in options.items() if "limit" in given} >= OWNERS


def _options(command, path):
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), {one.name for one in command.params}
    else:
        for name, one in below.items():
            yield from _options(one, [*path, name])


@dataclass
class World:
    """Files of every command that lets something leave, all under one policy file each."""

    folder: Path

    @property
    def policy(self) -> Path:
        return self.folder / "policy.yaml"

    def arguments(self, name: str) -> tuple[list[str], Path]:
        """Return what a command is given, and the policy file that it reads."""
        folder, policy = self.folder, self.policy
        policy.write_text(yaml.safe_dump(VALUES, sort_keys=False))
        if name in ("disguise", "release make"):
            (folder / "clear.csv").write_text("a,b,c\n" + "yes,no,yes\nno,no,yes\n" * 20)
            out = str(folder / "out.parquet")
            if name == "disguise":
                return ["disguise", str(folder / "clear.csv"), "-p", str(policy), "-o", out], policy
            mq.disguise_file(folder / "clear.csv", out, Policy.load(policy))
            return ["release", "make", out, "-p", str(policy), "-o", str(folder / "out")], policy
        if name.startswith(("survey", "gather")):
            write_example(folder / "work", "http://127.0.0.1:18999", policy=Policy.load(policy))
            collector, out = str(folder / "work" / "collector.yaml"), str(folder / "out")
            given = {
                "survey build": [str(folder / "work" / "survey.yaml"), "-o", out],
                "survey package": [str(folder / "work" / "survey.yaml"), "--for", "surveyjs", "-o", out],
                "survey serve": [collector],
                "gather publish": [collector, "-o", out],
                "gather serve": [collector],
            }
            return [*name.split(), *given[name]], folder / "work" / "policy.yaml"
        if name.startswith("count"):
            records = [dict.fromkeys(NAMES, "yes")] * 12
            files = write_count(folder / "count", protocol="mix", records=records, policy=VALUES)
            people = [
                "--from",
                str(files["names"]),
                "--out",
                str(folder / "out"),
                "--office",
                str(files["office"]),
            ]
            given = [str(files["miner"])] if name == "count serve" else people
            return [*name.split(), *given], folder / "count" / "policy.yaml"
        files = write_deployment(folder / "try", two_hospitals_and_a_registry("vertical-with-miner", 30))
        used = files["registry"].parent / "policy.yaml"
        Policy.load(used).with_limit(None, clear_accepted=True).save(used)
        return ["party", "serve", str(files["registry"])], used


@pytest.mark.parametrize("name", sorted(ASKS))
def test_nothing_leaves_above_a_stated_limit_or_what_was_accepted(name, tmp_path):
    arguments, policy = World(tmp_path).arguments(name)
    before = {file for file in tmp_path.rglob("*") if file.is_file() and "state" not in file.parts}
    for more in ([], ["--accept-gamma", "19"]):
        said = CliRunner().invoke(app, [*arguments, *more])
        assert said.exit_code == 2, said.output
        text = " ".join(said.output.split())
        assert "Someone who thought it 5% likely can think it at most" in text, text
        assert "Nothing was released" in text
        assert "--accept-gamma" in text
    policy.write_text(STATED + policy.read_text())
    said = CliRunner().invoke(
        app, [*arguments, "--accept-gamma", "inf"]
    )  # a stated limit cannot be accepted away
    assert said.exit_code == 2, said.output
    assert "limit" in said.output
    after = {file for file in tmp_path.rglob("*") if file.is_file() and "state" not in file.parts}
    assert after == before


def test_a_device_of_gather_takes_no_part_above_its_owners_limit(tmp_path):
    write_example(tmp_path / "work", "http://127.0.0.1:18999", policy=Policy.from_dict(VALUES))
    (tmp_path / "terms.json").write_text(terms_text(Survey.load(tmp_path / "work" / "survey.yaml")))
    (tmp_path / "row.json").write_text(json.dumps(dict.fromkeys(NAMES, "yes")))
    given = ["gather", "take-part", str(tmp_path / "terms.json"), "--row", str(tmp_path / "row.json")]
    given += ["--record", str(tmp_path / "mine"), "--patience", "0"]
    for more in ([], ["--limit", "gamma=9"], ["--limit", "5%:60%"]):
        said = CliRunner().invoke(app, [*given, *more])
        assert (said.exit_code, (tmp_path / "mine").exists()) == (2, False)
        assert "Nothing was drawn: your reports would reveal more than your limit" in said.output
    CliRunner().invoke(app, [*given, "--limit", "gamma=729"])  # drawn; no collector is there to send it to
    assert (tmp_path / "mine").exists()


def device_of_a_count(protocol, folder):
    """Return a function that takes part in a count, and returns the end of that command.

    The terms are in the person's file, as after a first connection: no server is asked for anything.
    """
    records = [dict.fromkeys(NAMES, "yes")] * 12
    files = write_count(folder / "count", protocol=protocol, records=records, policy=VALUES)
    names = files["names"].read_text().split()
    members = {name: PersonFile.make(folder / f"{name}.person", name) for name in names}
    terms = load(files["count"], CountDescription, environment={}).terms(members)
    person = PersonFile(folder / f"{names[0]}.person")
    admission = Admission("example", "http://127.0.0.1:9", (), "", terms.digest.hex())
    person.admit(admission)
    person.keep_terms(admission, terms.encode())
    person.close()
    given = [str(folder / f"{names[0]}.person"), "--record", str(files["records"] / f"{names[0]}.json")]
    command = [sys.executable, "-m", "masquerade", "count", "take-part", *given, "--wait", "0"]

    def take_part(*more):
        done = subprocess.run([*command, *more], check=False, capture_output=True, text=True)  # noqa: S603
        assert "Someone who thought it 5% likely can think it at most" in done.stderr, done.stderr
        assert "the entire record counts as clear here" in done.stderr
        assert done.returncode == 2  # refused, or no miner is there
        return done

    return take_part


@pytest.mark.parametrize("protocol", ["frequency", "aggregation", "mix"])
def test_a_device_of_a_count_takes_no_part_above_its_owners_limit(protocol, tmp_path):
    take_part = device_of_a_count(protocol, tmp_path)
    for more in ((), ("--limit", "gamma=9")):
        assert "Nothing was drawn: your reports would reveal more than your limit" in take_part(*more).stderr


@pytest.mark.slow  # it looks for its miner for a minute
def test_a_device_of_a_count_takes_part_if_its_owner_accepts_a_clear_record(tmp_path):
    accepted = device_of_a_count("frequency", tmp_path)("--accept-clear")
    assert "Nothing was drawn: your reports would reveal more than your limit" not in accepted.stderr


def test_a_device_of_gather_adds_up_what_it_sent_before(tmp_path):
    """Two surveys of γ = 9, each within 5%:50%; the second one of the same device is not."""
    given = ["gather", "take-part"]
    row = tmp_path / "row.json"
    row.write_text(json.dumps({"a": "yes"}))
    for number, p in enumerate(("0.1", "0.101")):
        channel = {"kind": "binary", "p": p}
        policy = {"masquerade": 1, "variables": {"a": {"categories": ["yes", "no"], "channel": channel}}}
        folder, terms = tmp_path / f"work{number}", tmp_path / f"terms{number}.json"
        write_example(folder, "http://127.0.0.1:18999", policy=Policy.from_dict(policy))
        terms.write_text(terms_text(Survey.load(folder / "survey.yaml")))
        more = ["--row", str(row), "--record", str(tmp_path / f"mine{number}"), "--patience", "0"]
        said = CliRunner().invoke(app, [*given, str(terms), *more])
        assert (tmp_path / f"mine{number}").exists() == (number == 0)
    assert "With what you sent under 1 other policy" in said.output
    assert "Nothing was drawn: your reports would reveal more than your limit" in said.output


def disguised_plan(kind):
    """Return the example of a session kind in which every party disguises something."""
    plan = two_hospitals_and_a_registry(kind, 40)
    if find(kind).partition is not Partition.ROWS:
        return plan
    return replace(plan, policies=dict.fromkeys(plan.policies, eleven_nodes_policy()))


@pytest.mark.parametrize("kind", names())
def test_no_session_takes_a_person_beyond_a_partys_limit(kind, tmp_path):
    """Of every kind: whatever a party would send beyond its limit, it refuses before it begins."""
    files = write_deployment(tmp_path / "try", disguised_plan(kind))
    spec = load(tmp_path / "try" / "session.yaml", SessionSpec, environment={})
    for party in spec.parties:
        values = yaml.safe_load(files[party].read_text())
        values["consents"][0].pop("clear", None)
        files[party].write_text(yaml.safe_dump(values | {"limit": "gamma=1.5"}))
        node = Node(load(files[party], PartySettings, environment={}))
        try:
            message = say.encode(say.Begin(spec=spec, epoch="0" * 32))
            with pytest.raises(QueryRefused, match="more about a person than this node's limit") as refused:
                node.party.receive(spec.convener, spec.session, "begin", message)
            assert [one.code for one in refused.value.refusals] == ["beyond_limit"]
            assert not node.restores.ledger.entries()
        finally:
            node.close()
        plan = ["session", "plan", str(tmp_path / "try" / "session.yaml"), "--node", str(files[party])]
        said = " ".join(CliRunner().invoke(app, plan).output.split())
        assert "The session is refused unless the consent says 'clear: accepted'" in said
