"""Every printed p-value follows from the statistic and the degrees of freedom that are printed with it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, f, norm, t

import masquerade as mq
from masquerade.core.links.deviance_test import ENOUGH, link_tests, simulated_p_value
from masquerade.report.records_page import survey_findings, survey_page
from masquerade.stats.regression.item_tests import boundary_tail

CHI_SQUARE = ("chi2", "deviance", "G2", "distance", "statistic")
STATISTICS = (*CHI_SQUARE, "z", "F", "t")
FILES = {"policy": None, "records": "people.csv"}
SCHEMA = {"a": ["x", "y"], "b": ["low", "middle", "high"], "c": ["no", "yes"], "d": ["no", "yes"]}
POLICY = mq.Policy.build(
    SCHEMA, {name: mq.channels.symmetric(len(labels), 0.2) for name, labels in SCHEMA.items() if name != "a"}
)
LINE = re.compile(
    r"(?:LR|G²|X²|χ²|chi2|Deviance) (?:= )?(?P<statistic>[\d.,]+),? (?:on|df) (?P<df>[\d.]+)"
    r"(?: and (?P<more>\d+))?"
    r"(?P<edge> on the boundary)?"
    r"(?: degrees? of freedom)?, (?:mean )?p (?:= )?(?P<p><?[\d.]+\d)"
)


def people(n=3000, seed=1):
    draw = np.random.default_rng(seed)
    a = draw.integers(2, size=n)
    b = np.where(draw.random(n) < 0.15, a, draw.integers(3, size=n))
    c = (draw.random(n) < 0.3 + 0.1 * a).astype(int)
    d = np.where(draw.random(n) < 0.7, c, draw.integers(2, size=n))
    codes = {"a": a, "b": b, "c": c, "d": d}
    return pd.DataFrame({name: np.array(SCHEMA[name])[codes[name]] for name in SCHEMA})


@pytest.fixture(scope="module", params=["clear", "disguised"])
def source(request):
    if request.param == "clear":
        return mq.tally(people(), schema=mq.Schema(SCHEMA))
    return mq.tally(mq.simulate(people(), POLICY, seed=4), POLICY)


def rounding_of(text):
    """Return a printed number and half a unit of its last digit."""
    plain = text.replace(",", "").replace("−", "-")
    digits = len(plain.partition("e")[0].partition(".")[2])
    exponent = int(plain.partition("e")[2] or 0)
    return float(plain), 0.5001 * 10.0 ** (exponent - digits)


def assert_p_follows(statistic, df, p, tail=chi2.sf):
    """Raise unless a printed p-value is one that the printed statistic may have, within rounding."""
    value, slack = rounding_of(statistic)
    low, high = tail(value + slack, df), tail(max(value - slack, 0.0), df)
    if p.startswith("<"):
        assert low < float(p[1:])
        return
    printed, unit = rounding_of(p)
    assert low - unit <= printed <= high + unit, (statistic, df, p, low, high)


def check_shown(result):
    """Check all rows and all remarks of a result; return the number of p-values checked."""
    frame, checked = result.format_frame(), 0
    columns = set(frame.columns)
    assert "p_value" in columns or not columns & set(STATISTICS)
    samples = re.search(r"(\d+) of (\d+) samples", " ".join(result.remarks))
    for _, row in frame.iterrows():
        if "p_value" not in row or row["p_value"] == "–":
            continue
        (name,) = [name for name in STATISTICS if name in columns]
        if samples is not None:
            assert row["p_value"] == f"{simulated_p_value(*map(int, samples.groups())):.3f}"
        elif name == "z":
            assert_p_follows(row["z"].lstrip("-−"), 1, row["p_value"], lambda z, _: 2 * norm.sf(z))
        elif name == "t":
            tail = lambda x, df: 2 * t.sf(x, df)  # noqa: E731
            assert_p_follows(row["t"].lstrip("-−"), float(row["df"]), row["p_value"], tail)
        elif name == "F":
            below = float(row["df2"])
            tail = lambda x, df, below=below: f.sf(x, df, below)  # noqa: E731
            assert_p_follows(row["F"], float(row.get("df", "1")), row["p_value"], tail)
        else:
            assert_p_follows(row[name], float(row.get("df", "1")), row["p_value"])
        checked += 1
    return checked + check_text("\n".join(result.remarks))


def check_text(text):
    """Check the statistics in sentences, such as "G² 4.10, df 3, p 0.251"; return their number."""
    checked = 0
    for part in LINE.finditer(text):
        tail = (lambda x, k: boundary_tail(x, int(k))) if part["edge"] else chi2.sf
        if part["more"]:
            tail = lambda x, k: (chi2.sf(x, k) if k else x == 0) / 2 + chi2.sf(x, k + 1) / 2  # noqa: E731
        assert_p_follows(part["statistic"], float(part["df"]), part["p"], tail)
        checked += 1
    return checked


def test_tests_of_tables(source):
    results = [
        mq.stats.independence(source, "a", "b"),
        mq.stats.independence(source, "c", "d", given="a"),
        mq.stats.independence(source, "b", "c", where={"a": "x"}),
        mq.stats.associations(source),
        mq.stats.associations(source, "c", given="a", method="bh"),
        mq.stats.trend(source, "c", "b"),
        mq.stats.marginal_homogeneity(source, "c", "d"),
    ]
    assert [check_shown(result) for result in results] == [1, 1, 1, 6, 2, 1, 1]
    independent, linked = mq.stats.loglinear(source, "a + c + d"), mq.stats.loglinear(source, "a + c*d")
    assert check_shown(independent.compare(linked)) == 1
    assert check_text(independent.summary()) == 1


def test_effects(source):
    panel = mq.stats.change(source, "c", "d")
    strata = mq.stats.mantel_haenszel(source, "c", "d", given="a")
    curves = mq.stats.survival(source, "b", "c", by="a")
    (table,) = source.answer([mq.Query(by=("a", "c"))])
    results = [
        mq.stats.difference(source, "c", "a"),
        mq.stats.ratio(source, "c", "b", given="a"),
        mq.stats.odds_ratio(source, "c", "b"),
        mq.stats.odds_ratio(source, "c", "b").adjust(),
        mq.stats.contrast(table, [[-1, 0], [1, 0]]),
        panel,
        strata,
        curves.hazard_ratio(),
        curves.logrank(),
        curves,
    ]
    assert [check_shown(result) for result in results] == [1, 4, 2, 2, 1, 1, 2, 1, 1, 1]
    assert panel.p_values == pytest.approx(2 * norm.sf(abs(panel.tvalues)))


def test_imputed_analyses():
    draw = np.random.default_rng(2)
    pooled = mq.stats.rubin(draw.normal(0.2, 0.1, (5, 3)), draw.uniform(0.01, 0.02, (5, 3)))
    assert check_shown(pooled) == 3


@pytest.mark.parametrize("model", ["multinomial", "proportional_odds", "poisson", "linear"])
def test_regressions_of_other_outcomes(source, model):
    outcome = "c" if model in ("poisson", "linear") else "b"
    scores = {"c": [0, 1]} if outcome == "c" else {}
    fit = getattr(mq.stats, model)(source, f"{outcome} ~ a", scores=scores)
    assert check_shown(fit) >= 1
    if fit.fit is not None:  # a disguised number has no likelihood
        assert check_shown(fit.lr_test("a")) == 1


def test_regressions_of_clusters_and_groups():
    """With clusters the statistic is F, and its p-value is not that of a χ²."""
    source = mq.tally(mq.simulate(people(), POLICY, seed=4), POLICY)
    group = np.arange(3000) % 12
    fit = mq.stats.logistic(source, "c ~ a + b", clusters=group)
    assert check_shown(fit) == 5  # four terms, and the fit of the model
    test = fit.lr_test("b")
    assert (test.symbol, test.df) == ("F", 2)
    assert check_shown(test) == 1
    row = test.format_frame().iloc[0]
    with pytest.raises(AssertionError):
        assert_p_follows(row["F"], 2, row["p_value"])
    assert test.sample_size() is None or test.sample_size() > 0
    mixed = mq.stats.logistic(source, "c ~ a + (1 | g)", covariates=pd.DataFrame({"g": group}))
    assert check_shown(mixed) >= 3  # two terms, and the random intercept


def test_misfits():
    lists = mq.Policy.build({"a": ["x", "y"], "b": ["u", "v", "w"]}, {"b": mq.channels.symmetric(3, 0.4)})
    draw = np.random.default_rng(1)
    rare = pd.DataFrame({"a": ["x"] * 300, "b": draw.choice(["u", "v", "w"], 300, p=[0.9, 0.05, 0.05])})
    odd = mq.tally(rare, lists).misfit(["b"])  # as if they were disguised
    assert odd.statistic > 0
    assert check_text(str(odd)) == 1


def test_every_statistic_with_a_p_value_is_checked_here():
    without = {"shares", "mean", "quantile", "impute", "adjusted_p_values", "missing_shares"}
    text = Path(__file__).read_text(encoding="utf-8")
    functions = {name for name in mq.stats.__all__ if name[0].islower()} - without
    assert [
        name for name in sorted(functions) if f"mq.stats.{name}(" not in text and f'"{name}"' not in text
    ] == []


@pytest.mark.parametrize("method", ["likelihood", "score"])
def test_regressions(source, method):
    fit = mq.stats.logistic(source, "c ~ a + b", method=method)
    frame = fit.format_frame()
    for _, row in frame.iterrows():
        if method == "likelihood":
            assert_p_follows(row["chi2"], 1, row["p_value"])
        else:
            assert_p_follows(row["z"].lstrip("-−"), 1, row["p_value"], lambda z, _: 2 * norm.sf(z))
    check_text("\n".join(fit.remarks))
    assert check_shown(fit.wald_test("b")) == 1
    if method == "likelihood":
        assert check_shown(fit.lr_test("b")) == 1


def test_structures(source):
    found = mq.learn.structure(source)
    lines = re.findall(r"^(\w+ → \w+) +([\d.,]+) +([\d.]+) +(\S+)", found.summary(), re.MULTILINE)
    assert len(lines) == len(found.links) > 0
    for _, statistic, df, p in lines:
        assert_p_follows(statistic, float(df), p)
    for strength in mq.learn.load(saved(found)).strengths:
        assert strength.p_value == pytest.approx(chi2.sf(strength.statistic, strength.df), rel=1e-9)


def saved(model, name="model.json"):
    mq.learn.save(model, name)
    return name


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_splits_of_trees(source):
    tree = mq.learn.load(saved(mq.learn.decision_tree(source, "d", significance=0.2)))
    splits = [node.split for node in tree.nodes if node.split is not None]
    assert splits
    for split in splits:
        assert split.p_value == pytest.approx(
            min(split.tried * chi2.sf(split.statistic, split.df), 1), rel=1e-9
        )


def test_the_report_page(source):
    policy = POLICY if "disguised" in str(source.guarantee) else mq.Policy.build(SCHEMA, {})
    page = survey_page(survey_findings(source, policy, disguised=bool(policy.disguised)), "Report", FILES)
    rows = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    (head,) = [row for row in rows if "chi2" in row]
    below = rows[rows.index(head) + 1 :]
    tests = [dict(zip(head, row, strict=True)) for row in below if len(row) == len(head)]
    assert len(tests) == 6
    for row in tests:
        assert_p_follows(row["chi2"], float(row["df"]), row["p value"].replace("&lt;", "<"))


def test_a_simulated_p_value_states_its_samples_and_a_bound_its_degrees_of_freedom():
    """Few reports of rare categories: the fit without a link is on the boundary."""
    policy = mq.Policy.build(
        {"a": ["x", "y", "z"], "b": ["u", "v", "w"]}, {("a", "b"): mq.channels.symmetric(9, 0.5)}
    )
    notes = set()
    for seed in range(12):
        draw = np.random.default_rng(seed)
        rare = draw.choice(["x", "y", "z"], p=[0.96, 0.03, 0.01], size=400)
        other = np.where(draw.random(400) < 0.4, np.where(rare == "x", "u", "v"), "u")
        reports = mq.simulate(pd.DataFrame({"a": rare, "b": other}), policy, seed=seed)
        source = mq.tally(reports, policy)
        result = mq.stats.independence(source, "a", "b")
        assert check_shown(result) == 1
        notes.add(re.sub(r"\d+", "n", result.notes[0]))
        (table,) = source.answer([mq.Query(by=("a", "b"))])
        (test,) = link_tests([table], [(0, 1)], lambda: np.random.default_rng(0))
        if test.samples is None:
            assert test.p_value == pytest.approx(chi2.sf(test.statistic, test.df))
        else:
            assert test.p_value == simulated_p_value(*test.samples)
            assert test.samples[0] <= ENOUGH
    assert any("samples" in note for note in notes), notes


def test_a_structure_without_links_says_what_was_decided_and_by_what():
    draw = np.random.default_rng(5)
    frame = pd.DataFrame({name: draw.choice(labels, 400) for name, labels in SCHEMA.items()})
    found = mq.learn.structure(mq.tally(frame, schema=mq.Schema(SCHEMA)))
    assert found.links == []
    assert "no link raised the score, which is not a test" in found.summary()
