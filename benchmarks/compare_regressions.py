"""Five published regressions of indirect questions, beside the numbers that R packages print.

    MASQUERADE_PUBLISHED=folder python -m benchmarks.compare_regressions

The folder has minarets.csv (RRreg 0.7.5), race.csv (list 9.2.6), nigeria.csv (rr 1.4.2) and plagiarism.csv
(GLMMRR 0.6.0), which are example data of the packages under the GPL. The packages' numbers were printed by R
and are written down here. Where they differ from the maximum of the likelihood, the algorithm of the package
is run here with its own stopping rule, which shows why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import comb, expit

import masquerade as mq

RESULTS = Path(__file__).parent / "results" / "compare_regressions.json"
FOLDER = Path(os.environ.get("MASQUERADE_PUBLISHED", Path(__file__).parents[2] / "shared" / "data" / "rr"))
NIGERIA = {
    "cov.asset.index": "assets",
    "cov.married": "married",
    "a10": "a10",
    "a10sq": "a10sq",
    "cov.education": "education",
    "cov.female": "female",
}
TERMS = " + ".join(NIGERIA.values())
LIST = {
    "masquerade": 1,
    "variables": {"items": {"categories": [0, 1, 2, 3]}, "angry": {"categories": ["yes", "no"]}},
    "joint": [
        {
            "variables": ["items", "angry"],
            "report": ["treat", "y"],
            "channel": {"kind": "list_experiment", "groups": [0, 1]},
        }
    ],
}
MIXED = {
    "masquerade": 1,
    "variables": {"copied": {"categories": ["yes", "no"]}, "RR": {"categories": [0, 1]}},
    "strata": {"by": "RR", "channels": {1: {"copied": {"kind": "crosswise", "p": 0.25}}}},
}


@dataclass(frozen=True)
class Row:
    """A coefficient as the package prints it, and as masquerade does with errors of the same kind."""

    analysis: str
    package: str
    term: str
    printed: float
    printed_error: float
    coef: float
    error: float
    errors: str
    observed: float
    p_value: float
    lower: float
    upper: float


def compare(
    analysis: str, package: str, printed: Sequence[tuple[float, float]], *fits, terms=None
) -> list[Row]:
    """Return the rows of one analysis; the first fit has the package's errors, the last observed ones."""
    like, observed = fits[0], fits[-1]
    table = observed.to_frame().set_index("term")
    names = list(like.terms) if terms is None else terms
    return [
        Row(
            analysis,
            package,
            term,
            *numbers,
            float(like.params[term]),
            float(like.bse[term]),
            like.fit.errors,
            float(observed.bse[term]),
            *(float(table.loc[term, name]) for name in ("p_value", "lower", "upper")),
        )
        for term, numbers in zip(names, printed, strict=True)
    ]


def minarets() -> tuple[mq.Tally, pd.DataFrame]:
    """Return the stochastic lie detector of RRreg and its covariates."""
    frame = pd.read_csv(FOLDER / "minarets.csv").query("RRdesign == 1").reset_index(drop=True)
    channel = mq.channels.stochastic_lie_detector(["1/6", "5/6"])
    names = {("ban",): ["condition", "rrt"]}
    policy = mq.Policy.build({"ban": ["yes", "no", "lying"]}, {"ban": channel}, names)
    said = np.where(frame["rrt"] == 1, "yes", "no")
    reports = pd.DataFrame({"condition": frame["condition"].astype(int), "rrt": said})
    clear = frame[["age.c", "leftRight.c", "leftRight"]].set_axis(["age", "lr", "left"], axis=1)
    return mq.tally(reports, policy), clear


def race() -> pd.DataFrame:
    """Return the list experiment of the package list."""
    return pd.read_csv(FOLDER / "race.csv")


