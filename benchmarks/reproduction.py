"""Run all experiments of the papers by one rule, and keep every verdict.

The rule has no options. Every experiment runs as often as its paper prints, or 20 times where it prints no
number, or once where nothing is random (`Experiment.runs`). Then all experiments that are undecided run four
times as often, once, and what results is kept, whatever it is. Verdicts come from the rows in the folder: a
folder that lacks a setting or a run, or has one too many, is refused. Seeds follow from the experiment, so
experiments may run in several calls: one without rows in the folder keeps what FILE has of an earlier call by
the same rule. `code` is the digest of the sources when the rows were made, from CODE next to them.

    python -m benchmarks.reproduction FOLDER [ID ...] [--jobs N] [--json FILE] # run what is missing, judge
    python -m benchmarks.reproduction FOLDER --judge [--json FILE]             # judge the rows that are there
"""

import argparse
import hashlib
import json
from collections import Counter
from pathlib import Path

import pandas as pd
from benchmarks.timing import keep

from masquerade_experiments.catalogue import ENTRIES, select
from masquerade_experiments.experiment import KINDS, RAISED, RUNS_IF_NOT_PRINTED
from masquerade_experiments.measurement import checkable
from masquerade_experiments.result_files import write_results
from masquerade_experiments.runner import reproduce
from masquerade_experiments.summary import OVERALL, Findings, Outcome, comparison_values, headline
from masquerade_experiments.tasks import digest_of, plain_setting

QUICK = False  # all settings of the papers
MORE = "raised"  # folder of the experiments that were undecided
CODE = "code.txt"  # digest of the sources that rows come from, next to them
ITEMSETS = ("ma-2006-fig-7.4", "ma-2006-fig-7.5")


def read_rows(folder, experiment, runs):
    """Return all rows of an experiment, refused unless every setting has exactly its runs."""
    path = folder / (experiment.repeats or experiment.id) / "data.csv"
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
    settings = [plain_setting(it, experiment.id) for it in experiment.settings(QUICK)]
    names = list(settings[0])
    found = Counter(frame[[*names, "run"]].drop_duplicates().itertuples(index=False, name=None))
    expected = Counter((*(it[name] for name in names), run) for it in settings for run in range(runs))
    if found != expected:
        raise SystemExit(f"{path}: needs {runs} runs of each of {len(settings)} settings, and no others.")
    return frame, hashlib.sha256(path.read_bytes()).hexdigest()


def has_rows(folder, entry):
    """Return True if the experiment has run."""
    return (folder / (entry.load().repeats or entry.id) / "data.csv").exists()


def judge(folder, entry, times=1):
    """Return the outcome of one experiment from its rows; one that has not run is kept as "not run"."""
    experiment = entry.load()
    if not has_rows(folder, entry):
        return Outcome(experiment, reason="It has not run by the rule yet."), "", ""
    runs = experiment.runs * times
    frame, digest = read_rows(folder, experiment, runs)
    comparisons = tuple(checkable(it, entry.id) for it in experiment.compare(frame))
    values = json.loads((folder / (experiment.repeats or entry.id) / "comparison.json").read_text("utf-8"))
    settings = len(experiment.settings(QUICK))
    findings = Findings(frame, comparisons, frame, None, settings, runs, values["seed"], values["seconds"])
    code = (folder / (experiment.repeats or entry.id) / CODE).read_text("utf-8")
    return Outcome(experiment, findings), digest, code


def kept(outcome, digest, code):
    """Return what is kept of one experiment, of the digests of its rows and of their sources."""
    if outcome.findings is None:
        about = outcome.about
        return {
            "id": about.id,
            "repeats": about.repeats,
            "verdict": outcome.verdict,
            "reason": outcome.reason,
        }
    judged = [it for it in outcome.comparisons if it.paper is not None]
    return {
        "id": outcome.about.id,
        "repeats": outcome.about.repeats,
        "verdict": outcome.verdict,
        "settings": outcome.findings.settings,
        "runs": outcome.findings.runs,
        "seconds": outcome.findings.seconds,
        "rows": digest,
        "code": code,
        "values": {
            kind: dict(Counter(it.verdict for it in judged if it.kind == kind))
            for kind in KINDS
            if any(it.kind == kind for it in judged)
        },
        "open": [comparison_values(it) for it in judged if it.verdict != "matches"],
    }


