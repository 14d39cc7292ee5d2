"""What sessions learn, beside the joined clear records: three services and whoever convenes, over mutual TLS.

Fig. 6.2 of Ma (2006): a linear classifier of disguised iris data, features and class at three parties.
Then every learner, with a miner and without: errors in units of their standard errors.

python -m benchmarks.sessions [--json FILE]
"""

import json
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from benchmarks.timing import json_option, keep
from tests.services.parties.deployments import Deployment, Goal, started

import masquerade as mq
from masquerade.learn import catalogue
from masquerade.protocols.vertical import restricted
from masquerade.services.parties.example import vertical
from masquerade_experiments.ma_2006 import iris

WITH, WITHOUT = "vertical-with-miner", "vertical-without-miner"
FIGURE_RUNS, FIGURE_P = 8, (0.3, 0.6)
FLOWERS = {"sepals": iris.FEATURES[:2], "petals": iris.FEATURES[2:], "names": (iris.TARGET,)}
PEOPLE = 4000
RUNS, MORE_RUNS = 12, 24  # more of learners that say fewer than twenty things a run
SAYING_MUCH = ("tables", "network")
OWNERS = {"north": ("a", "b"), "south": ("c", "d"), "registry": ("e", "f")}
NUMBERS = (0, 1, 8, 9)
SCHEMA = mq.Schema({"a": NUMBERS, "b": (0, 1), "c": (0, 1, 2, 3), "d": (0, 1), "e": (0, 1), "f": (0, 1, 2)})
CHANNELS = {
    name: mq.channels.symmetric(len(SCHEMA[name]), "0.4" if len(SCHEMA[name]) > 2 else "0.25")
    for name in SCHEMA
}
GOALS = {
    "tables": {"tables": [["a", "c"], ["c", "f"], ["b", "e"]]},
    "network": {"structure": {"a": [], "b": [], "c": ["a"], "d": ["b"], "e": ["b", "d"], "f": ["c"]}},
    "naive-bayes": {"target": "e", "features": ["a", "d", "f"]},
    "tree": {"target": "e", "features": ["d"], "max_depth": 1, "significance": 1.0},
    "rules": {"min_support": 0.01, "min_confidence": 0.01, "max_len": 2, "items": ["b", "d", "e"]},
    "linear": {"target": "e", "features": ["b", "d", "f"], "loss": "squares", "counts": "unbiased"},
    "k-means": {"k": 2, "names": ["a", "c"]},
}


def held(deployment, sessions):
    """Hold several sessions, each of a kind and a goal, in one deployment, and return their models."""
    specs = {
        name: deployment.spec.model_copy(update={"session": name, "protocol": kind, "learn": goal})
        for name, (kind, goal) in sessions.items()
    }
    for party in deployment.spec.parties:
        values = yaml.safe_load(deployment.files[party].read_text())
        (consent,) = values["consents"]
        values["consents"] = [
            {**consent, "session": name, "protocol": spec.protocol} for name, spec in specs.items()
        ]
        deployment.files[party].write_text(yaml.safe_dump(values))
    found = {}
    with started(deployment):
        for name, spec in specs.items():
            status = deployment.run(spec)
            if status["state"] != "done":
                raise RuntimeError(status["reason"])
            with deployment.operator() as operator:
                found[name] = operator.ask("model", {"session": name})
    return found


def figure(p, generator):
    """Return the accuracy on clear records that is lost by learning from disguised ones at three parties."""
    grouped = iris.sample(generator)
    policy = grouped.policy(p)
    truth = mq.tally(grouped.records, schema=policy)
    told = {"scores": grouped.means, "counts": "mle", "seed": int(generator.integers(2**31))}
    goal = Goal(model="linear", target=iris.TARGET, features=list(iris.FEATURES), **told)
    plan = vertical(grouped.records, policy, FLOWERS, WITH, goal, seed=1, linking="keyed")
    with tempfile.TemporaryDirectory() as folder:
        models = held(
            Deployment(Path(folder) / "nodes", plan), {"with": (WITH, goal), "without": (WITHOUT, goal)}
        )
    clear = mq.learn.linear_classifier(truth, iris.TARGET, iris.FEATURES, **told)
    best = mq.evaluate.accuracy(clear, truth).value
    return {
        way: best - mq.evaluate.accuracy(mq.learn.LinearClassifier.from_dict(model), truth).value
        for way, model in models.items()
    }


def losses(runs=FIGURE_RUNS):
    """Return mean losses with their standard errors, by p and by whether there is a miner."""
    found = []
    for p in FIGURE_P:
        each = [figure(p, np.random.default_rng([6, 2, run])) for run in range(runs)]
        for way in ("with", "without"):
            lost = [one[way] for one in each]
            row = {"p": p, "miner": way == "with", "runs": runs, "lost": float(np.mean(lost)),
                   "stderr": float(np.std(lost, ddof=1) / np.sqrt(runs))}  # fmt: skip
            print(row, flush=True)
            found.append(row)
    return found