def nigeria() -> tuple[mq.Tally, pd.DataFrame]:
    """Return the forced response of the package rr and its covariates."""
    frame = pd.read_csv(FOLDER / "nigeria.csv").dropna(subset=[*NIGERIA, "rr.q1", "civic"])
    policy = mq.Policy.build({"q": ["yes", "no"]}, {"q": mq.channels.forced_response("1/6", "1/6")})
    reports = pd.DataFrame({"q": np.where(frame["rr.q1"] == 1, "yes", "no")})
    return mq.tally(reports, policy), frame[[*NIGERIA, "civic"]].rename(columns=NIGERIA)


def plagiarism() -> pd.DataFrame:
    """Return direct and crosswise answers of GLMMRR."""
    return pd.read_csv(FOLDER / "plagiarism.csv").dropna(subset=["response", "Gender", "RR", "pp"])


def mixed_reports(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the answers as labels: a crosswise 1 says that both answers are the same."""
    first = frame["response"] == 1
    crosswise = np.where(first, "same", "different")
    said = np.where(frame["RR"] == 0, np.where(first, "yes", "no"), crosswise)
    return pd.DataFrame({"copied": said, "RR": frame["RR"].astype(int)})


def compare_all() -> list[Row]:
    """Return all rows."""
    rows = []
    source, clear = minarets()
    fit = mq.stats.logistic(source, "ban[yes, lying] ~ age + lr", covariates=clear)
    printed = [(2.08917, 0.47980), (0.08834, 0.08947), (0.66372, 0.17938)]
    rows += compare("lie detector", "RRreg", printed, fit)
    frame = race()
    source = mq.tally(frame[["treat", "y"]], mq.Policy.from_dict(LIST))
    formula = "angry ~ south + age + male + college"
    fit = mq.stats.logistic(source, formula, covariates=frame, items="binomial")
    printed = [(-5.5080, 1.0210), (1.6754, 0.5585), (0.6358, 0.1633), (0.8463, 0.4937), (-0.3154, 0.4736)]
    rows += compare("list", "list", printed, fit)
    source, clear = nigeria()
    fits = [
        mq.stats.logistic(source, f"q ~ {TERMS}", covariates=clear, errors=e) for e in ("outer", "observed")
    ]
    printed = [(-0.34017, 0.50856), (0.07896, 0.04136), (-0.26743, 0.25451), (-0.35283, 0.26423)]
    printed += [(0.04099, 0.02603), (-0.00691, 0.04558), (-0.55439, 0.16244)]
    rows += compare("forced response", "rr", printed, *fits)
    formula, options = f"civic ~ {TERMS} + q", {"reference": {"q": "no"}, "method": "likelihood"}
    fit = mq.stats.logistic(source, formula, covariates=clear, **options)
    rows += compare("disguised predictor", "rr", [(0.38416, 0.56080)], fit, terms=["q[T.yes]"])
    frame = plagiarism()
    source = mq.tally(mixed_reports(frame), mq.Policy.from_dict(MIXED))
    fits = [
        mq.stats.logistic(
            source, "copied ~ Gender + RR + pp", covariates=frame.drop(columns="RR"), errors=errors
        )
        for errors in ("expected", "observed")
    ]
    printed = [(-4.74413, 0.98437), (0.02221, 0.48404), (1.21661, 0.49341), (2.21347, 0.98065)]
    return rows + compare("direct and crosswise", "GLMMRR", printed, *fits)


def fit_binomial(X, k, size, weights, beta):
    """Return the coefficients of a weighted binomial regression, by Newton's steps."""
    for _ in range(50):
        p = expit(X @ beta)
        step = np.linalg.solve(
            X.T @ ((weights * size * p * (1 - p))[:, None] * X), X.T @ (weights * (k - size * p))
        )
        beta = beta + step
        if np.abs(step).max() < 1e-12:
            break
    return beta


def stop_of_list(frame: pd.DataFrame, size: int = 3, least: float = 1e-8) -> tuple[np.ndarray, float]:
    """Return where the EM algorithm stops if ℓ grows by less than `least`, as the package list does, and ℓ.

    It starts from the two-step nonlinear least squares of the same model: items in the control group, then
    the sensitive answer from what the treated count in addition.
    """
    X = np.column_stack([np.ones(len(frame)), frame[["south", "age", "male", "college"]]]).astype(float)
    y, treated = frame["y"].to_numpy(dtype=int), frame["treat"].to_numpy(dtype=int)
    inside, zeros = treated == 0, np.zeros(X.shape[1])
    items = fit_binomial(X[inside], y[inside], size, np.ones(inside.sum()), zeros)
    items = least_squares(lambda b: y[inside] - size * expit(X[inside] @ b), items).x
    rest = y[~inside] - size * expit(X[~inside] @ items)
    answer = least_squares(lambda b: rest - expit(X[~inside] @ b), zeros).x

    def chance(k, eta):
        held = np.clip(k, 0, size)
        p = expit(eta)
        return np.where(k == held, comb(size, held) * p**held * (1 - p) ** (size - held), 0.0)

    def parts():
        p = expit(X @ answer)
        return p * chance(y - treated, X @ items), (1 - p) * chance(y, X @ items)

    before, value = -np.inf, float(np.log(sum(parts())).sum())
    while value - before > least:
        yes, no = parts()
        weight = yes / (yes + no)
        answer = fit_binomial(X, weight, 1, np.ones(len(y)), answer)
        rows = np.concatenate([np.arange(len(y)), np.flatnonzero(~inside)])
        counted = np.concatenate([y - treated, y[~inside]])
        shares = np.concatenate([np.where(inside, 1.0, weight), 1 - weight[~inside]])
        items = fit_binomial(X[rows], counted, size, shares, items)
        before, value = value, float(np.log(sum(parts())).sum())
    return answer, value


def stop_of_glmmrr(frame: pd.DataFrame, least: float = 1e-8) -> tuple[np.ndarray, np.ndarray, float]:
    """Return where R's glm stops, the errors of its last weights, and ℓ.

    Weighted least squares from a predictor of 0.01 until the deviance changes by less than `least` of itself.
    The weights of the errors are those before the last step.
    """
    X = np.column_stack([np.ones(len(frame)), frame[["Gender", "RR", "pp"]]]).astype(float)
    y, crosswise = frame["response"].to_numpy(dtype=float), frame["RR"].to_numpy() == 1
    base, slope = np.where(crosswise, 0.75, 0.0), np.where(crosswise, -0.5, 1.0)
    eta, before, deviance = np.full(len(y), 0.01), np.inf, 0.0
    beta = errors = np.zeros(X.shape[1])
    while abs(deviance - before) / (abs(deviance) + 0.1) >= least:
        p = expit(eta)
        mean, change = base + slope * p, slope * p * (1 - p)
        weights = change**2 / (mean * (1 - mean))
        information = X.T @ (weights[:, None] * X)
        beta = np.linalg.solve(information, X.T @ (weights * (eta + (y - mean) / change)))
        errors = np.sqrt(np.diag(np.linalg.inv(information)))
        eta = X @ beta
        mean = base + slope * expit(eta)
        before, deviance = (
            deviance if np.any(deviance) else np.inf,
            -2 * float(np.sum(y * np.log(mean) + (1 - y) * np.log(1 - mean))),
        )
    return beta, errors, -deviance / 2


def value_at_rrs_point(frame_and_source: tuple[mq.Tally, pd.DataFrame]) -> tuple[float, float]:
    """Return ℓ of the disguised predictor at the coefficients that rr prints, and at the maximum."""
    source, clear = frame_and_source
    X = np.column_stack([np.ones(len(clear)), clear[list(NIGERIA.values())]]).astype(float)
    civic = clear["civic"].to_numpy(dtype=float)
    said = np.asarray(source.codes["q"]) == 0
    of_y = np.array(
        [-2.83811947, 0.11210573, 0.31917041, 0.94090852, -0.10259398, 0.08606236, -0.02529709, 0.38416475]
    )
    of_x = np.array([-0.51946, 0.08686, -0.32196, -0.25155, 0.03168, -0.01538, -0.56205])
    p = expit(X @ of_x)
    total = np.zeros(len(civic))
    for x in (1, 0):
        report = np.where(said, 5 / 6 if x else 1 / 6, 1 / 6 if x else 5 / 6)
        yes = expit(X @ of_y[:-1] + of_y[-1] * x)
        total += (p if x else 1 - p) * report * np.where(civic == 1, yes, 1 - yes)
    options = {"reference": {"q": "no"}, "method": "likelihood"}
    fit = mq.stats.logistic(source, f"civic ~ {TERMS} + q", covariates=clear, **options)
    return float(np.log(total).sum()), fit.llf


def compare_shares(seed: int = 1, population: int = 5_000, n: int = 1_000) -> dict[str, float]:
    """Return a share of a sample without replacement and its error, by closed formulas and by masquerade.

    RRTCS documents r = (z − p₁)/(1 − p₁ − p₂) with variance r(r − 1) for a forced response, the
    Horvitz–Thompson mean of r, and the variance of the draw plus that of the disguise.
    """
    draw = np.random.default_rng(seed)
    p_yes, p_no, share = 0.2, 0.1, n / population
    policy = mq.Policy.build({"q": ["yes", "no"]}, {"q": mq.channels.forced_response("1/5", "1/10")})
    people = pd.DataFrame({"q": np.where(draw.random(population) < 0.3, "yes", "no")})
    sample = people.iloc[draw.choice(population, n, replace=False)].reset_index(drop=True)
    reports = mq.simulate(sample, policy, seed=seed)
    r = (np.where(reports["q"] == "yes", 1.0, 0.0) - p_yes) / (1 - p_yes - p_no)
    variance = (1 - share) * np.var(r, ddof=1) / n + np.sum(r * (r - 1) / share) / population**2
    survey = mq.SurveyRecords(reports.assign(w=1 / share, size=population), policy, weights="w", fpc="size")
    found = mq.stats.shares(survey, "q")
    return {
        "closed share": float(r.mean()),
        "closed error": float(np.sqrt(variance)),
        "share": float(found.values[0]),
        "error": float(found.stderr[0]),
    }


def table_of(rows: Sequence[Row]) -> str:
    """Return the rows of one analysis as the Markdown table of docs/howto/compare-regressions.md."""
    package, errors = rows[0].package, rows[0].errors
    others = [] if errors == "observed" else ["observed errors"]
    lines = [["term", package, f"masquerade, {errors} errors", *others, "LR p", "profile interval"]]
    lines.append(["---"] * len(lines[0]))
    for row in rows:
        estimates = [f"{row.printed:.4f} ({row.printed_error:.4f})", f"{row.coef:.4f} ({row.error:.4f})"]
        more = [f"{row.observed:.4f}"] if others else []
        p = "<0.0001" if row.p_value < 1e-4 else f"{row.p_value:.4f}"
        lines.append([row.term, *estimates, *more, p, f"{row.lower:.3f} to {row.upper:.3f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables_of(rows: Sequence[Row]) -> dict[str, str]:
    """Return a table per analysis."""
    names = dict.fromkeys(row.analysis for row in rows)
    return {name: table_of([row for row in rows if row.analysis == name]) for name in names}


def main() -> None:
    """Print the comparison and keep it."""
    rows = compare_all()
    for name, table in tables_of(rows).items():
        print(f"{name}\n\n{table}\n")
    answer, value = stop_of_list(race())
    print(f"The EM algorithm of list stops at {np.round(answer, 4)}, l = {value:.9f}")
    beta, errors, height = stop_of_glmmrr(plagiarism())
    print(f"glm stops at {np.round(beta, 5)}, errors {np.round(errors, 5)}, l = {height:.7f}")
    printed, best = value_at_rrs_point(nigeria())
    print(f"Disguised predictor: l = {printed:.2f} at the coefficients of rr, {best:.2f} at the maximum")
    kept = {"rows": [asdict(row) for row in rows], "list stops": answer.tolist(), "glm stops": beta.tolist()}
    shares = compare_shares()
    print(f"Share of a finite population: {shares}")
    kept |= {"glm errors": errors.tolist(), "rr predictor": [printed, best], "finite population": shares}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
