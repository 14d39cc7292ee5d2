"""Networks and shares from records with missing answers: EM beside complete cases and two steps.

    python -m benchmarks.missing_networks [--runs 1000] [--json FILE]

Asia and ALARM stand in for the records on which VertiBayes was tested: 10,000 records in ten folds, with no,
5%, 10% and 30% of the answers missing completely at random. The two steps are VertiBayes': a network in which
a missing answer is one more category, then EM on as many records drawn from it. Figures: the Kullback–Leibler
divergence from the true network, and the area under the ROC curve of a variable, where it is stated, from
what is stated of the others. To be reached: EM on Asia with 30% missing at most 0.003 from the truth.

Absence that depends on a variable: b is missing for 60% of a = yes and 10% of a = no, and P(b = yes) is 0.36.
Rates are stated right and wrong, b is clear or disguised, a clear or disguised. To be reached: the likelihood
does not depend on the stated rate, and 95% intervals hold from 93% to 97%, also those of EM's parameters.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
import warnings
from fractions import Fraction
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import masquerade as mq

KEPT = Path(__file__).parent / "results" / "missing_networks.json"
RECORDS, FOLDS, ALARM_FOLDS, ALARM_ROWS, RUNS, PEOPLE = 10_000, 10, 10, 1_000, 1_000, 4_000
RATES = (0.0, 0.05, 0.1, 0.3)
ASIA = {
    "asia": (),
    "tub": ("asia",),
    "smoke": (),
    "lung": ("smoke",),
    "bronc": ("smoke",),
    "either": ("tub", "lung"),
    "xray": ("either",),
    "dysp": ("bronc", "either"),
}
YES: dict[str, Any] = {
    "asia": 0.01,
    "tub": [0.01, 0.05],
    "smoke": 0.5,
    "lung": [0.01, 0.1],
    "bronc": [0.3, 0.6],
    "either": [[0.0, 1.0], [1.0, 1.0]],
    "xray": [0.05, 0.98],
    "dysp": [[0.1, 0.7], [0.8, 0.9]],
}
TRUE = {name: np.stack([1 - np.asarray(yes), np.asarray(yes)], axis=-1) for name, yes in YES.items()}


def coded(frame: pd.DataFrame, sizes: dict[str, int]) -> mq.Tally:
    """Return a source of codes, in which the code after the last category is a missing answer."""
    names = {name: range(sizes[name] + 1) for name in frame}
    return mq.tally(
        frame, schema=mq.Schema([mq.Variable(name, own, missing=[own[-1]]) for name, own in names.items()])
    )


def hide(frame: pd.DataFrame, sizes: dict[str, int], rate: float, rng: np.random.Generator) -> pd.DataFrame:
    """Return records in which a share of the answers, drawn at random, is missing."""
    codes = frame.to_numpy().copy()
    codes[rng.random(codes.shape) < rate] = -1
    own = pd.DataFrame(codes, columns=frame.columns)
    return own.where(own >= 0, pd.Series(sizes), axis=1).astype(int)


def auc(network: mq.learn.BayesianNetwork, rows: pd.DataFrame, sizes: dict[str, int], target: str) -> float:
    """Return the area under the ROC curve of each category against the rest, weighed by its records."""
    stated = rows[rows[target] < sizes[target]]
    seen = {}
    for name in rows:
        if name != target:
            agrees = np.vstack(
                [np.eye(sizes[name]), np.ones(sizes[name])]
            )  # a missing answer agrees with all
            seen[(name,)] = agrees[stated[name].to_numpy()]
    scores, truth = network.posteriors(target, seen), stated[target].to_numpy()
    areas, weights = [], []
    for k in range(sizes[target]):
        is_k = truth == k
        if 0 < is_k.sum() < len(truth):
            ranks = pd.Series(scores[:, k]).rank().to_numpy()
            most = is_k.sum() * (~is_k).sum()
            areas.append((ranks[is_k].sum() - is_k.sum() * (is_k.sum() + 1) / 2) / most)
            weights.append(is_k.sum())
    return float(np.average(areas, weights=weights))


def joint(chances: dict[str, Any]) -> np.ndarray:
    """Return the probabilities of all records of Asia."""
    found = np.empty([2] * len(ASIA))
    for record in product((0, 1), repeat=len(ASIA)):
        value = dict(zip(ASIA, record, strict=True))
        found[record] = np.prod(
            [chances[name][tuple(value[it] for it in ASIA[name])][value[name]] for name in ASIA]
        )
    return found


def divergence(network: mq.learn.BayesianNetwork) -> float:
    """Return the Kullback–Leibler divergence of a network from Asia."""
    truth, found = joint(TRUE), joint({name: network[name].probabilities for name in ASIA})
    kept = truth > 0
    return float(np.sum(truth[kept] * np.log(truth[kept] / np.maximum(found[kept], 1e-12))))


def two_steps(
    frame: pd.DataFrame, sizes: dict[str, int], rng: np.random.Generator
) -> mq.learn.BayesianNetwork:
    """Return a network by VertiBayes' two steps: missing answers as a category, then EM on drawn records."""
    plain = mq.Schema({name: list(range(sizes[name] + 1)) for name in frame})
    first = mq.learn.bayesian_network(mq.tally(frame, schema=plain), ASIA, prior=1e-9)
    drawn = first.sample(len(frame), rng)
    return mq.learn.network_with_missing(coded(drawn.astype(int), sizes), ASIA, tables="joint")


