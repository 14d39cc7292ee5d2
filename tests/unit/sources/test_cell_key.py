"""Tables with cell-key noise: what is read, and that errors and tests are honest."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize

import masquerade as mq
from masquerade.core.errors import FileError, InputError

D, V = 5, 3.0


def entropy_row(count, largest=D, variance=V, barred=0, stay=0.0):
    """Return the shown counts and chances of largest entropy, with mean 0 and at most a variance.

    `barred` counts above 0 are never shown, `stay` is the least chance of no change, and chances rise up to
    no change.
    """
    shown = np.array(
        [it for it in range(max(count - largest, 0), count + largest + 1) if not 1 <= it <= barred]
    )
    change = shown - count
    start = np.exp(-(change**2) / (2 * variance))
    constraints = [
        {"type": "eq", "fun": lambda p: p.sum() - 1},
        {"type": "eq", "fun": lambda p: p @ change},
        {"type": "ineq", "fun": lambda p: variance - p @ change**2},
    ]
    if (change == 0).any():
        constraints.append({"type": "ineq", "fun": lambda p: np.diff(p[change <= 0])})
    found = minimize(
        lambda p: (p * np.log(p)).sum(),
        start / start.sum(),
        jac=lambda p: np.log(p) + 1,
        bounds=[(max(stay, 1e-8) if it == 0 else 1e-8, 1) for it in change],
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    return shown, found.x / found.x.sum()


SETTINGS = {
    "D2V1": (2, 1, 0, 0),
    "D2V.9": (2, 0.9, 0, 0),
    "D4V1, stay .5": (4, 1, 0, 0.5),
    "D5V3, 1 and 2 barred": (5, 3, 2, 0),
    "D5V3, 1 and 2 barred, stay .5": (5, 3, 2, 0.5),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_five_tables_are_read_to_rounding(setting, tmp_path):
    """Tables of largest entropy with the settings of ptable's examples, in the forms of its files."""
    largest, variance, barred, stay = SETTINGS[setting]
    last = largest if barred == 0 else largest + barred + 1
    own = {0: (np.array([0]), np.array([1.0]))}
    own |= {count: entropy_row(count, largest, variance, barred, stay) for count in range(1, last + 1)}
    listed = [(i, j, j - i, p) for i, row in own.items() for j, p in zip(*row, strict=True)]
    frame = pd.DataFrame(listed, columns=["i", "j", "v", "p"])
    frame.to_csv(tmp_path / "long.csv", index=False)
    frame.pivot_table(index="i", columns="j", values="p", fill_value=0).to_csv(tmp_path / "matrix.csv")
    for name in ("long.csv", "matrix.csv"):
        found = mq.PerturbationTable.load(tmp_path / name)
        assert found.largest == largest
        for count, (shown, chances) in own.items():
            seen = dict(zip(*found.rows[count], strict=True))
            assert [seen[it] for it in shown] == pytest.approx(chances, abs=1e-6)
            assert not any(seen.get(it, 0) for it in range(1, barred + 1) if it != count)
            assert found.variance(count) <= variance + 1e-6
            assert count == 0 or seen.get(count, 1) >= stay - 1e-6
        if setting == "D2V1":  # the vignette of ptable warns of it: not 1
            assert found.variance(1) == pytest.approx(0.932, abs=5e-4)
        assert found.variance(last + 7) == pytest.approx(found.variance(last))


@pytest.fixture(scope="module")
def rows():
    return {0: (np.array([0]), np.array([1.0])), **{count: entropy_row(count) for count in range(1, D + 1)}}


@pytest.fixture(scope="module")
def ptable(rows):
    return mq.PerturbationTable(rows)


def perturbed(counts, keys, rows):
    """Return counts with the noise that their keys look up, as offices make them."""
    shown = counts.copy()
    for place in np.ndindex(counts.shape):
        if counts[place]:
            row = min(int(counts[place]), D)
            values, chances = rows[row]
            at = min(int(np.searchsorted(chances.cumsum(), keys[place], side="right")), len(values) - 1)
            shown[place] += values[at] - row
    return shown


def published(counts, names=("a", "b")):
    frame = pd.DataFrame(np.argwhere(counts >= 0), columns=list(names)).assign(count=counts.ravel())
    schema = mq.Schema({name: list(range(size)) for name, size in zip(names, counts.shape, strict=True)})
    return mq.tally(frame, schema=schema, counts="count").answer([mq.Query(by=names)])[0]


