"""Commands and learners that other packages bring: listed, run like ours, and harmless when broken."""

from __future__ import annotations

import json
import sys

from tests.e2e.test_cli_app import ok, refused, run, world

import masquerade as mq

COMMANDS = '''
import typer

group = typer.Typer(help="Play a while.")


@group.command("twice")
def twice(word: str) -> None:
    """Say a word twice."""
    typer.echo(word * 2)


@group.command("never")
def never() -> None:
    """Say nothing."""


def greet(name: str = "world", loud: bool = False) -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}{'!' if loud else ''}")


NOTHING = 7
'''
LEARNERS = """
import warnings
from dataclasses import dataclass

import masquerade as mq
from masquerade.core.errors import MasqueradeWarning
from masquerade.learn import Learner, Option
from masquerade.learn.model_file import header
from masquerade.learn.option_types import VARIABLE, whole_number


@dataclass(frozen=True)
class Majority:
    target: str
    label: object

    def summary(self):
        return f"{self.target}: mostly {self.label}"

    def to_dict(self):
        return {**header("majority"), "target": self.target, "label": self.label}

    @classmethod
    def from_dict(cls, values):
        return cls(values["target"], values["label"])

    def plot(self):
        from matplotlib.figure import Figure

        return Figure()


def majority(source, *, target, place):
    warnings.warn("this is a toy", MasqueradeWarning)
    [table] = source.answer([mq.Query(by=(target,))])
    return Majority(target, table.axes[0].categories[table.values.argsort()[-place]])


MAJORITY = Learner(
    "majority",
    "most frequent category",
    "Find the category that most records have.",
    majority,
    (
        Option("target", VARIABLE, None, "The variable."),
        Option("place", whole_number(1), 1, "The first, the second, …"),
    ),
    needs=(("target",),),
    model=lambda: Majority,
    draw=lambda source, model: model.plot(),
    example="--target smoker",
)
"""


def test_commands_of_other_packages_are_listed_and_run(install):
    install("toys", {"commands": {"play": "group", "greet": "greet"}}, COMMANDS)
    listed = ok("--help").stdout
    assert "Play a while." in listed
    assert "Greet somebody." in listed
    assert ok("play", "twice", "ab").stdout == "abab\n"
    assert ok("greet", "--name", "you", "--loud").stdout == "hello you!\n"
    assert "Say a word twice." in ok("play", "--help").stdout
    assert "greet [OPTIONS]" in ok("greet", "--help").stdout
    assert "No such option" in refused("greet", "--quiet")


def test_a_broken_package_costs_its_own_command_and_a_line(install):
    install("toys", {"commands": {"play": "group", "odd": "NOTHING"}}, COMMANDS)
    install("broken", {"commands": {"broken": "command"}}, "raise RuntimeError('no')\n")
    result = ok("--help")
    assert "Play a while." in result.stdout
    lines = result.stderr.splitlines()
    assert [line.split(" cannot be used: ")[0] for line in lines] == [
        "masquerade: warning: The command 'broken' of the package broken 1.0",
        "masquerade: warning: The command 'odd' of the package toys 1.0",
    ]
    assert "The command 'broken' of the package broken 1.0 cannot be used: RuntimeError: no." in refused(
        "broken"
    )
    assert "not to a Typer application or a function" in refused("odd")


def test_other_commands_load_no_package(install, tmp_path):
    groups = {"commands": {"broken": "command"}, "learners": {"broken": "x"}}
    install("broken", groups, "raise RuntimeError\n")
    data, rules = world(tmp_path)
    assert run("estimate", data, "-p", rules).stderr.count("\n") <= 1
    assert "broken" not in sys.modules
    assert "No such command 'brokn'" in refused("brokn")
    assert "No such command 'a.csv'. It has: make, check. See" in refused("release", "a.csv")


def test_our_names_cannot_be_taken(install):
    install("toys", {"commands": {"demo": "greet"}, "learners": {"tree": "MAJORITY"}}, COMMANDS + LEARNERS)
    assert "Greet somebody." not in ok("demo", "--help").stdout
    assert "decision tree" in ok("learn", "tree", "--help").stdout


def test_a_learner_of_another_package_is_a_command_like_ours(install, tmp_path):
    install("toys", {"learners": {"majority": "MAJORITY"}}, LEARNERS)
    data, rules = world(tmp_path)
    assert "Find the category that most records have." in ok("learn", "--help").stdout
    shown = ok("learn", "majority", "--help").stdout
    assert "Example: masquerade learn majority disguised.csv" in shown
    for option in ("--target", "--place", "--weights", "--engine", "--plot", "--out"):
        assert option in shown
    asked = ["learn", "majority", data, "-p", rules, "--clear", "--target", "smoker"]
    result = ok(*asked)
    assert result.stdout == "smoker: mostly no\n"
    assert result.stderr == "masquerade: warning: this is a toy\n"
    assert json.loads(ok(*asked, "--place", "2", "--json").stdout)["label"] == "yes"
    ok(*asked, "--out", tmp_path / "toy.json")
    assert mq.learn.load(tmp_path / "toy.json").summary() == "smoker: mostly no"
    ok(*asked, "--plot", tmp_path / "toy.svg")
    assert (tmp_path / "toy.svg").read_text().startswith("<?xml")
    assert "--target: the policy has no variable 'smokr'" in refused(*asked[:-1], "smokr")
    assert "Missing option '--target'" in refused(*asked[:-2])


def test_a_learner_that_is_none_is_refused(install, tmp_path):
    install("toys", {"learners": {"least": "MAJORITY", "odd": "majority"}}, LEARNERS)
    data, rules = world(tmp_path)
    line = refused("learn", "least", data, "-p", rules)
    assert "The learner 'least' of the package toys 1.0 cannot be used: it calls itself 'majority'." in line
    assert "not to a masquerade.learn.Learner" in refused("learn", "odd", data, "-p", rules)


OFFICE = """
import masquerade as mq


def opened(data, policy, *, schema=None, weights=None, id=None, watch=None, accept_incomplete=False):
    place = data if isinstance(data, str) else data[0]
    return mq.tally(place.partition("://")[2] or place, policy, schema=schema)
"""


def test_a_source_of_another_package_is_counted_like_ours(install, tmp_path):
    install("office", {"sources": {"office": "opened"}}, OFFICE)
    data, rules = world(tmp_path)
    expected = ok("estimate", data, "-p", rules, "--clear", "--by", "smoker", "--json").stdout
    asked = ["estimate", "-p", rules, "--clear", "--by", "smoker", "--json"]
    assert ok(*asked, f"office://{data}").stdout == expected
    assert ok(*asked, data, "--engine", "office").stdout == expected
    line = refused(*asked, data, "--engine", "offise")
    assert "'offise' is not one of auto, memory, duckdb, spark, postgres, office" in line
