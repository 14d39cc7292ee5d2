"""`masquerade stats regress` prints the published tables of indirect questions, to four digits.

The data belong to R packages under the GPL and are not in the repository; without them tests are skipped.
`tests/unit/stats/test_design_regressions.py` has simulated twins of the designs. Two packages stop a little
before the maximum of the likelihood, which is the expectation here: see benchmarks/compare_regressions.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

BESIDE = Path(__file__).parents[3] / "shared" / "data" / "rr"
FOLDER = Path(os.environ.get("MASQUERADE_PUBLISHED", BESIDE))
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no published data: MASQUERADE_PUBLISHED names their folder"
)
DETECTOR = """\
masquerade: 1
variables:
  ban: {categories: ["yes", "no", lying]}
joint:
  - variables: [ban]
    report: [condition, rrt]
    channel: {kind: stochastic_lie_detector, p: [1/6, 5/6]}
"""
LIST = """\
masquerade: 1
variables:
  items: {categories: [0, 1, 2, 3]}
  angry: {categories: ["yes", "no"]}
joint:
  - variables: [items, angry]
    report: [treat, y]
    channel: {kind: list_experiment, groups: [0, 1]}
"""
FORCED = """\
masquerade: 1
variables:
  q: {categories: ["yes", "no"], channel: {kind: forced_response, p_yes: 1/6, p_no: 1/6}}
"""
MIXED = """\
masquerade: 1
variables:
  copied: {categories: ["yes", "no"]}
  RR: {categories: [0, 1]}
