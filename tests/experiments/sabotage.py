"""Break the library on purpose, run an experiment, and return its verdict.

Each fault replaces public functions that experiments call. An experiment that depends on what is broken must
differ from its paper; one that does not would accept anything.

    python -m tests.experiments.sabotage [--json FILE] [ID ...]     # every fault in every experiment

FILE keeps what it has of other experiments. `code` is the digest of the sources of experiment and library.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa

import masquerade as mq
from masquerade_experiments.catalogue import select
from masquerade_experiments.summary import verdicts
from masquerade_experiments.tasks import digest_of, seed_of
from masquerade_experiments.zhan_2004.classifiers import clear_accuracy

WRONG, CONSTANT, DOUBLED, SHUFFLED = (
    "wrong estimator",
    "constant classifier",
    "doubled noise",
    "shuffled column",
)
ESTIMATED = (WRONG, DOUBLED)
CLASSIFIED = (WRONG, CONSTANT, DOUBLED, SHUFFLED)


@dataclass(frozen=True)
class Dependence:
    """What an experiment depends on: the faults that it must notice, and the column to shuffle.

    `quick` runs the quick settings; `runs` is how often each runs.
    """

    faults: tuple[str, ...]
    column: str = ""
    runs: int = 5
    quick: bool = True


DEPENDS: Mapping[str, Dependence] = {
    "ma-sivakumar-2005-table-2": Dependence((*ESTIMATED, SHUFFLED), "D"),
    "ma-sivakumar-2005-fig-4": Dependence((*ESTIMATED, SHUFFLED), "C"),
    "ma-sivakumar-2005-fig-5": Dependence((*ESTIMATED, SHUFFLED), "C"),
    "ma-2006-fig-2.2": Dependence((*ESTIMATED, SHUFFLED), "x2"),
    "ma-2006-fig-2.3": Dependence(ESTIMATED),
    "ma-2006-fig-3.3": Dependence((WRONG,), runs=100),
    "ma-2006-fig-3.4a": Dependence((*ESTIMATED, SHUFFLED), "x2"),
    "ma-2006-fig-3.4b": Dependence(ESTIMATED),
    "ma-2006-fig-5.1": Dependence(ESTIMATED, runs=20),
    "ma-2006-fig-5.4": Dependence((*ESTIMATED, SHUFFLED), "D"),
    "ma-2006-fig-5.5": Dependence((*ESTIMATED, SHUFFLED), "D"),
    "ma-2006-fig-5.9": Dependence((*ESTIMATED, SHUFFLED), "C"),
    "ma-2006-fig-5.10": Dependence((*ESTIMATED, SHUFFLED), "C"),
    "ma-2006-fig-6.1": Dependence(CLASSIFIED, "lenses"),
    "ma-2006-fig-6.2": Dependence(CLASSIFIED, "virginica"),
    "ma-2006-fig-6.3": Dependence(ESTIMATED),
    "ma-2006-fig-7.4": Dependence((*ESTIMATED, SHUFFLED), "class=e", runs=3),
    "ma-2006-fig-7.5": Dependence((*ESTIMATED, SHUFFLED), "sex=Male", runs=3),
    "ma-2006-fig-7.8": Dependence(CLASSIFIED, "income", runs=3),
    "ma-2006-fig-7.9": Dependence(CLASSIFIED, "class"),
    "meng-2004-table-6": Dependence((SHUFFLED,), "L"),
    "meng-2004-table-7": Dependence((DOUBLED, SHUFFLED), "L", runs=20),
    "meng-2004-table-8": Dependence((DOUBLED, SHUFFLED), "L", runs=20),
    "zhan-2004-fig-1": Dependence(CLASSIFIED, "income", runs=20),
    "zhan-2004-fig-2": Dependence(CLASSIFIED, "class", runs=20),
}
# exact formulas and protocols: nothing is estimated, disguised at random or classified
INDEPENDENT = {
    "ma-2006-fig-3.1",
    "ma-2006-fig-3.2",
    "ma-2006-fig-7.3",
    "wright-2005-k-anonymity",
    "wright-2005-frequency-timing",
    "wright-2005-bayes-timing",
}
PAIRS = [(identity, fault) for identity, it in DEPENDS.items() for fault in it.faults]


def unmark(data: Any) -> Any:
    """Return records without the mark of their policy, by which the library would refuse them."""
    if isinstance(data, pa.Table):
        return data.replace_schema_metadata(None)
    data = data.copy()
    data.attrs = {}
    return data


def of_reports(policy: mq.Policy) -> mq.Policy:
    """Return the policy that sends reports through the same channels again."""
    groups = dict.fromkeys(policy.group(name) for name in policy.disguised)
    return mq.Policy.build(
        {name: policy.schema[name].categories for name in policy.schema},
        {group.names if len(group.names) > 1 else group.names[0]: group.matrix_channel for group in groups},
    )


def shuffle(data: Any, column: str, seed: int) -> Any:
    """Return records with the values of one column in another order."""
    order = np.random.default_rng(seed)
    if isinstance(data, pa.Table):
        values = order.permutation(data.column(column).to_numpy())
        return data.set_column(data.schema.get_field_index(column), column, pa.array(values))
    return data.assign(**{column: order.permutation(data[column].to_numpy())})


@contextmanager
def broken(fault: str, column: str) -> Iterator[None]:
    """Replace the public functions that a fault breaks."""
    tally, simulate, learn = mq.tally, mq.simulate, mq.learn
    project, rotate = mq.simulate_projection, mq.projection_tally
    bayes, tree, linear = learn.naive_bayes, learn.decision_tree, learn.linear_classifier

    def count_reports(data, policy=None, **options):
        if policy is None:
            return tally(data, **options)
        return tally(unmark(data), schema=policy.schema, **options)

    def disguise_twice(data, policy, seed):
        random = np.random.default_rng(seed)
        return unmark(simulate(unmark(simulate(data, policy, random)), of_reports(policy), random))

    def fewer_trials(data, owners, seed, *, trials, **options):
        return project(data, owners, seed, trials=max(1, trials // 4), **options)

    def shuffle_first(data, policy, seed):
        random = np.random.default_rng(seed)
        return simulate(shuffle(data, column, int(random.integers(2**31))), policy, random)

    def constant_bayes(source, target, **options):
        model = bayes(source, target, **options)
        return replace(
            model, probabilities=tuple(np.full_like(it, 1 / it.shape[-1]) for it in model.probabilities)
        )

    def constant_linear(source, target, **options):
        model = linear(source, target, **options)
        (classes,) = source.answer([mq.Query(by=(target,))])
        weights = np.zeros_like(model.coefficients)
        weights[0, 0] = 1.0 if classes.values[1] > classes.values[0] else -1.0
        return replace(model, coefficients=weights)

    patches: Mapping[str, Mapping[tuple[Any, str], Any]] = {
        WRONG: {(mq, "tally"): count_reports},
        DOUBLED: {(mq, "simulate"): disguise_twice, (mq, "simulate_projection"): fewer_trials},
        SHUFFLED: {
            (mq, "simulate"): shuffle_first,
            (mq, "simulate_projection"): lambda data, owners, seed, **options: project(
                shuffle(data, column, seed), owners, seed, **options
            ),
            (mq, "projection_tally"): lambda data, owners, **options: rotate(
                shuffle(data, column, 1), owners, **options
            ),
        },
        CONSTANT: {
            (learn, "naive_bayes"): constant_bayes,
            (learn, "linear_classifier"): constant_linear,
            (learn, "decision_tree"): lambda source, target, **options: tree(
                source, target, **options | {"max_depth": 0}
            ),
        },
    }
    clear_accuracy.cache_clear()  # no benchmark of the whole library
    with ExitStack() as stack:
        for (owner, name), function in patches[fault].items():
            stack.enter_context(mock.patch.object(owner, name, function))
        yield
    clear_accuracy.cache_clear()


def verdict_of(identity: str, fault: str) -> dict[str, Any]:
    """Run an experiment with a fault and return its verdict, and which comparisons notice."""
    [entry] = select([identity]).entries
    experiment, depends = entry.load(), DEPENDS[identity]
    rows = []
    with warnings.catch_warnings(), broken(fault, depends.column):
        warnings.simplefilter("ignore")
        for setting in experiment.settings(depends.quick):
            for run in range(depends.runs):
                measured = experiment.measure(setting, seed_of(identity, setting, run))
                rows += [{**setting, "run": run, **row} for row in measured]
    comparisons = experiment.compare(pd.DataFrame(rows))
    found = verdicts(comparisons)
    verdict = next((it for it in ("differs", "undecided", "matches") if found[it]), "nothing to compare")
    return {
        "id": identity,
        "fault": fault,
        "code": digest_of(entry.module)[:16],
        "verdict": verdict,
        "runs": depends.runs,
        "noticed by": [it.what for it in comparisons if it.verdict == "differs"],
        "not noticed by": [it.what for it in comparisons if it.verdict == "matches"],
    }


def main() -> None:
    """Try every fault, and print or keep the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    pairs = [it for it in PAIRS if not given.ids or it[0] in given.ids]
    earlier = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else {}
    results = {(it["id"], it["fault"]): it for it in earlier.get("faults", ())}
    for identity, fault in pairs:
        found = results[identity, fault] = verdict_of(identity, fault)
        counts = f"{len(found['noticed by'])} notice, {len(found['not noticed by'])} do not"
        sys.stdout.write(f"{identity}, {fault}: {found['verdict']} ({counts})\n")
        sys.stdout.flush()
        if given.json:
            kept = {
                "faults": [results[it] for it in PAIRS if it in results],
                "not tried": [it for it in PAIRS if it not in results],
            }
            given.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
