"""One limit per person (5%:50%, γ = 19): errors of shares and pairs, dealt blocks against an even split.

python -m benchmarks.person_limit [--runs 2000] [--repeats 4] [--draft-only] [--json FILE]

First, thirty yes/no questions and 200,000 people: every run draws the table of all reports from its exact
distribution and goes through `mq.stats.shares`; errors are compared with the planner's, and intervals with
the truth. Then 10, 20 and 30 questions under the same record γ: errors of all pairs, as planned and as
realised by disguised records. Last, the draft of `masquerade policy init` for a messy file of 40 columns:
errors and intervals of shares and pairs under the drafted policy itself.
"""

import argparse
import json
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.design_coverage import CountedReports
from benchmarks.timing import keep
from tests.messy_survey import write_messy_survey

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode
from masquerade.plan.expected_errors import expected_errors
from masquerade.sources.records import Records

QUESTIONS = 30
PEOPLE = 200_000
LIMIT = {"breach": "5%:50%"}
ANSWERS = ["yes", "no"]
WIDTH = 1.96  # standard errors to either side
MESSY_PEOPLE = 200_000
MESSY_TABLES = (
    ("region, work",),
    ("satisfied",),
    ("Q1", "Q2"),
    ("null", "region, home"),
    ("region, home", "region, work"),
)
TABLES = (("q0",), ("q7",), ("q0", "q1"), ("q2", "q29"), ("q11", "q20"))


def population(questions):
    """Return P(yes) of every question in two equally large halves of the people: all answers are related."""
    spread = np.linspace(0.25, 0.6, questions)
    return np.stack([spread + 0.15, spread - 0.15])


def true_shares(halves, places):
    """Return the true shares of a table's cells, flat, the first question varying slowest."""
    cells = np.zeros(2 ** len(places))
    for half in halves:
        part = np.ones(1)
        for place in places:
            part = np.kron(part, [half[place], 1 - half[place]])
        cells += part / len(halves)
    return cells


def chances_of_reports(policy, halves):
    """Return the chance of every report (block, class) of one person, exactly."""
    (group,) = policy.groups
    response = group.channel
    sizes = np.array(response.block_classes)
    dealt = np.asarray(response.dealing.matrix[0])
    truths = np.zeros((len(sizes), response.report_sizes[1]))
    first = 0
    for blocks in (response.by_cells, response.by_difference):
        if not len(blocks):
            continue
        numbers = np.arange(first, first + len(blocks))
        for answer in product((0, 1), repeat=blocks.shape[1]):
            columns = [np.zeros(len(blocks), dtype=np.uint8) for _ in group.names]
            for place, code in enumerate(answer):
                for row, name in enumerate(blocks[:, place].tolist()):
                    columns[name][row] = code
            classes = response.classes_of(columns, numbers)
            for half in halves:
                yes = half[blocks]
                chance = np.where(np.array(answer) == 0, yes, 1 - yes).prod(axis=1)
                np.add.at(truths, (numbers, classes), chance / len(halves))
        first += len(blocks)
    gamma = float(response.gamma)
    law = dealt[:, None] * (1 + (gamma - 1) * truths) / (gamma + sizes[:, None] - 1)
    return np.where(np.arange(law.shape[1]) < sizes[:, None], law, 0.0)


def planned(questions, people=PEOPLE):
    """Return the plan for shares and pairs of yes/no questions within the limit."""
    schema = {f"q{place}": ANSWERS for place in range(questions)}
    return mq.plan(schema, privacy=LIMIT, n=people, queries="singles, pairs")


def planned_stderr(made):
    """Return the standard error that the plan states for each table: answers are assumed to be even."""
    return {item.table: item.stderr(made.n) for item in made.errors}


def expected_stderr(made, halves):
    """Return the planner's standard error of each table for the shares of a population."""
    shares = {f"q{place}": np.array([yes, 1 - yes]) for place, yes in enumerate(halves.mean(axis=0))}
    found = expected_errors(made.policy, made.task.tables, shares)
    return {item.table: item.stderr(made.n) for item in found}


