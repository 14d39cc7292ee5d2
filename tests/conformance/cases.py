"""Populations and policies that every source must handle, small enough for a brute-force oracle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

import masquerade as mq

RECORDS = 3000

SPECS = {
    "independent": {
        "variables": {
            "A": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p1": 0.1, "p2": 0.25}},
            "B": {"categories": [1, 2, 3], "channel": {"kind": "ternary", "p1": 0.15, "p2": 0.1}},
            "C": {"categories": [True, False]},
            "D": {"categories": ["n", "s", "e", "w"], "channel": {"kind": "symmetric", "p": 0.3}},
        }
    },
    "joint": {
        "variables": {
            "A": {"categories": ["yes", "no"]},
            "B": {"categories": [1, 2, 3]},
            "C": {"categories": [True, False], "channel": {"kind": "warner", "p": 0.8}},
            "D": {"categories": ["n", "s", "e", "w"]},
        },
        "joint": [{"variables": ["D", "A"], "channel": {"kind": "symmetric", "p": 0.4}}],
    },
    "not lumpable": {
        "variables": {
            "A": {"categories": ["yes", "no"]},
            "B": {"categories": [1, 2, 3], "channel": {"kind": "symmetric", "p": 0.2}},
            "C": {"categories": [True, False]},
            "D": {"categories": ["n", "s", "e", "w"]},
        },
        "joint": [
            {
                "variables": ["C", "A"],
                "channel": {
                    "kind": "matrix",
                    "rows": [
                        ["0.7", "0.1", "0.1", "0.1"],
                        ["0.05", "0.8", "0.05", "0.1"],
                        ["0.2", "0.1", "0.6", "0.1"],
                        ["0.1", "0.2", "0", "0.7"],
                    ],
                },
            }
        ],
    },
    "more reports than truths": {
        "variables": {
            "A": {"categories": ["yes", "no"], "channel": {"kind": "kuk", "p1": 0.8, "p2": 0.3, "cards": 3}},
            "B": {
                "categories": [1, 2, 3],
                "channel": {"kind": "cheater_detection", "p_yes": [0.1, 0.9], "p_no": [0.1, 0]},
            },
            "C": {"categories": [True, False], "channel": {"kind": "crosswise", "p": "1/4"}},
            "D": {
                "categories": ["n", "s", "e", "w"],
                "channel": {"kind": "grouped", "groups": [["n", "s"], ["e", "w"]], "p": 0.3},
            },
        }
    },
    "one report of two": {
        "variables": {
            "A": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}},
            "B": {"categories": [1, 2, 3]},
            "C": {"categories": [True, False]},
            "D": {"categories": ["n", "s", "e", "w"]},
        },
        "joint": [
            {
                "variables": ["C", "D"],
                "report": "CD",
                "channel": {
                    "kind": "matrix",
                    # everybody reports C or D, each with a chance of a half: 8 truths, 6 reports, rank 5
                    "rows": [
                        [
                            *("0.4" if c == i else "0.1" for i in range(2)),
                            *("0.35" if d == i else "0.05" for i in range(4)),
                        ]
                        for c in range(2)
                        for d in range(4)
                    ],
                    "reports": ["C yes", "C no", "n", "s", "e", "w"],
                },
            }
        ],
    },
    "blocks": {
        "variables": {
            "A": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}},
            "B": {"categories": [1, 2, 3]},
            "C": {"categories": [True, False]},
            "D": {"categories": ["n", "s", "e", "w"]},
        },
        "blocks": [{"variables": ["B", "C", "D"], "order": 2, "k": 2, "gamma": 20, "report": "dealt"}],
    },
    "strata": {
        "variables": {
            "A": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}},
            "B": {"categories": [1, 2, 3], "channel": {"kind": "symmetric", "p": 0.3}},
            "C": {"categories": [True, False]},
            "D": {"categories": ["n", "s", "e", "w"]},
        },
        "strata": {
            "by": "C",
            "channels": {False: {"A": {"kind": "binary", "p": 0.35}, "B": {"kind": "symmetric", "p": 0.1}}},
        },
    },
}

QUERIES = (
    mq.Query(),
    mq.Query(by="A"),
    mq.Query(by=("D", "A")),
    mq.Query(by=("B", "C", "A")),
    mq.Query(by=("B",), where={"A": "yes"}),
    mq.Query(by=("A", "B"), where={"C": True}),
    mq.Query(by=("D",), where={"A": "no", "C": False, "B": 2}),
    mq.Query(where={"A": "yes", "D": "e"}),
    mq.Query(by=("C", "D", "A", "B")),
)

# what does not follow from the reports of a policy: both C and D, all of B, C and D
BEYOND = {"one report of two": {"C", "D"}, "blocks": {"B", "C", "D"}}


def queries_of(name: str) -> tuple[mq.Query, ...]:
    """Return the questions that the policy of a case answers."""
    beyond = BEYOND.get(name)
    return tuple(query for query in QUERIES if beyond is None or not beyond <= set(query.names))


@dataclass(frozen=True, eq=False)
class Case:
    """Clear records, a policy, and the same records disguised by it."""

    name: str
    policy: mq.Policy
    clear: pd.DataFrame
    disguised: pd.DataFrame


@cache
def case(name: str) -> Case:
    """Return one of the cases, the same in every test."""
    policy = mq.Policy.from_dict({"masquerade": 1, **SPECS[name]})
    generator = np.random.default_rng(20_05)
    joint = generator.dirichlet(np.ones(48)).reshape(2, 3, 2, 4)
    cells = generator.choice(48, size=RECORDS, p=joint.ravel())
    codes = np.unravel_index(cells, joint.shape)
    clear = pd.DataFrame(
        {
            variable.name: np.array(variable.categories, dtype=object)[code]
            for variable, code in zip(policy.schema.variables, codes, strict=True)
        }
    ).infer_objects()
    return Case(name, policy, clear, mq.simulate(clear, policy, seed=7))
