"""What audits find: ε between limits for every constructor and for other packages, planted faults, alarms.

    python -m benchmarks.audit constructors [NAME…]  # 10⁶ draws per truth, limits wrong in 5% at most
    python -m benchmarks.audit foreign          # needs opendp, multi-freq-ldpy and pure-ldp (see VERSIONS)
    python -m benchmarks.audit faults           # 300 runs of every planted fault
    python -m benchmarks.audit clean            # 1,000 audits of what is sound
    python -m benchmarks.audit figures          # linkage, an attacker, near-copies, 100 variables, methods

Every part keeps its figures in benchmarks/results/audit.json.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tests.unit.audit import faults

import masquerade as mq
from masquerade.audit.attacker import attack, averaging
from masquerade.audit.enumeration import walk
from masquerade.audit.epsilon_bracket import epsilon_bracket, one_run_bound
from masquerade.audit.foreign import foreign_sampler
from masquerade.audit.linkage import linkage, measured_linkage
from masquerade.audit.sampler import count_draws
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.seeded import simulate_codes
from masquerade.kernels.draw import draw

RESULTS = Path(__file__).parent / "results" / "audit.json"
DRAWS = 1_000_000
ALPHA = 0.05
RUNS = 300  # all found: at least 99% are, with 95% confidence
CANARIES = 2000
VERSIONS = ("opendp", "multi-freq-ldpy", "pure-ldp")

c = mq.channels
CONSTRUCTORS: dict[str, Callable[[], mq.Channel]] = {
    "binary": lambda: c.binary("0.27"),
    "symmetric": lambda: c.symmetric(5, "0.6"),
    "ternary": lambda: c.ternary("0.5"),
    "flip": lambda: c.flip([2, 2], "0.7"),
    "invariant": lambda: c.invariant(["0.3", "0.3", "0.4"], c.symmetric(3, "0.3")),
    "optimal": lambda: c.optimal(4, epsilon=1),
    "block_design": lambda: c.block_design(4, epsilon=1),
    "for_epsilon": lambda: c.for_epsilon(4, 1),
    "for_gamma": lambda: c.for_gamma(6, 3),
    "matrix": lambda: c.matrix([["1/2", "1/4", "1/4"], ["1/6", "1/2", "1/3"], ["1/5", "1/5", "3/5"]]),
    "subset_selection": lambda: c.subset_selection(6, epsilon=1),
    "hadamard_response": lambda: c.hadamard_response(4, epsilon=1),
    "hadamard_response of 6": lambda: c.hadamard_response(6, epsilon=1),
    "unary_encoding (a bit)": lambda: bit(),  # noqa: PLW0108  (defined below)
    "warner": lambda: c.warner("0.7"),
    "forced_response": lambda: c.forced_response("0.2", "0.2"),
    "unrelated_question": lambda: c.unrelated_question("0.5", "0.4"),
    "crosswise": lambda: c.crosswise("0.25"),
    "kuk": lambda: c.kuk("0.7", "0.3"),
    "additive": lambda: c.additive([0, 1, 2, 3], "gaussian", 4),
    "triangular": lambda: c.triangular("0.4"),
    "mangat": lambda: c.mangat("0.6"),
    "identity": lambda: c.identity(3),
    "within_groups": lambda: c.within_groups([[0, 1], [2, 3]], [c.binary("0.3"), c.binary("0.4")]),
    "optimal_design": lambda: c.optimal_design(5, epsilon=1, queries="cumulative").channel,
    "optimal_pairwise": lambda: c.optimal_pairwise([[1, 2, 3], [2, 1, 2], [3, 2, 1]]).channel,
    "cheater_detection": lambda: c.cheater_detection(("0.2", "0.4"), ("0.1", "0.2")),
    "stochastic_lie_detector": lambda: c.stochastic_lie_detector(("0.7", "0.3")),
    "unrelated_unknown": lambda: c.unrelated_unknown(("0.7", "0.3")),
    "self_protective_no": lambda: c.self_protective_no([c.warner("0.7"), c.warner("0.3")]),
    "list_experiment": lambda: c.list_experiment(4),
    "double_list": lambda: c.double_list(4, 4),
    "panel": lambda: c.panel(c.binary("0.3")),
}


def bit() -> mq.Channel:
    """Return the channel of one bit of a unary encoding."""
    policy = c.unary_encoding(mq.Variable("v", tuple("abcd")), epsilon=1)
    return policy.groups[0].matrix_channel


def kept(part: str, values: Any) -> None:
    """Put the figures of a part beside the others."""
    every = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    every[part] = values
    RESULTS.write_text(json.dumps(every, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(part, json.dumps(values, ensure_ascii=False)[:2000])


def counted(channel: mq.Channel, n: int) -> np.ndarray:
    """Count reports that the sampler of releases draws."""
    fresh = Keystream()
    rows = [draw(np.full(n, truth), channel.draw_table, fresh) for truth in range(channel.truths)]
    return np.array([np.bincount(row, minlength=channel.reports) for row in rows])


def constructors(*names: str) -> None:
    """Bracket ε of every constructor, or of some, beside those that are kept."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if names else {}
    found = [one for one in known.get("constructors", {}).get("channels", []) if one["name"] not in names]
    for name, build in CONSTRUCTORS.items():
        if names and name not in names:
            continue
        try:
            channel = build()
        except (TypeError, mq.MasqueradeError) as error:
            print("left out:", name, error)
            continue
        halves = counted(channel, DRAWS // 2), counted(channel, DRAWS // 2)
        strict = epsilon_bracket(*halves, ALPHA)
        levels = epsilon_bracket(*halves, ALPHA, channel.matrix)
        upper = min(strict.upper, levels.upper)
        found.append(
            {
                "name": name,
                "truths": channel.truths,
                "reports": channel.reports,
                "epsilon": channel.epsilon if math.isfinite(channel.epsilon) else None,
                "lower": strict.lower,
                "upper": upper if math.isfinite(upper) else None,
                "upper_any_report": strict.upper if math.isfinite(strict.upper) else None,
            }
        )
    kept("constructors", {"draws": DRAWS, "alpha": ALPHA, "channels": found})


def foreign() -> None:
    """Bracket ε of randomizers of other packages."""
    found = []
    for name in ("opendp:randomized_response_bitvec", "multi-freq-ldpy:GRR", "pure-ldp:DE"):
        start = time.perf_counter()
        sampler = foreign_sampler(name, 2, 1.0)
        vectors = getattr(sampler, "vectors", ())
        truths: Any = (vectors[0][0], vectors[0][-1]) if vectors else range(2)  # no bit, and all
        drawn = count_draws(sampler, truths, DRAWS, None, None)
        assert drawn.counts is not None
        # of vectors the last position: every one of them is to have this ε
        tables = drawn.counts if drawn.positions is None else tuple(half[:, -1] for half in drawn.positions)
        limits = epsilon_bracket(tables[0], tables[1], ALPHA)
        seconds = time.perf_counter() - start
        found.append(
            {"name": name, "epsilon": 1.0, "lower": limits.lower, "upper": limits.upper, "seconds": seconds}
        )
        print(found[-1])
    versions = {name: version(name) for name in VERSIONS}
    kept("foreign", {"draws": DRAWS, "alpha": ALPHA, "versions": versions, "samplers": found})


def one_fault(name: str) -> bool:
    """Run an audit of a faulty sampler or pipeline once; tell whether it is found."""
    if name in faults.SAMPLERS:
        sampler = faults.drawn_from(faults.SAMPLERS[name](math.e, 6))
        claim = {"epsilon": 1.0} if name.startswith("rare") else {"channel": c.for_epsilon(6, 1)}
        return mq.audit.audit_sampler(sampler, range(6), draws=200_000, **claim).contradicted  # type: ignore[arg-type]
    if name == "interval off by one word":
        table = c.for_epsilon(6, 1).draw_table
        generator = np.random.default_rng()
        last = table.last.copy()
        row, place = int(generator.integers(6)), int(generator.integers(5))
        last[row, place] = int(last[row, place]) + (1 if generator.random() < 0.5 else -1)
        wrong = type(table)(table.outcomes, last, table.support, table.first, table.reports, table.start)
        return not walk(c.for_epsilon(6, 1), wrong).proved
    policy = faults.policy()
    frame, key = mq.audit.make_canaries(policy, CANARIES)
    if name == "memo off":
        runs = [faults.sound(frame, policy) for _ in range(2)]
        found = mq.audit.read_canaries(runs[0], policy, key, second=runs[1], claims=("memo", "shuffled"))
        return any(finding.about == "memo" for finding in found.of("contradicted"))
    pipeline, about, words = faults.PIPELINES[name]
    found = mq.audit.read_canaries(pipeline(frame, policy), policy, key, claims=("shuffled",))
    return any(words in one.says for one in found.of("contradicted") if one.about == about)


def planted() -> None:
    """Run every planted fault many times; figures are kept fault by fault."""
    effort = {"draws_a_truth": 200_000, "canaries": CANARIES, "alpha": 1e-5}
    for name in [*faults.SAMPLERS, "interval off by one word", *faults.PIPELINES, "memo off"]:
        start = time.perf_counter()
        found = sum(one_fault(name) for _ in range(RUNS))
        print(name, found, f"{time.perf_counter() - start:.0f} s", flush=True)
        every = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        before = every.get("faults", {"found": {}})["found"]
        kept("faults", {"runs": RUNS, "effort": effort, "found": before | {name: found}})


def clean(audits: int = 1000) -> None:
    """Audit what is sound, and count alarms."""
    policy, channel = faults.policy(), c.for_epsilon(4, 1)
    alarms = 0
    for i in range(audits):
        if i % 2:
            sampler = faults.drawn_from(channel.matrix)
            found = mq.audit.audit_sampler(sampler, range(4), channel=channel, draws=20_000)
        else:
            frame, key = mq.audit.make_canaries(policy, CANARIES)
            released = faults.sound(frame, policy)
            found = mq.audit.read_canaries(released, policy, key, claims=("shuffled",))
        alarms += found.contradicted
        if found.contradicted:
            print(found.summary(), flush=True)
    kept("clean", {"audits": audits, "alarms": alarms, "alpha": 1e-5})


def figures() -> None:
    """Compute the figures that the documentation states."""
    generator = np.random.default_rng()
    schema = mq.Schema({f"v{i}": [str(j) for j in range(5)] for i in range(10)})
    wide = mq.Policy.build(schema, dict.fromkeys(schema, c.symmetric(5, "0.3")))
    measured = []
    for _ in range(4):
        truths = {name: generator.integers(0, 5, 10_000) for name in schema}
        small = {name: codes.astype(np.uint8) for name, codes in truths.items()}
        drawn = simulate_codes(small, wide, generator)
        reports = {name: codes.astype(np.int64) for name, codes in drawn.items()}
        measured.append(measured_linkage(wide, truths, reports, list(schema)))
    even = np.array([0.5, 0.5])
    hundred = mq.Policy.build(
        {f"v{i}": list("abcde") for i in range(100)}, {f"v{i}": c.symmetric(5, "0.5") for i in range(100)}
    )
    start = time.perf_counter()
    mq.audit.audit_policy(hundred)
    policy_seconds = time.perf_counter() - start
    people = pd.DataFrame({name: generator.integers(0, 2, 10_000) for name in hundred.schema})
    binary = mq.Policy.build({name: [0, 1] for name in people}, dict.fromkeys(people, c.binary("1/4")))
    released = mq.simulate(people, binary, generator)
    start = time.perf_counter()
    mq.audit.audit_release(released, binary)
    release_seconds = time.perf_counter() - start
    kept(
        "figures",
        {
            "linkage": {
                "formula": linkage(wide, {}, 10_000),
                "measured": float(np.mean([share for share, _ in measured])),
                "persons": sum(persons for _, persons in measured),
            },
            "copies": copies(),
            "averaging": {
                str(r): averaging(np.array([[0.75, 0.25], [0.25, 0.75]]), even, r) for r in (1, 3, 9, 31)
            },
            "one_run": one_run(generator),
            "policy_100_seconds": policy_seconds,
            "release_100_seconds": release_seconds,
        },
    )


def copies() -> dict[str, float]:
    """Attack near-copies of one trait (correlation .9), by the trait itself, which is not released."""
    found = {}
    for d in (1, 3, 5, 9):
        names = ["trait", *(f"q{i}" for i in range(d))]
        schema = mq.Schema({name: [0, 1] for name in names})
        chances = {"trait": np.array([0.5, 0.5])} | {
            name: np.array([[0.95, 0.05], [0.05, 0.95]]) for name in names[1:]
        }
        parents: dict[str, tuple[str, ...]] = {"trait": ()} | dict.fromkeys(names[1:], ("trait",))
        network = mq.learn.known_network(schema, parents, chances)
        hidden = c.matrix([["1/2", "1/2"], ["1/2", "1/2"]])
        policy = mq.Policy.build(schema, {"trait": hidden} | dict.fromkeys(names[1:], c.binary("1/4")))
        (success,) = attack(policy, network, ["trait"])
        found[str(d)] = success.whole
    return found


def one_run(generator: np.random.Generator) -> list[dict[str, float]]:
    """Bound ε by guesses in one run, as often as it takes to see how close."""
    found = []
    for epsilon, canaries in ((1, 10**3), (1, 10**4), (1, 10**5), (3, 10**4)):
        matrix = faults.response(math.exp(epsilon), 5)
        lows = []
        for _ in range(200):
            right = generator.binomial(canaries, matrix[0, 0] + matrix[0, 1])
            lows.append(
                one_run_bound(
                    generator.binomial(right, matrix[0, 0] / (matrix[0, 0] + matrix[0, 1])), right, 0.05
                )
            )
        found.append(
            {
                "epsilon": epsilon,
                "canaries": canaries,
                "mean": float(np.mean(lows)),
                "above": float(np.mean(np.array(lows) > epsilon)),
            }
        )
    return found


PARTS = {
    "constructors": constructors,
    "foreign": foreign,
    "faults": planted,
    "clean": clean,
    "figures": figures,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["constructors"]:
        constructors(*sys.argv[2:])
    else:
        for part in sys.argv[1:] or PARTS:
            PARTS[part]()