def complete_cases(frame: pd.DataFrame, sizes: dict[str, int]) -> mq.learn.BayesianNetwork:
    """Return a network of the records that state everything."""
    full = frame[(frame < pd.Series(sizes)).all(axis=1)]
    plain = mq.Schema({name: list(range(sizes[name])) for name in frame})
    return mq.learn.bayesian_network(mq.tally(full, schema=plain), ASIA, prior=0.5)


def asia(rate: float, folds: int = FOLDS) -> dict[str, float]:
    """Return figures of Asia with a share of missing answers, as means over folds."""
    plain, sizes = mq.Schema({name: [0, 1] for name in ASIA}), dict.fromkeys(ASIA, 2)
    frame = mq.learn.known_network(plain, ASIA, TRUE).sample(RECORDS, seed=11).astype(int)
    rng = np.random.default_rng(12)
    shown = hide(frame, sizes, rate, rng)
    rows = []
    for fold in range(folds):
        test = np.arange(RECORDS) % FOLDS == fold
        train = shown[~test]
        em = mq.learn.network_with_missing(coded(train, sizes), ASIA, tables="joint")
        families = mq.learn.network_with_missing(coded(train, sizes), ASIA)
        steps = two_steps(train, sizes, rng)
        rows.append(
            [
                auc(em, shown[test], sizes, "lung"),
                divergence(em),
                divergence(families),
                divergence(steps),
                divergence(complete_cases(train, sizes)),
                auc(steps, shown[test], sizes, "lung"),
            ]
        )
    names = (
        "AUC",
        "KL",
        "KL of EM on families",
        "KL of two steps",
        "KL of complete cases",
        "AUC of two steps",
    )
    means = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))
    return {"missing": rate, "folds": folds, **means}


def alarm(rate: float, folds: int = ALARM_FOLDS) -> dict[str, float]:
    """Return the weighted AUC of BP in ALARM, by EM on each family's table."""
    packed = files("pgmpy").joinpath("utils", "example_models", "alarm.bif.gz").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alarm.bif"
        path.write_bytes(gzip.decompress(packed))
        truth = mq.learn.read_bif(path)
    structure, sizes = truth.structure, {it.child.name: len(it.child) for it in truth.tables}
    frame = pd.DataFrame({name: own.astype(int) for name, own in truth.sample_codes(RECORDS, 13).items()})
    shown = hide(frame, sizes, rate, np.random.default_rng(14))
    areas = []
    for fold in range(folds):
        test = np.arange(RECORDS) % FOLDS == fold
        network = mq.learn.network_with_missing(coded(shown[~test], sizes), structure)
        areas.append(auc(network, shown[test].head(ALARM_ROWS), sizes, "BP"))
    clear = [
        auc(truth, frame[np.arange(RECORDS) % FOLDS == fold].head(ALARM_ROWS), sizes, "BP")
        for fold in range(folds)
    ]
    return {
        "missing": rate,
        "folds": folds,
        "AUC": float(np.mean(areas)),
        "AUC of the truth": float(np.mean(clear)),
    }