strata: {by: RR, channels: {1: {copied: {kind: crosswise, p: 0.25}}}}
"""
NIGERIA = {
    "cov.asset.index": "assets",
    "cov.married": "married",
    "a10": "a10",
    "a10sq": "a10sq",
    "cov.education": "education",
    "cov.female": "female",
}
TERMS = " + ".join(NIGERIA.values())


def write_minarets():
    frame = pd.read_csv(FOLDER / "minarets.csv").query("RRdesign == 1")
    named = {"age.c": "age", "leftRight.c": "lr", "leftRight": "left"}
    told = {"condition": frame["condition"].astype(int), "rrt": np.where(frame["rrt"] == 1, "yes", "no")}
    return frame[[*named]].rename(columns=named).assign(**told)


def write_race():
    return pd.read_csv(FOLDER / "race.csv")


def write_nigeria():
    frame = pd.read_csv(FOLDER / "nigeria.csv").dropna(subset=[*NIGERIA, "rr.q1", "civic"])
    return (
        frame[[*NIGERIA, "civic"]]
        .rename(columns=NIGERIA)
        .assign(q=np.where(frame["rr.q1"] == 1, "yes", "no"))
    )


def write_plagiarism(*needed):
    frame = pd.read_csv(FOLDER / "plagiarism.csv").dropna(subset=["response", "Gender", "RR", "pp", *needed])
    is_direct, is_first = frame["RR"] == 0, frame["response"] == 1
    # a crosswise report says that both answers are the same, which is coded 1
    said = np.where(is_first, "same", "different")
    return frame[["Gender", "pp", "age"]].assign(
        RR=frame["RR"].astype(int), copied=np.where(is_direct, np.where(is_first, "yes", "no"), said)
    )


TABLES = {
    "RRreg, stochastic lie detector": (
        write_minarets,
        DETECTOR,
        ["--formula", "ban[yes, lying] ~ age + lr"],
        {"coef": [2.0892, 0.0884, 0.6637], "stderr": [0.4798, 0.0895, 0.1794]},
        ["Log-likelihood -822.084", "of all; yes 64.9% (1.8%) of yes, lying", "errors: observed", "Fit of"],
    ),
    "RRreg, interaction": (
        write_minarets,
        DETECTOR,
        ["--formula", "ban[yes, lying] ~ age*lr"],
        {"coef": [1.8964, 0.0136, 0.6245, -0.0204], "chi2": [74.8273, 0.0634, 12.6147, 1.9996]},
        ["Log-likelihood -821.084", "yes 65.2% (1.8%) of yes, lying"],
    ),
    "list, items that do not depend on the answer": (
        write_race,
        LIST,
        ["--formula", "angry ~ south + age + male + college"],
        {
            "coef": [-5.5082, 1.6755, 0.6358, 0.8464, -0.3153],
            "stderr": [1.0211, 0.5585, 0.1633, 0.4937, 0.4736],
        },
        [
            "Log-likelihood -1444.394",
            "depend on the answer: LR 6.75, df 5, p 0.24",
            "beta-binomial items: LR 1.34",
        ],
    ),
    "list, items that depend on the answer": (
        write_race,
        LIST,
        ["--formula", "angry ~ south + age + male + college", "--items", "binomial-free"],
        {"coef": [-6.2259, 1.3793, 0.6550, 1.3655, -0.1822]},
        ["Log-likelihood -1441.020"],
    ),
    "rr, forced response": (
        write_nigeria,
        FORCED,
        ["--formula", f"q ~ {TERMS}", "--errors", "outer"],
        {
            "coef": [-0.3402, 0.0790, -0.2674, -0.3528, 0.0410, -0.0069, -0.5544],
            "stderr": [0.5086, 0.0414, 0.2545, 0.2642, 0.0260, 0.0456, 0.1624],
        },
        ["errors: outer"],
    ),
    "GLMMRR, direct and crosswise": (
        write_plagiarism,
        MIXED,
        ["--formula", "copied ~ Gender + RR + pp", "--errors", "expected"],
        {"coef": [-4.7440, 0.0223, 1.2166, 2.2133], "stderr": [0.9848, 0.4841, 0.4934, 0.9811]},
        ["Log-likelihood -406.047", "errors: expected information"],
    ),
    "GLMMRR, random intercept": (
        lambda: write_plagiarism("age"),
        MIXED,
        ["--formula", "copied ~ Gender + RR + pp + (1 | age)"],
        {"coef": [-4.9769, 0.1073, 1.3233, 2.1639]},
        ["Log-likelihood -403.134", "sd 0.3696"],
    ),
    "RRreg, disguised predictor of a number": (
        write_minarets,
        DETECTOR,
        ["--formula", "left ~ ban", "--model", "linear", "--scores", "ban=1,0,1"],
        {"coef": [-1.5958, 1.3625], "stderr": [0.2408, 0.2774]},
        ["Residual standard deviation 1.7498"],
    ),
}
LAST_DIGIT = {"GLMMRR, random intercept": 1.2e-4}  # GLMMRR stops within this of the maximum


@pytest.mark.parametrize("name", TABLES)
def test_a_published_table_is_printed(name, tmp_path, monkeypatch):
    write, policy, options, numbers, texts = TABLES[name]
    monkeypatch.chdir(tmp_path)
    write().to_csv("data.csv", index=False)
    Path("policy.yaml").write_text(policy, encoding="utf-8")
    command = ["stats", "regress", "data.csv", "-p", "policy.yaml", "--covariates", "data.csv", *options]
    result = json.loads(ok(*command, "--json").stdout)
    for column, wanted in numbers.items():
        found = [row[column] for row in result["rows"]]
        np.testing.assert_allclose(found, wanted, atol=LAST_DIGIT.get(name, 0.51e-4))
    said = " ".join(result["notes"])
    for text in ["likelihood-ratio tests, 95% profile intervals", "AIC", "BIC", "Maximum found", *texts]:
        assert text in said
    assert all(
        row["p_value"] is not None and row["lower"] < row["coef"] < row["upper"] for row in result["rows"]
    )


def test_a_disguised_predictor_is_printed_with_its_test_and_interval(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_nigeria().to_csv("data.csv", index=False)
    Path("policy.yaml").write_text(FORCED, encoding="utf-8")
    command = ["stats", "regress", "data.csv", "-p", "policy.yaml", "--covariates", "data.csv"]
    options = ["--formula", f"civic ~ {TERMS} + q", "--reference", "q=no", "--method", "likelihood", "--json"]
    row = json.loads(ok(*command, *options).stdout)["rows"][-1]
    assert row["term"] == "q[T.yes]"
    found = [row[name] for name in ("coef", "stderr", "chi2", "p_value", "lower", "upper")]
    np.testing.assert_allclose(found[:2], [0.4066, 0.1611], atol=0.51e-4)
    np.testing.assert_allclose(found[2:3], [6.58], atol=0.0051)
    np.testing.assert_allclose(found[3:], [0.010, 0.095, 0.729], atol=0.51e-3)


def test_tests_comparisons_effects_and_shares_of_a_lie_detector(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_minarets().to_csv("data.csv", index=False)
    Path("policy.yaml").write_text(DETECTOR, encoding="utf-8")
    command = ["stats", "regress", "data.csv", "-p", "policy.yaml", "--covariates", "data.csv"]
    command += ["--formula", "ban[yes, lying] ~ age + lr"]
    more = ["--test", "lr", "--test", "age,lr", "--against", "ban[yes, lying] ~ age * lr", "--level", "0.9"]
    notes = " ".join(json.loads(ok(*command, *more, "--json").stdout)["notes"])
    assert "90% profile intervals" in notes
    assert "No effect of lr: LR 21.34, df 1, p <0.0001." in notes  # RRreg's deltaG2
    assert "No effect of age, lr: LR" in notes
    assert "Against ban[yes, lying] ~ age * lr: LR 2.00, df 1, p 0.157; AIC 1652.2" in notes
    (honest,) = json.loads(ok(*command, "--show", "nuisance", "--json").stdout)["rows"]
    chance = 1 / (1 + np.exp(-honest["coef"]))
    error = chance * (1 - chance) * honest["stderr"]
    np.testing.assert_allclose([chance, error], [0.6488, 0.0178], atol=0.51e-4)
    shares = json.loads(ok(*command, "--show", "shares", "--json").stdout)["rows"]
    assert [row["category"] for row in shares][:2] == ["yes, lying", "yes"]
    effects = json.loads(ok(*command, "--show", "effects", "--json").stdout)["rows"]
    assert [row["effect"] for row in effects] == ["age", "lr"]
    pd.DataFrame({"age": [0, 10], "lr": [0, 2]}).to_csv("rows.csv", index=False)
    rows = json.loads(ok(*command, "--predict", "rows.csv", "--json").stdout)["rows"]
    wanted = 1 / (1 + np.exp(-np.array([2.0892, 2.0892 + 10 * 0.08835 + 2 * 0.66371])))
    np.testing.assert_allclose([row["share"] for row in rows], wanted, atol=1e-4)
    ok(*command, "--residuals", "residuals.svg")
    assert Path("residuals.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "residuals.svg" in refused(*command, "--residuals", "residuals.svg")
    ok(*command, "--residuals", "residuals.svg", "--overwrite")


def test_tables_for_papers_are_written_by_the_name_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_minarets().to_csv("data.csv", index=False)
    Path("policy.yaml").write_text(DETECTOR, encoding="utf-8")
    command = ["stats", "regress", "data.csv", "-p", "policy.yaml", "--covariates", "data.csv"]
    command += ["--formula", "ban[yes, lying] ~ age + lr", "--plot", "coefficients.svg"]
    for name, text in (("fit.tex", "\\toprule"), ("fit.html", "<table"), ("fit.csv", "coef")):
        ok(*command, "--out", name, "--overwrite")
        assert text in Path(name).read_text(encoding="utf-8")
        assert "2.089" in Path(name).read_text(encoding="utf-8")
    assert Path("coefficients.svg").read_text(encoding="utf-8").startswith("<?xml")
