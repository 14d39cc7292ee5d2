"""Linkage that forgives errors, and tables of linked records corrected for the errors that remain."""

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.protocols.linkage.derived_keys import cascade, derive_keys, normal_date, normal_text
from masquerade.protocols.linkage.psi import Joiner, LinkingParty
from masquerade.protocols.wire.session import LocalTransport

KEYS = [["first", "last", "born"], ["sound(first)", "sound(last)", "born"], ["first", "last", "year(born)"]]


def by_psi(first, second):
    """Link two lists of distinct keys by private set intersection."""
    if not first or not second:
        return []
    parties = {"north": LinkingParty("north", first), "south": LinkingParty("south", second)}
    Joiner(tuple(parties), LocalTransport({name: it.receive for name, it in parties.items()})).link()
    return list(zip(*(parties[name].rows.tolist() for name in ("north", "south")), strict=True))


def equal(first, second):
    places = {key: at for at, key in enumerate(second)}
    return [(at, places[key]) for at, key in enumerate(first) if key in places]


class TestCascade:
    LEFT = {  # noqa: RUF012
        "first": ["Ana", "Robert", "José", "Eva", "Eva", "Ida"],
        "last": ["Müller", "Meyer", "Peña", "Roth", "Roth", None],
        "born": ["1970-02-03", "1980-01-01", "1990-05-05", "2000-01-01", "2000-01-01", "1950-01-01"],
    }
    RIGHT = {  # noqa: RUF012
        "first": ["jose", "Rupert", "ANA", "Eva", "Ida"],
        "last": ["pena", "Maier", "mueller", "Roth", "Berg"],
        "born": ["5.5.1990", "1980-01-01", "3.2.1970", "2000-01-01", "1950-01-01"],
    }

    @pytest.mark.parametrize("link", [equal, by_psi])
    def test_later_keys_link_what_earlier_keys_miss(self, link):
        found = cascade(self.LEFT, self.RIGHT, KEYS, link, dates=["born"])
        assert sorted(found.pairs) == [(0, 2), (1, 1), (2, 0)]  # two people called Eva Roth are not linked
        assert [it.matched for it in found.rounds] == [1, 2, 0]
        assert found.rounds[0].offered == (3, 5)
        assert found.rounds[1].offered == (2, 4)
        assert found.rounds[1].disclosure() == (
            "linked by sound(first) + sound(last) + born: 2 and 4 keys, 2 match"
        )

    def test_values_are_normalised(self):
        assert normal_text(" Ana-María ") == normal_text("ANAMARIA") == "anamaria"
        assert normal_date("3.2.1970") == normal_date("1970/2/3") == "1970-02-03"
        assert derive_keys({"a": ["x", None, float("nan"), " "]}, ["a"]) == ["x", None, None, None]
        for wrong in ("1970", "31.2.1970", "yesterday"):
            with pytest.raises(InputError, match="A date of a linking key"):
                normal_date(wrong)
        with pytest.raises(InputError, match="is not a field"):
            derive_keys({"a": ["x"]}, ["sound(b)"])


RIGHT, FOUND, RISK = {"f": 0.919, "m": 0.883}, {"f": 0.915, "m": 0.75}, {"f": 0.2, "m": 0.6}


def linked(rng, n=3000, found=FOUND):
    """Return the table of linked records, the true table of all, and the other file's margin."""
    x = np.where(rng.random(n) < 0.3, "m", "f")
    y = rng.random(n) < np.vectorize(RISK.get)(x)
    margin = float(y.mean())
    right = rng.random(n) < np.vectorize(found.get)(x)
    # wrong links in addition, so that the share of right ones is as stated
    wrong_share = {g: found[g] * (1 - RIGHT[g]) / RIGHT[g] for g in found}
    wrong = ~right & (
        rng.random(n) < np.vectorize(lambda g: min(wrong_share[g] / max(1 - found[g], 1e-9), 1))(x)
    )
    shown = np.where(right, y, rng.permutation(y))
    frame = pd.DataFrame({"x": x, "y": np.where(shown, "yes", "no")})[right | wrong]
    schema = mq.Schema({"x": ["f", "m"], "y": ["no", "yes"]})
    every = pd.DataFrame({"x": x, "y": np.where(y, "yes", "no")})
    query = [mq.Query(by=("x", "y"))]
    tables = [mq.tally(it, schema=schema).answer(query)[0] for it in (frame, every)]
    return *tables, {"no": 1 - margin, "yes": margin}


def difference(values):
    shares = values[:, 1] / values.sum(axis=1)
    return float(shares[1] - shares[0])