def erasure(kept: float | str, flipped: str) -> mq.Channel:
    """Return a channel that shows an answer with probability `kept`, and the other answer if flipped."""
    stated, turned = Fraction(str(kept)), Fraction(flipped)
    shown, other = stated * (1 - turned), stated * turned
    return mq.channels.matrix(
        [[shown, other, 1 - stated], [other, shown, 1 - stated]], labels=["no", "yes", "?"]
    )


def people(rng: np.random.Generator, n: int, flips_of_a: float, flips_of_b: float) -> pd.DataFrame:
    """Return reports of a and b; b is missing for 60% of a = yes and 10% of a = no, and P(b) = 0.36."""
    a = rng.random(n) < 0.4
    b = rng.random(n) < np.where(a, 0.6, 0.2)
    missing = rng.random(n) < np.where(a, 0.6, 0.1)
    a, b = a ^ (rng.random(n) < flips_of_a), b ^ (rng.random(n) < flips_of_b)
    yes_no = np.array(["no", "yes"])
    return pd.DataFrame({"a": yes_no[a.astype(int)], "b": np.where(missing, "?", yes_no[b.astype(int)])})


def share(frame: pd.DataFrame, rate: float, flips_of_a: str, flips_of_b: str) -> tuple[float, float, float]:
    """Return P(b = yes) by the inverse and by the likelihood of a stated rate, and the latter's error."""
    masks: dict[str, Any] = {"b": erasure(rate, flips_of_b)}
    if Fraction(flips_of_a):
        masks["a"] = mq.channels.binary(flips_of_a)
    policy = mq.Policy.build({"a": ["no", "yes"], "b": ["no", "yes"]}, masks)
    (table,) = mq.tally(frame, policy).answer([mq.Query(by=("a", "b"))])
    fitted = table.fit([["a", "b"]]).contrast(np.array([[0.0, 1.0], [0.0, 1.0]]))
    n = len(frame)
    return (
        float(table.values[:, 1].sum() / table.values.sum()),
        float(fitted.value) / n,
        float(fitted.stderr) / n,
    )


def share_with_absence(frame: pd.DataFrame, flips_of_a: str) -> float:
    """Return P(b = yes) by the likelihood in which absence is a variable of its own, which depends on a."""
    binary = ["no", "yes"]
    policy = mq.Policy.build(
        {"a": binary, "b": binary, "absent": binary},
        {"a": mq.channels.binary(flips_of_a), "b": erasure(0.7, "0")},
    )
    reports = frame.assign(absent=np.where(frame["b"] == "?", "yes", "no"))
    (table,) = mq.tally(reports, policy).answer([mq.Query(by=("a", "b", "absent"))])
    weights = np.zeros((2, 2, 2))
    weights[:, 1] = 1.0
    return float(table.fit([["a", "b"], ["a", "absent"]]).contrast(weights).value) / len(frame)


