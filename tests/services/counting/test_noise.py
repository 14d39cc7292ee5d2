"""A count with noise over TLS: devices as threads, a kill of the miner, budgets of devices and people."""

import json
import subprocess
import sys
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from tests.services.counting.world import LONG, World

import masquerade as mq
from masquerade.channels.privacy_level import parse_limit
from masquerade.core.errors import FileError, InputError, MasqueradeWarning, QueryRefused
from masquerade.protocols.frequency_mining.history import TABLE
from masquerade.protocols.noise_shares import SHARES
from masquerade.protocols.people.owner_budget import OwnerBudget
from masquerade.protocols.people.questions import Question
from masquerade.services.common.settings import load
from masquerade.services.counting.messages import CountTerms
from masquerade.services.counting.person_file import PersonFile
from masquerade.services.counting.rounds import RoundBook
from masquerade.services.counting.settings import CountDescription
from masquerade.sources.people.count_rounds import CountedRound

PEOPLE = 14
NOISE = {"epsilon": 2.5, "tables": 3, "enrolment": "verified"}
VOTES = NOISE | {"epsilon": 6.0}
LIMIT = parse_limit("5%:50%,delta=1e-6")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    made = World(folder, "aggregation", PEOPLE, noise=NOISE, colluders="0.1", dropouts="0.15", patience=LONG)
    made.serve("miner")
    made.enrol()
    made.told = []

    def accept(_name, device):
        device.limit, device._tell = LIMIT, made.told.append

    made.start_threads(accept)
    yield made
    made.end()


def test_count_with_noise_answers_learners_survives_a_kill_and_ends_with_its_budget(world):
    source = world.source()
    assert isinstance(source, mq.people.NoisyPeople)
    [table] = source.answer([mq.Query(by=("smoker", "region"))])
    terms = source.terms
    assert (terms.contributors, terms.colluders, terms.honest) == (PEOPLE - 3, 2, 9)
    assert (table.n, source.tables_spent, source.tables_left) == (PEOPLE, 1, 2)
    exact = world.clear().answer([mq.Query(by=("smoker", "region"))])[0]
    assert np.all(np.abs(table.values - exact.values) < 12 * terms.deviation * (PEOPLE / 11) ** 0.5)
    assert world.told[0].startswith("Counted among at least 11 people, and only in sums")

    # a miner that is killed has the tables, and the same noise
    world.kill("miner")
    world.serve_again("miner")
    again = world.source()
    assert np.array_equal(again.answer([mq.Query(by=("smoker", "region"))])[0].values, table.values)
    assert again.answer([mq.Query(by="region")])[0].n == PEOPLE  # follows from it
    assert again.tables_spent == 1

    [joint] = again.select(["illness", "smoker"]).answer([mq.Query(by=("illness", "smoker"))])
    assert joint.total == pytest.approx(PEOPLE)  # the number of people is public
    # an analyst who has not seen that table does not spend one for it
    with pytest.raises(QueryRefused, match="open the count again"):
        source.answer([mq.Query(by=("region", "illness"))])
    spent = again.tables_spent
    status = world.status()
    assert (status["tables_spent"], status["tables_left"], status["rounds"]) == (spent, 3 - spent, 2)
    again.answer([mq.Query(by=("region", "illness"))])
    with pytest.raises(QueryRefused, match="are left"):
        again.answer([mq.Query(by=("smoker", "region", "illness"))])
    assert world.close()["state"] == "closed"


@pytest.fixture
def votes(tmp_path):
    """A count by frequency mining whose votes are redrawn."""
    made = World(tmp_path, "frequency", PEOPLE, noise=VOTES, colluders="0.1", dropouts="0.15", patience=LONG)
    made.serve("miner")
    made.enrol()
    made.told = []

    def accept(_name, device):
        device.limit, device._tell = parse_limit("epsilon=8,delta=1e-6"), made.told.append

    made.start_threads(accept)
    yield made
    made.end()


def test_votes_are_redrawn_over_the_network_and_a_killed_miner_has_the_same_counts(votes):
    """Counts are within 12 standard errors of the truth; no table is drawn again after kills."""
    source = votes.source()
    assert isinstance(source, mq.people.NoisyVotes)
    by_both, by_illness = mq.Query(by=("smoker", "region")), mq.Query(by="illness")
    [table] = source.answer([by_both])
    terms = source.terms
    assert (terms.contributors, terms.colluders, terms.honest) == (PEOPLE - 3, 2, 9)
    assert (table.n, source.tables_spent, source.tables_left) == (PEOPLE, 1, 2)
    [exact] = votes.clear().answer([by_both])
    assert np.all(np.abs(table.values - exact.values) < 12 * table.stderr("given_records"))
    assert votes.told[0].startswith("Counted among at least 11 people, and only in sums of answers that may")
    assert "ε = 6 over 3 tables" in votes.told[0]

    votes.kill("miner")
    votes.serve_again("miner")
    again = votes.source()
    assert np.array_equal(again.answer([by_both])[0].values, table.values)
    assert again.answer([mq.Query(by="region", where={"smoker": "yes"})])[0].n == PEOPLE  # follows
    assert again.tables_spent == 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)  # noise may leave nobody in a class
        model = mq.learn.naive_bayes(again, "illness")
    assert model.summary()
    assert again.tables_spent == 3
    status = votes.status()
    assert (status["tables_spent"], status["tables_left"], status["rounds"]) == (3, 0, 2)
    assert (status["cheats"], status["left"]) == ([], [])
    with pytest.raises(QueryRefused, match="0 of 3 are left"):
        again.answer([mq.Query(by=("smoker", "region", "illness"))])
    assert again.answer([by_illness])[0].total == pytest.approx(PEOPLE)
    assert votes.close()["state"] == "closed"
    votes.end()
    for name in votes.names:
        person = PersonFile(votes.people[name])
        assert len(person.ledger.values(TABLE)) == 3
        assert list(person.noise_spent().values()) == [(Fraction(6), Fraction("1e-6"))]
        person.close()