def realised(made, runs, seed=2026, tables=TABLES):
    """Return for each table its standard errors, planned and realised, and how often intervals hold."""
    halves = population(len(made.task.variables))
    law = chances_of_reports(made.policy, halves)
    generator = np.random.default_rng(seed)
    errors = {table: [] for table in tables}
    held = {table: [] for table in tables}
    truth = {table: true_shares(halves, [int(name[1:]) for name in table]) for table in tables}
    for _ in range(runs):
        counts = generator.multinomial(made.n, law.ravel()).reshape(law.shape)
        source = CountedReports(made.policy, counts)
        for table in tables:
            found = mq.stats.shares(source, list(table)).to_frame()
            errors[table].append(found["share"].to_numpy() - truth[table])
            inside = (found["lower"] <= truth[table]) & (truth[table] <= found["upper"])
            held[table].append(inside.to_numpy())
    expected = expected_stderr(made, halves)
    return [
        {
            "table": "×".join(table),
            "planned": planned_stderr(made)[table],
            "expected": expected[table],
            "realised": float(np.sqrt(np.mean(np.square(errors[table])))),
            "coverage": float(np.mean(held[table])),
            "least_coverage": float(np.mean(held[table], axis=0).min()),
        }
        for table in tables
    ]


def messy_draft(folder, people=MESSY_PEOPLE):
    """Return the policy that `masquerade policy init` drafts for 40 columns, and the columns' shares."""
    data, file = Path(folder) / "messy.csv", Path(folder) / "policy.yaml"
    write_messy_survey(data, 3000)
    command = ["policy", "init", str(data), "--people", str(people), "--out", str(file)]
    subprocess.run([sys.executable, "-m", "masquerade", *command], check=True, capture_output=True)  # noqa: S603
    policy = mq.Policy.load(file)
    shares = {}
    with open_batches(data, [entry.variable.name for entry in policy.fields]) as batches:
        (batch,) = list(batches)
        for entry in policy.fields:
            codes = encode(batch.column(entry.variable.name), entry, text=batches.text)
            shares[entry.variable.name] = np.bincount(codes, minlength=len(entry.variable)) / len(codes)
    return policy, shares


def chances_of_independent(policy, shares):
    """Return the chance of every report (block, class) if the variables are independent, exactly."""
    (group,) = policy.groups
    response, gamma = group.channel, float(group.channel.gamma)
    assert not len(response.by_difference)
    dealt = np.asarray(response.dealing.matrix[0])
    law = np.zeros((len(dealt), response.report_sizes[1]))
    for block, row in enumerate(response.by_cells.tolist()):
        truth = np.ones(1)
        for member in (place for place in row if place < len(group.names)):  # shorter blocks are padded
            truth = np.kron(truth, shares[group.names[member]])
        law[block, : len(truth)] = dealt[block] * (1 + (gamma - 1) * truth) / (gamma + len(truth) - 1)
    return law


def realised_draft(runs, people=MESSY_PEOPLE, seed=40, tables=MESSY_TABLES):
    """Return record γ and, for each table, errors and coverage under the drafted policy."""
    with TemporaryDirectory() as folder:
        policy, shares = messy_draft(folder, people)
    law = chances_of_independent(policy, shares)
    assert abs(law.sum() - 1) < 1e-9
    generator = np.random.default_rng(seed)
    truth = {}
    for table in tables:
        cells = np.ones(1)
        for name in table:
            cells = np.kron(cells, shares[name])
        truth[table] = cells
    errors, held = ({table: [] for table in tables} for _ in range(2))
    for _ in range(runs):
        source = CountedReports(policy, generator.multinomial(people, law.ravel()).reshape(law.shape))
        for table in tables:
            found = mq.stats.shares(source, list(table)).to_frame()
            errors[table].append(found["share"].to_numpy() - truth[table])
            inside = (found["lower"] <= truth[table]) & (truth[table] <= found["upper"])
            held[table].append(inside.to_numpy())
    even = {name: np.full(len(one), 1 / len(one)) for name, one in shares.items()}
    planned_errors = {item.table: item for item in expected_errors(policy, list(tables), even)}
    expected = {item.table: item for item in expected_errors(policy, list(tables), shares)}
    rows = []
    for table in tables:
        squares = np.mean(np.square(errors[table]), axis=0)
        rows.append(
            {
                "table": "×".join(table),
                "planned": planned_errors[table].stderr(people),
                "expected": expected[table].stderr(people),
                "realised": float(np.sqrt(np.mean(squares))),
                "coverage": float(np.mean(held[table])),
                "least_coverage": float(np.mean(held[table], axis=0).min()),
            }
        )
    return {
        "columns": 40,
        "variables": len(policy.disguised),
        "people": people,
        "runs": runs,
        "record_gamma": float(policy.record_gamma),
        "tables": rows,
    }