def test_naive_tables_are_biased_and_corrected_tables_are_not():
    """Bias of the risk difference over 30 runs, within 5 standard errors: false alarms below 1e-6."""
    rng = np.random.default_rng(7)
    naive, corrected, share = [], [], []
    error = mq.LinkError(RIGHT, FOUND, by="x")
    for _ in range(30):
        table, truth, margin = linked(rng)
        fixed = error.correct(table, "y", margin).values
        naive.append(difference(table.values) - difference(truth.values))
        corrected.append(difference(fixed) - difference(truth.values))
        share.append(fixed[:, 1].sum() / fixed.sum() - truth.values[:, 1].sum() / truth.values.sum())
    spread = [5 * np.std(it) / np.sqrt(30) for it in (naive, corrected, share)]
    assert np.mean(naive) < -0.02 - spread[0]  # about 10% of the difference
    assert abs(np.mean(corrected)) < spread[1]
    assert abs(np.mean(share)) < spread[2]


def test_uncertain_rates_widen_intervals_to_their_level():
    """Coverage of the risk difference in 150 runs, λ from 200 checked links: within 5 standard errors."""
    rng, runs, n, rates, q, m = np.random.default_rng(4), 150, 3000, (0.92, 0.88), 0.34, 200
    hits = np.zeros(3)
    schema = mq.Schema({"x": ["f", "m"], "y": ["no", "yes"]})
    for _ in range(runs):
        counts = np.zeros((2, 2))
        sizes = rng.multinomial(n, [0.7, 0.3])
        for g, risk in enumerate((0.2, 0.6)):
            right = rng.binomial(sizes[g], rates[g])
            yes = rng.binomial(right, risk) + rng.binomial(sizes[g] - right, q)
            counts[g] = [sizes[g] - yes, yes]
        checked = np.maximum(rng.multinomial(m, sizes / n), 5)
        seen = {
            g: min(max(rng.binomial(checked[i], rates[i]) / checked[i], 0.5), 1.0) for i, g in enumerate("fm")
        }
        numbers = {g: int(checked[i]) for i, g in enumerate("fm")}
        frame = pd.DataFrame({"x": list("ffmm"), "y": ["no", "yes"] * 2, "count": counts.ravel().astype(int)})
        table = mq.tally(frame, schema=schema, counts="count").answer([mq.Query(by=("x", "y"))])[0]
        margin = {"no": 1 - q, "yes": q}
        for place, error in enumerate(
            (mq.LinkError(seen, by="x", checked=numbers), mq.LinkError(seen, by="x"), mq.LinkError(1.0))
        ):
            fixed = error.correct(table, "y", margin)
            totals = fixed.values.sum(axis=1, keepdims=True)
            shares = fixed.values / totals
            weights = (
                np.array([[1, -1], [-1, 1]]) * np.stack([shares[:, 1], 1 - shares[:, 1]], axis=1) / totals
            )
            weights = weights * np.array([[1], [1]])
            width = 1.96 * np.sqrt(fixed.covariance.quadratic(weights))
            hits[place] += abs(difference(fixed.values) - 0.4) < width
    covered = hits / runs
    assert covered[0] > 0.95 - 5 * np.sqrt(0.95 * 0.05 / runs)
    assert covered[2] < 0.7  # as if all links were right
    assert covered[1] < covered[0]


def test_rates_of_one_change_nothing():
    table, _, margin = linked(np.random.default_rng(1))
    assert mq.LinkError(1.0).correct(table, "y", margin) is table
    near = mq.LinkError(1 - 1e-12).correct(table, "y", margin)
    assert near.values == pytest.approx(table.values)
    assert near.stderr() == pytest.approx(table.stderr(), rel=1e-3)  # n or n - 1
    assert near.marginal("y").stderr("given_records") == pytest.approx([0, 0], abs=1e-6)


def test_planted_pairs_estimate_both_rates():
    planted = {person: person + 1000 for person in range(100)}
    links = {person: person + 1000 for person in range(80)} | dict.fromkeys(range(80, 90), 5) | {999: 1}
    error = mq.LinkError.from_pairs(planted, links)
    assert (error.right, error.found, error.checked, error.planted) == (80 / 90, 0.8, 90, 100)
    with pytest.raises(InputError, match="No planted pair"):
        mq.LinkError.from_pairs(planted, {})


# --- two registers with errors ------------------------------------------------------------------------------

FIRST = ["anna", "maria", "peter", "johannes", "sophie", "thomas", "lukas", "julia", "stefan", "katharina",
         "michael", "elena", "martin", "laura", "david", "christine", "florian", "eva", "daniel"]  # fmt: skip