def test_device_refuses_noise_beyond_its_limit(world):
    name = world.names[0]
    device = world.device(name)
    with pytest.raises(InputError, match="allows δ = 0") as told:
        device._check_limit(device.person.keep_terms(device.admission, _terms(world)))
    assert "--limit 5%:50%,delta=1e-6" in str(told.value)
    device.limit = parse_limit("epsilon=2,delta=1e-6")
    with pytest.raises(InputError, match="more than your limit"):
        device._check_limit(CountTerms.decode(_terms(world)))
    device.limit = LIMIT
    device._check_limit(CountTerms.decode(_terms(world)))
    assert device.person.noise_spent() == {
        CountTerms.decode(_terms(world)).digest.hex(): (Fraction("2.5"), Fraction("1e-6"))
    }
    assert len(device.person.ledger.values(SHARES)) == 3
    device.person.close()
    device.http.close()


def _terms(world):
    device = world.device(world.names[1])
    data = device.person.known_terms(device.admission)
    device.person.close()
    device.http.close()
    return data


def test_noise_and_reports_add_up_in_the_budget_of_an_owner():
    noise = {"one": (Fraction(1), Fraction("1e-6")), "two": (Fraction(1), Fraction("1e-6"))}
    budget = OwnerBudget({"survey": Fraction(2)}, parse_limit("gamma=19,delta=2e-6"), noise)
    assert float(budget.total("", Fraction(1))) == pytest.approx(2 * np.exp(2))
    assert budget.delta == Fraction("2e-6")
    budget.check("", Fraction(1), "")
    assert float(budget.left("third").gamma) == pytest.approx(19 / (2 * np.exp(2)))
    with pytest.raises(InputError, match="δ = 3e-06"):
        OwnerBudget(
            {}, parse_limit("gamma=30,delta=2e-6"), noise | {"3": (Fraction(1), Fraction("1e-6"))}
        ).check("", Fraction(1), "")
    with pytest.raises(InputError, match="more than your limit"):
        OwnerBudget({"survey": Fraction(3)}, parse_limit("gamma=19,delta=2e-6"), noise).check("", 1, "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": NOISE | {"enrolment": "open"}}, "verified"),
        ({"noise": {name: value for name, value in NOISE.items() if name != "enrolment"}}, "enrolment"),
        ({"noise": NOISE | {"epsilon": 0}}, "epsilon"),
        ({"noise": NOISE, "protocol": "mix", "leaders": {"one": "00" * 32}}, "opens records"),
    ],
)
def test_description_of_noise_that_protects_nobody_is_refused(tmp_path, changes, message):
    world = World(tmp_path, "aggregation", 12)
    file = world.files["count"]
    text = file.read_text()
    for name, value in changes.items():
        text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{name}:"))
        text += f"\n{name}: {json.dumps(value)}\n"
    file.write_text(text)
    with pytest.raises((FileError, InputError), match=message):
        load(file, CountDescription, environment={})


def test_device_of_a_count_with_noise_loads_numpy_and_no_more():
    code = (
        "import sys, masquerade.services.counting.__main__\n"
        "from masquerade.protocols.secure_aggregation.agreement import Parameters, SumNoise\n"
        "import masquerade.protocols.secure_aggregation.user, masquerade.protocols.noise_shares\n"
        "terms = Parameters.of(20, noise=SumNoise(1, 10)).noise_terms\n"
        "terms.shares(terms.stages[0]).draw(5)\n"
        "from masquerade.protocols.frequency_mining.vote_noise import VoteNoise, redrawn_votes\n"
        "import masquerade.protocols.frequency_mining.roles\n"
        "redrawn_votes([], {}, {}, VoteNoise(3, 3, 2).terms(10, {'a': 2}).weight)\n"
        "print(sorted({'numpy', 'numba', 'pandas', 'pyarrow', 'pydantic', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "['numpy']\n"


@pytest.mark.parametrize(
    "described", [{"tables": 2}, {"questions": [{"columns": ["a"], "conditions": []}] * 2}]
)
def test_tables_of_rounds_without_counts_are_known_after_a_restart(described):
    """A miner stores that votes may be sent; counts that never came have spent their tables."""
    notes = {}
    state = SimpleNamespace(
        notes=SimpleNamespace(
            get=lambda scope, name: notes.get((scope, name)),
            put=lambda scope, name, value: notes.update({(scope, name): value}),
        )
    )
    book = RoundBook(state, {"a": 2})
    assert book.lost_tables() == 0
    book.add("voting", **described)
    assert RoundBook(state, {"a": 2}).lost_tables() == 2
    book.add("voting", **described)
    book.add_noisy_round(CountedRound({Question(("a",)): np.array([3, 4])}, (0, 1)))
    again = RoundBook(state, {"a": 2})
    assert again.lost_tables() == 2
    assert [counted.people for counted in again.noisy_rounds()] == [(0, 1)]