def absence(runs: int) -> dict[str, Any]:
    """Return means and coverage of P(b = yes), 0.36, where absence depends on a."""
    rng, clear = np.random.default_rng(5), []
    for flips in ("0", "0.15"):
        for rate in (0.7, 0.5):
            found, answered = [], []
            for _ in range(runs):
                frame = people(rng, PEOPLE, 0, float(flips))
                found.append(share(frame, rate, "0", flips))
                stated = frame["b"][frame["b"] != "?"]
                answered.append(((stated == "yes").mean() - float(flips)) / (1 - 2 * float(flips)))
            inverse, value, stderr = np.array(found).T
            clear.append(
                {
                    "flipped": float(flips),
                    "stated rate": rate,
                    "inverse": float(inverse.mean()),
                    "likelihood": float(value.mean()),
                    "complete cases": float(np.mean(answered)),
                    "coverage": float(np.mean(np.abs(value - 0.36) < 1.959964 * stderr)),
                }
            )
    disguised = []
    for flips in ("0.15", "0.25", "0.35"):
        frames = [people(rng, PEOPLE, float(flips), 0) for _ in range(max(runs // 10, 1))]
        disguised.append(
            {
                "flipped": float(flips),
                "likelihood": float(np.mean([share(frame, 0.7, flips, "0")[1] for frame in frames])),
                "absence a variable": float(np.mean([share_with_absence(frame, flips) for frame in frames])),
            }
        )
    return {"clear": clear, "disguised": disguised}


CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
CHANCES = {"a": [0.6, 0.4], "b": [[0.8, 0.2], [0.3, 0.7]], "c": [[0.9, 0.1], [0.2, 0.8]]}


def chain_coverage(runs: int, n: int = 1_000) -> dict[str, Any]:
    """Return the coverage of EM's 95% intervals in a chain whose b is missing more often where c is yes."""
    rng, sizes = np.random.default_rng(31), dict.fromkeys(CHAIN, 2)
    chances = {name: np.array(own) for name, own in CHANCES.items()}
    places = [(name, row) for name in CHAIN for row in np.ndindex(*chances[name].shape[:-1])]
    hits, widths, answered = [], [], []
    for _ in range(runs):
        a = (rng.random(n) < 0.4).astype(int)
        b = (rng.random(n) < chances["b"][a, 1]).astype(int)
        c = (rng.random(n) < chances["c"][b, 1]).astype(int)
        frame = pd.DataFrame({"a": a, "b": b, "c": c})
        frame["b"] = frame["b"].mask(rng.random(n) < np.where(c == 1, 0.5, 0.2), 2)
        frame["a"] = frame["a"].mask(rng.random(n) < 0.2, 2)
        source = coded(frame, sizes)
        network = mq.learn.network_with_missing(source, CHAIN, tables="joint", prior=0.0)
        plain = mq.learn.bayesian_network(source, CHAIN)
        found = [
            (network[name].probabilities[*row, 1], network[name].stderr[*row, 1]) for name, row in places
        ]
        second = network.query("b")
        found.append((second.probabilities[1], second.stderr[1]))
        true = [*(chances[name][*row, 1] for name, row in places), 0.4]
        hits.append(
            [abs(value - it) < 1.959964 * error for (value, error), it in zip(found, true, strict=True)]
        )
        widths.append([error for _, error in found[:-1]])
        answered.append([plain[name].stderr[*row, 1] for name, row in places])
    names = [f"P({name}{' | ' + str(row[0]) if row else ''})" for name, row in places]
    ratios = np.mean(widths, axis=0) / np.mean(answered, axis=0)
    return {
        "people": n,
        "coverage": dict(zip([*names, "P(b)"], np.mean(hits, axis=0).tolist(), strict=True)),
        "errors, of those of people who answered": dict(zip(names, ratios.tolist(), strict=True)),
    }


def main() -> None:
    """Run all studies and keep their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.process_time()
    kept: dict[str, Any] = {"runs": options.runs, "records": RECORDS}
    kept["absence"] = absence(options.runs)
    print(json.dumps(kept["absence"], indent=1), flush=True)
    kept["chain"] = chain_coverage(options.runs)
    print(json.dumps(kept["chain"], indent=1), flush=True)
    kept["asia"] = []
    for rate in RATES:
        kept["asia"].append(asia(rate))
        print(kept["asia"][-1], flush=True)
    kept["alarm"] = []
    for rate in RATES:
        kept["alarm"].append(alarm(rate))
        print(kept["alarm"][-1], flush=True)
    kept["seconds of processor"] = round(time.process_time() - started)
    options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