STEMS = ["muell", "schmi", "hof", "bau", "web", "wag", "kra", "leit", "stein", "ber", "gru", "win"]
LAST = [a + b for a in STEMS for b in ("er", "mann", "inger", "bauer", "ner", "hofer", "egger", "dt")]
ONE_KEY = [["first", "last", "born"]]
FOUR_KEYS = [
    *ONE_KEY,
    ["sound(first)", "sound(last)", "born"],
    ["first", "last", "year(born)"],
    ["sound(last)", "born"],
]


def typed(rng, name):
    """Return a name with one letter left out, added or changed."""
    place, letter = int(rng.integers(1, len(name) - 1)), "abcdefghijklmnopqrstuvwxyz"[rng.integers(26)]
    return [name[:place] + name[place + 1 :], name[:place] + letter + name[place:],
            name[:place] + letter + name[place + 1 :]][rng.integers(3)]  # fmt: skip


def registers(rng, n, errors):
    """Return two registers of which the second has errors in a share of its fields; 60% are in both."""
    days = rng.integers((1930, 1, 1), (2006, 13, 29), (n, 3)).tolist()
    people = pd.DataFrame({"first": rng.choice(FIRST, n), "last": rng.choice(LAST, n)})
    people["born"] = [f"{year}-{month:02}-{day:02}" for year, month, day in days]
    second = people.iloc[int(0.3 * n) :].copy()
    for name in ("first", "last"):
        wrong = rng.random(len(second)) < errors
        second.loc[wrong, name] = [typed(rng, it) for it in second.loc[wrong, name]]
    moved = rng.random(len(second)) < errors / 2
    second.loc[moved, "born"] = [f"{int(it[:4]) + 1}{it[4:]}" for it in second.loc[moved, "born"]]
    return people.iloc[: int(0.9 * n)], second.sample(frac=1, random_state=1)


def linked_registers(first, second, keys):
    """Return the partner that each person of the first register is linked with."""
    columns = [
        {name: frame[name].tolist() for name in ("first", "last", "born")} for frame in (first, second)
    ]
    found = cascade(*columns, keys, equal, dates=["born"])
    return {first.index[i]: second.index[j] for i, j in found.pairs}


@pytest.mark.parametrize("errors", [0.05, 0.15])
def test_several_keys_find_what_a_typo_hides(errors):
    """With one key a share (1 − e)²(1 − e/2) of the people is found, with four keys far more."""
    first, second = registers(np.random.default_rng(8), 6000, errors)
    both = set(first.index) & set(second.index)
    share = {}
    for name, keys in (("one", ONE_KEY), ("four", FOUR_KEYS)):
        links = linked_registers(first, second, keys)
        right = sum(i == j for i, j in links.items())
        share[name] = right / len(both)
        assert right / len(links) > 0.99
    exact = (1 - errors) ** 2 * (1 - errors / 2)
    assert abs(share["one"] - exact) < 5 * np.sqrt(exact * (1 - exact) / len(both)) + 0.01  # and twins
    assert share["four"] > share["one"] + 0.4 * (1 - share["one"])


def test_planted_pairs_estimate_the_rates_of_a_cascade():
    """Loose keys link wrongly; 400 people known to be in both show how often, within five standard errors."""
    rng = np.random.default_rng(9)
    first, second = registers(rng, 9000, 0.15)
    both = sorted(set(first.index) & set(second.index))
    links = linked_registers(
        first, second, [*ONE_KEY, ["sound(last)", "year(born)"], ["first", "year(born)"]]
    )
    planted = {int(it): int(it) for it in rng.choice(both, 400, replace=False)}
    error = mq.LinkError.from_pairs(planted, links)
    found = sum(links.get(it) == it for it in both) / len(both)
    right = sum(links.get(it) == it for it in both) / sum(it in links for it in both)
    assert right < 0.99
    assert abs(error.found - found) < 5 * np.sqrt(found * (1 - found) / 400)
    assert abs(error.right - right) < 5 * np.sqrt(right * (1 - right) / error.checked)


def test_wrong_rates_and_margins_are_refused():
    table, _, margin = linked(np.random.default_rng(1))
    for wrong in (
        lambda: mq.LinkError(0.0),
        lambda: mq.LinkError(1.2),
        lambda: mq.LinkError({"f": 0.9}),
        lambda: mq.LinkError(0.9, checked=0),
        lambda: mq.LinkError({"f": 0.9}, by="x").correct(table, "y", margin),
        lambda: mq.LinkError(0.9).correct(table, "z", margin),
        lambda: mq.LinkError(0.9, by="y").correct(table, "y", margin),
        lambda: mq.LinkError(0.9).correct(table, "y", {"no": 1.0}),
        lambda: mq.LinkError(0.9).correct(table, "y", {"no": 0.2, "yes": 0.2}),
    ):
        with pytest.raises(InputError):
            wrong()