def even_split(made):
    """Return the policy that divides the same ε evenly over the questions."""
    way = next(way for way in made.ways if way.title == "even split, symmetric channels")
    parts = way.channels(made.epsilon)
    variables = {
        name: {"categories": ANSWERS, "channel": parts["variables"][name]} for name in made.task.variables
    }
    return way, mq.Policy.from_dict({"masquerade": 1, "limit": LIMIT, "variables": variables})


def pair_errors(policy, halves, people, repeats, seed=7):
    """Return the root mean square error of all cells of all pairs of disguised records."""
    names = tuple(policy.schema)
    generator = np.random.default_rng(seed)
    pairs = list(combinations(range(len(names)), 2))
    squares = []
    for _ in range(repeats):
        half = generator.integers(0, len(halves), people)
        codes = {
            name: (generator.random(people) >= halves[half, place]).astype(np.uint8)
            for place, name in enumerate(names)
        }
        source = Records(simulate_codes(codes, policy, generator), policy)
        answers = source.answer([mq.Query(by=(names[a], names[b])) for a, b in pairs])
        for pair, table in zip(pairs, answers, strict=True):
            squares.append(np.square(np.asarray(table.values).ravel() / people - true_shares(halves, pair)))
    return float(np.sqrt(np.mean(squares)))


def compared(questions, repeats):
    """Return the errors of all pairs from dealt blocks and from an even split, at one γ of a record."""
    made, halves = planned(questions), population(questions)
    way, policy = even_split(made)
    widest = [place for place, table in enumerate(made.task.tables) if len(table) == 2]
    margins = {
        "blocks": WIDTH * float(np.sqrt(made.way.variances(made.epsilon)[widest].max() / PEOPLE)),
        "split": WIDTH * float(np.sqrt(way.variances(made.epsilon)[widest].max() / PEOPLE)),
    }
    measured = {
        "blocks": WIDTH * pair_errors(made.policy, halves, PEOPLE, repeats),
        "split": WIDTH * pair_errors(policy, halves, PEOPLE, repeats),
    }
    return {
        "questions": questions,
        "people": PEOPLE,
        "record_gamma": [float(made.policy.record_gamma), float(policy.record_gamma)],
        "planned": margins,
        "realised": measured,
        "planned_ratio": margins["split"] / margins["blocks"],
        "realised_ratio": measured["split"] / measured["blocks"],
    }


def show_draft(draft):
    """Print the figures of the draft."""
    print(
        f"policy init on {draft['columns']} columns: {draft['variables']} variables, "
        f"{draft['people']:,} people, record γ = {draft['record_gamma']:.4f}"
    )
    for row in draft["tables"]:
        print(
            f"  {row['table']:<28} ±{100 * WIDTH * row['expected']:.2f} points expected, "
            f"±{100 * WIDTH * row['realised']:.2f} realised, coverage {row['coverage']:.4f} "
            f"(least of a cell {row['least_coverage']:.4f})",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draft-only", action="store_true", help="renew the figures of the draft alone")
    options = parser.parse_args()
    draft = realised_draft(options.runs)
    show_draft(draft)
    if options.draft_only:
        earlier = json.loads(options.json.read_text(encoding="utf-8")) if options.json else {}
        keep(options.json, earlier | {"draft": draft})
        return
    made = planned(QUESTIONS)
    rows = realised(made, options.runs)
    print(f"{QUESTIONS} yes/no, {PEOPLE:,} people, record γ = {float(made.policy.record_gamma):.4f}")
    for row in rows:
        print(
            f"  {row['table']:<10} ±{100 * WIDTH * row['planned']:.2f} points planned, "
            f"±{100 * WIDTH * row['expected']:.2f} for these shares, "
            f"±{100 * WIDTH * row['realised']:.2f} realised, coverage {row['coverage']:.4f} "
            f"(least of a cell {row['least_coverage']:.4f})",
            flush=True,
        )
    sides = []
    for questions in (10, 20, 30):
        sides.append(compared(questions, options.repeats))
        side = sides[-1]
        print(
            f"all pairs of {questions}: blocks ±{100 * side['realised']['blocks']:.2f}, even split "
            f"±{100 * side['realised']['split']:.2f} points, ratio {side['realised_ratio']:.1f} "
            f"(planned {side['planned_ratio']:.1f})",
            flush=True,
        )
    keep(options.json, {"runs": options.runs, "tables": rows, "pairs": sides, "draft": draft})


if __name__ == "__main__":
    main()