def people(n=PEOPLE, seed=20):
    """Return made-up people whose variables depend on each other."""
    generator = np.random.default_rng(seed)
    high, b = generator.random(n) < 0.45, generator.integers(0, 2, n)
    c = np.where(generator.random(n) < 0.9, high, ~high)
    d = np.where(generator.random(n) < 0.7, b, 1 - b)
    return pd.DataFrame(
        {
            "a": np.array(NUMBERS)[2 * high + (generator.random(n) < 0.5)],
            "b": b,
            "c": 2 * c + (generator.random(n) < 0.5),
            "d": d,
            "e": (generator.random(n) < 0.2 + 0.3 * b + 0.3 * d).astype(int),
            "f": (c + (generator.random(n) < 0.4)).astype(int),
        }
    )


def estimates(name, model):
    """Return what a model says, by names: values with their standard errors."""
    if name == "tables":
        parts = {tuple(it["by"]): (it["values"], it["stderr"]) for it in model["tables"]}
    elif name == "network":
        parts = {it["variable"]["name"]: (it["probabilities"], it["stderr"]) for it in model["nodes"]}
    elif name == "naive-bayes":
        parts = {it["name"]: (it["probabilities"], it["stderr"]) for it in model["features"]}
    elif name == "linear":
        parts = {"coefficients": (model["coefficients"], model["stderr"])}
    elif name == "k-means":
        order = np.argsort([centre[0] for centre in model["centres"]])
        parts = {
            key: (np.array(model[key])[order], np.array(model[error])[order])
            for key, error in (("centres", "centre_stderr"), ("shares", "share_stderr"))
        }
    elif name == "tree":
        nodes = mq.learn.DecisionTree.from_dict(model).nodes
        parts = {place: (node.probabilities, node.stderr) for place, node in enumerate(nodes)}
    else:
        frame = mq.learn.Rules.from_dict(model).to_frame()
        parts = {
            (str(row.antecedents), str(row.consequents)): (
                [row.support, row.confidence],
                [row.stderr, row.confidence_stderr],
            )
            for row in frame.itertuples()
        }
    return {key: (np.ravel(values), np.ravel(errors)) for key, (values, errors) in parts.items()}


def deviations(found, clear):
    """Return the errors of a model beside that of the clear records, in standard errors of the disguise.

    A model's own errors are about the population, which the clear model's are, too: what they have more is
    the disguise's. Where they have no more, nothing was disguised, and both must be equal.
    """
    listed = []
    for key, (values, errors) in found.items():
        exact, sampled = clear[key]
        added = errors**2 - sampled**2
        disguised = added > 1e-3 * errors**2
        same = np.isclose(values, exact, rtol=1e-6, atol=1e-9)
        if not np.all(disguised | same):
            raise RuntimeError(f"{key}: what was not disguised differs from the clear records.")
        listed.extend((values - exact)[disguised] / np.sqrt(added[disguised]))
    return np.array(listed)


def runs_of(name):
    """Return how often a learner is tried."""
    return RUNS if name in SAYING_MUCH else MORE_RUNS


def learners(runs_of=runs_of, n=PEOPLE):
    """Return the root mean square of deviations of every learner, with a miner and without."""
    frame = people(n)
    policy = mq.Policy.build(SCHEMA, CHANNELS)
    goals = {name: Goal(model=name, **told) for name, told in GOALS.items()}
    clear = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, goal in goals.items():
            needed = mq.Schema([SCHEMA[it] for it in goal.needed(tuple(SCHEMA))])
            source = mq.tally(frame[list(needed)], schema=needed)
            learner = catalogue.learner(name)
            model = learner.learnt(source, goal.read(needed)).to_dict()
            clear[name] = estimates(name, json.loads(json.dumps(model)))
    squares = {(name, kind): [] for name in goals for kind in (WITH, WITHOUT)}
    counts = {}
    for run in range(max(map(runs_of, goals))):
        tried = {name: goal for name, goal in goals.items() if run < runs_of(name)}
        plan = vertical(frame, policy, OWNERS, WITH, next(iter(goals.values())), seed=run, linking="keyed")
        plan = replace(plan, policies={party: restricted(policy, own) for party, own in OWNERS.items()})
        sessions = {
            f"{name}-{place}": (kind, goal)
            for name, goal in tried.items()
            for place, kind in enumerate((WITH, WITHOUT))
        }
        with tempfile.TemporaryDirectory() as folder:
            models = held(Deployment(Path(folder) / "nodes", plan), sessions)
        for name in tried:
            for place, kind in enumerate((WITH, WITHOUT)):
                z = deviations(estimates(name, models[f"{name}-{place}"]), clear[name])
                squares[name, kind].append(float(np.mean(z**2)))
                counts[name, kind] = len(z)
        print(f"run {run + 1}", flush=True)
    found = []
    for (name, kind), each in squares.items():
        mean, error = float(np.mean(each)), float(np.std(each, ddof=1) / np.sqrt(len(each)))
        row = {"learner": name, "kind": kind, "runs": len(each), "values": counts[name, kind],
               "rms_z": mean**0.5, "mean_square": mean, "stderr": error}  # fmt: skip
        print(row, flush=True)
        found.append(row)
    return found


def main():
    path = json_option(__doc__)
    keep(path, {"figure_6_2": losses(), "records": PEOPLE, "learners": learners()})


if __name__ == "__main__":
    main()