def wrong_itemsets(frame, identity):
    """Return false positives and negatives in percent of the frequent itemsets, by p and type of search."""
    wrong = ["false_positive", "false_negative"]
    means = (100 * frame.groupby(["p", "search"])[wrong].mean()).round(2).reset_index()
    return {"id": identity, "percent": means.to_dict("records")}


def headline_of(found):
    """Return the headline over what is kept of all experiments; those that repeat another count once."""
    once = [it for it in found if not it["repeats"]]
    verdicts = Counter(it["verdict"] for it in once)
    kinds = {}
    for kind in KINDS:
        counts = Counter()
        for it in once:
            counts.update(it.get("values", {}).get(kind, {}))
        if counts:
            kinds[kind] = counts["matches"], counts.total()
    return headline({it: verdicts[it] for it in OVERALL if verdicts[it]}, kinds, len(found) - len(once))


def run(names, folder, jobs, runs=None):
    """Run experiments that are not saved yet, and write their rows and the digest of their sources."""
    selected = select(names)
    codes = {entry.id: digest_of(entry.module)[:16] for entry in selected.entries}
    write_results(reproduce(selected, folder, runs=runs, jobs=jobs), folder, quick=False)
    for identity, code in codes.items():
        if (folder / identity).is_dir():
            (folder / identity / CODE).write_text(code, "utf-8")


def main():
    """Run and judge all experiments, and print or keep the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    originals = [entry.id for entry in ENTRIES if not entry.load().repeats]
    if not given.judge:
        run(given.ids or originals, given.folder, given.jobs)
    first = {entry.id: judge(given.folder, entry) for entry in ENTRIES}
    final = dict(first)
    for entry in ENTRIES:
        if first[entry.id][0].verdict != "undecided":
            continue
        if given.judge and not has_rows(given.folder / MORE, entry):
            continue
        experiment = entry.load()
        if not given.judge and not experiment.repeats:
            run([entry.id], given.folder / MORE, given.jobs, RAISED * experiment.runs)
        final[entry.id] = judge(given.folder / MORE, entry, RAISED)
    rule = {"runs if not printed": RUNS_IF_NOT_PRINTED, "times for undecided": RAISED}
    earlier = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else {}
    earlier = earlier if earlier.get("rule") == rule else {}
    before = {it["id"]: it for it in earlier.get("experiments", ())}
    more = {identity for identity in final if final[identity] is not first[identity]}
    found = [
        {**kept(outcome, rows, code), "before": "undecided" if identity in more else ""}
        if outcome.findings or identity not in before
        else before[identity]
        for identity, (outcome, rows, code) in final.items()
    ]
    print(headline_of(found))
    incomplete = [
        it["id"]
        for it in found
        if it["verdict"] == "not run" or (it["verdict"] == "undecided" and not it["before"])
    ]
    for it in found:
        for one in it.get("open", ()):
            print(f"{it['id']}: {one['verdict']}: {one['what']}. {one['why']} {one['check']}")
    wrong = {it["id"]: it for it in earlier.get("wrong itemsets", ())}
    for identity in ITEMSETS:
        if findings := final[identity][0].findings:
            wrong[identity] = wrong_itemsets(findings.frame, identity)
    keep(
        given.json,
        {
            "rule": rule,
            "headline": headline_of(found),
            "incomplete": incomplete,
            "experiments": found,
            "wrong itemsets": [wrong[identity] for identity in ITEMSETS if identity in wrong],
        },
    )


if __name__ == "__main__":
    main()
