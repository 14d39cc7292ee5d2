"""Structures learnt on shares are those of joined records; only winners open; what cannot be is refused."""

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.learn.networks.score_tables import UNITS, ScoreTables
from masquerade.learn.networks.scores import family_score, score_called
from masquerade.protocols.mpc.dealer import Dealer
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.structure import Search
from masquerade.simulation import hidden_structure
from masquerade.simulation import mpc as simulated
from masquerade.sources.records import Records


def joined(name, n):
    network = mq.data.network(name)
    codes = network.sample_codes(n, 5)
    return codes, network.schema, Records(codes, mq.Policy.clear(network.schema))


def split(names, owners):
    return {owner: tuple(names)[place :: len(owners)] for place, owner in enumerate(owners)}


@pytest.mark.parametrize(
    ("n", "score", "owners", "hide_order", "limit"),
    [
        (1000, "k2", "ab", False, 3),
        (10_000, "k2", "ab", False, 2),
        (1000, "bic", "abc", False, 3),
        (1000, "bdeu", "ab", False, 2),
        (1000, "k2", "ab", True, 2),
        (300, "aic", "abcd", True, 2),
    ],
)
def test_hidden_is_clear(n, score, owners, hide_order, limit):
    codes, schema, source = joined("asia", n)
    order = tuple(schema)
    found = hidden_structure(
        codes, schema, split(schema, owners), order, max_parents=limit, score=score, hide_order=hide_order
    )
    assert found.structure == mq.learn.structure(source, order, max_parents=limit, score=score).structure
    assert found.to_dict()["bits_told_at_most"] == found.bits_told <= 38
    assert found.cost.rounds > 0 < found.cost.sent


@pytest.mark.parametrize("score", ["k2", "bic", "aic", "bdeu"])
def test_tables_are_the_score(score):
    counts = np.random.default_rng(1).integers(0, 30, (6, 3))
    n = int(counts.sum())
    tables = ScoreTables.of(score, n)
    units = tables.cells(6, 3)[counts].sum() - tables.margins(6, 3)[counts.sum(axis=1)].sum()
    units += tables.constant(6, 3)
    exact = family_score(counts.astype(float), score_called(score), n)
    assert abs(units / UNITS - exact) < (counts.size + 7) / UNITS


def test_only_winners_are_opened(monkeypatch):
    opened = []
    plain = HelpedEngine.open

    def watched(engine, secret, bits):
        found = yield from plain(engine, secret, bits)
        opened.append(found.tolist())
        return found

    monkeypatch.setattr(HelpedEngine, "open", watched)
    codes, schema, _ = joined("asia", 1000)
    found = hidden_structure(codes, schema, split(schema, "ab"), tuple(schema), max_parents=2)
    first, again, second, repeated = opened  # one for every number of parents, by both owners
    assert first == again
    assert second == repeated
    assert len(first) == len(schema) - 1  # a place for every variable that has a candidate
    assert sum(map(bool, first)) + sum(map(bool, second)) == sum(map(len, found.structure.values()))
    assert found.bits_told == np.ceil(sum(np.log2(k + 1) + (np.log2(k) if k > 1 else 0) for k in range(1, 8)))
    assert "no count or score" in str(found.guarantee.to_dict())


@pytest.mark.parametrize("hide_order", [False, True])
def test_a_helper_that_could_tell_who_won_is_said_to(hide_order):
    """What the helper is asked to deal is the same for any records only where no winner decides on it."""
    network = mq.data.network("asia")
    names = tuple(network.schema)
    asked = []
    for linked in (False, True):
        dealt = []

        class Noted(Dealer):
            def deal(self, deal, dealt=dealt):
                dealt.append(deal)
                return super().deal(deal)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulated, "Dealer", Noted)
            codes = {name: np.zeros(300, dtype=int) for name in names}
            if linked:
                codes[names[0]] = codes[names[-1]] = np.arange(300) % 2
            found = hidden_structure(
                codes, network.schema, split(names, "ab"), names, max_parents=2, hide_order=hide_order
            )
        asked.append(dealt)
    assert (asked[0] == asked[1]) is hide_order
    [helper] = [item for item in found.guarantee.disclosures if item.role == "helper"]
    assert helper.gamma == (1 if hide_order else None)


def test_what_cannot_be_is_refused_all_at_once():
    codes, schema, _ = joined("asia", 10)
    names = tuple(schema)
    with pytest.raises(
        InputError,
        match=r"two owners.*owners: .* are missing: .*'smoek' is not a variable.*more than once: 'asia'",
    ):
        hidden_structure(codes, schema, {"a": names[1:]}, ("asia", "asia", "smoek"))
    with pytest.raises(InputError, match="other variables"):
        Search({"x": ["x"]}, 1)
    with pytest.raises(InputError, match="fewer parents"):
        Search({"x": [f"v{i}" for i in range(60)], **{f"v{i}": [] for i in range(60)}}, 3, hide_order=True)