def test_coverage_and_size_of_tests(rows, ptable):
    """Of 150 tables: 95% intervals cover, and tests of independence reject 5%, within 5 standard errors.

    Five standard errors of a binomial share: false alarms below 1e-6. Counts taken as exact reject far more.
    """
    rng, runs, n = np.random.default_rng(3), 150, 120
    first, second = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1])
    covered, given, rejected, naive = [], [], 0, 0
    for _ in range(runs):
        cells = 3 * rng.choice(3, n, p=first) + rng.choice(3, n, p=second)
        counts = np.bincount(cells, minlength=9).reshape(3, 3).astype(float)
        keys = np.bincount(cells, weights=rng.random(n), minlength=9).reshape(3, 3) % 1
        shown = perturbed(counts, keys, rows)
        table = mq.cell_keyed(published(shown.astype(int)), ptable, n=n)
        expected = n * np.outer(first, second)
        low, high = table.conf_int()
        covered.append(np.mean((low <= expected) & (expected <= high)))
        low, high = table.conf_int(kind="given_records")
        given.append(np.mean((low <= counts) & (counts <= high)))
        fit = table.fit([["a"], ["b"]])
        rejected += stats.chi2.sf(fit.deviance, fit.df) < 0.05
        naive += stats.chi2_contingency(shown + 1e-9, correction=False).pvalue < 0.05
    assert np.mean(covered) > 0.95 - 5 * np.std(covered) / np.sqrt(runs)
    assert np.mean(given) > 0.95 - 5 * np.std(given) / np.sqrt(runs)
    assert rejected / runs < 0.05 + 5 * np.sqrt(0.05 * 0.95 / runs)
    assert naive > 2 * rejected


def test_a_shown_zero_has_an_interval_to_the_largest_change(ptable):
    table = mq.cell_keyed(published(np.array([[0, 40], [30, 20]])), ptable)
    assert ptable.largest == D
    assert table.conf_int(kind="given_records")[1][0, 0] >= D - 1e-4
    assert table.stderr("given_records")[1, 1] == pytest.approx(np.sqrt(V), abs=1e-3)
    whole = table.marginal("a")
    assert whole.stderr("given_records")[1] == pytest.approx(np.sqrt(2 * V), abs=1e-3)  # two noises


def test_files_of_ptable_are_read(rows, ptable, tmp_path):
    listed = [(i, j, p, j - i, 0, 1, "all") for i, row in rows.items() for j, p in zip(*row, strict=True)]
    frame = pd.DataFrame(listed, columns=["i", "j", "p", "v", "p_int_lb", "p_int_ub", "type"])
    frame.to_csv(tmp_path / "long.csv", index=False)
    frame.drop(columns="j").to_csv(tmp_path / "german.csv", index=False, sep=";", decimal=",")
    frame.pivot_table(index="i", columns="j", values="p", fill_value=0).to_csv(tmp_path / "matrix.csv")
    for name in ("long.csv", "german.csv", "matrix.csv"):
        found = mq.PerturbationTable.load(tmp_path / name)
        assert [found.variance(i) for i in range(9)] == pytest.approx([ptable.variance(i) for i in range(9)])


def test_what_is_not_a_ptable_is_refused(tmp_path, ptable):
    damaged = (
        "i,j,p\n0,0,nan\n",
        "i,j,p\n0,nan,1\n",
        "i,j,p\n0,0,1\ninf,1,1\n",
        'i,j,p\n"0,0,1\n',
        "i,j,p\r0,0,1\n",
    )
    wrong = ("", "a,b\n1,2\n", "i,j,p\n0,0,1\n1,1,0.5\n", "i,j,p\n0,0,1\n1,2,1\n", "i,j,p\n1,1,1\n")
    for text in (*damaged, *wrong):
        (tmp_path / "wrong.csv").write_text(text)
        with pytest.raises(InputError):
            mq.PerturbationTable.load(tmp_path / "wrong.csv")
    with pytest.raises(FileError):
        mq.PerturbationTable.load(tmp_path / "missing.csv")
    table = published(np.array([[3, 4], [5, 6]]))
    with pytest.raises(InputError, match="whole numbers"):
        mq.cell_keyed(mq.cell_keyed(table, ptable).nonnegative("simplex"), ptable)
