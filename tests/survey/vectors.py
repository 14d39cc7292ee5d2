"""Vectors that Python makes and JavaScript has to meet: words and reports, panel keys, whole disguises."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np

from masquerade import channels
from masquerade.channels.policy import Policy
from masquerade.crypto.symmetric import BlockFunction
from masquerade.disguising.memo import block_words
from masquerade.disguising.report_draws import disguise_codes
from masquerade.survey.page.mechanism import channel_rows, mechanism, panel_draws, panel_key, vectors

CHANNELS = {
    "binary": channels.binary("1/4"),
    "asymmetric": channels.binary("0.1", "0.25"),
    "symmetric": channels.symmetric(5, "0.3"),
    "epsilon": channels.for_epsilon(7, 1),
    "crosswise": channels.crosswise("0.25"),
    "kuk": channels.kuk("0.8", "0.2", 3),
    "wide": channels.symmetric(64, "0.37"),
    "grouped": channels.within_groups(
        [[0, 1], [2, 3, 4]], [channels.symmetric(2, "0.3"), channels.symmetric(3, "0.3")]
    ),
    "identity": channels.identity(3),
}
YES = ["yes", "no"]
POLICIES: dict[str, dict[str, Any]] = {
    "alone": {
        "masquerade": 1,
        "variables": {
            "sex": {"categories": ["f", "m"]},
            "drugs": {"categories": YES, "channel": {"kind": "binary", "p": 0.25}},
            "income": {"categories": [1, 2, 3, 4], "channel": {"kind": "symmetric", "p": 0.3}},
        },
    },
    "joint": {
        "masquerade": 1,
        "variables": {"a": {"categories": YES}, "b": {"categories": [1, 2, 3]}, "c": {"categories": YES}},
        "joint": [{"variables": ["a", "b"], "channel": {"kind": "symmetric", "p": "1/2"}}],
    },
    "blocks": {
        "masquerade": 1,
        "variables": {name: {"categories": YES} for name in "abcde"},
        "blocks": [{"variables": list("abcde"), "k": 2, "gamma": 3, "cells": "1/2"}],
    },
    "unequal blocks": {
        "masquerade": 1,
        "variables": {name: {"categories": list(range(2 + i))} for i, name in enumerate("abc")},
        "blocks": [{"variables": list("abc"), "k": 2, "gamma": "7/2"}],
    },
    "units": {
        "masquerade": 1,
        "variables": {name: {"categories": list(range(2 + i % 2))} for i, name in enumerate("abcde")},
        "blocks": [{"variables": ["a", ["b", "d"], "c", "e"], "k": 2, "gamma": 19}],
    },
    "design": {
        "masquerade": 1,
        "variables": {name: {"categories": list(range(2 + i))} for i, name in enumerate("abcd")},
        "blocks": [
            {
                "variables": ["d", ["a", "c"], "b"],
                "gamma": 19,
                "design": [
                    {"variables": ["a", "c"], "weight": 3},
                    {"variables": ["a", "b", "c"], "weight": 82},
                    {"variables": ["b", "d"], "weight": 100},
                    {"variables": ["d"], "weight": 1},
                ],
            }
        ],
    },
    "strata": {
        "masquerade": 1,
        "variables": {
            "region": {"categories": ["n", "s"]},
            "drugs": {"categories": YES, "channel": {"kind": "binary", "p": 0.25}},
        },
        "strata": {"by": "region", "channels": {"s": {"drugs": {"kind": "binary", "p": 0.1}}}},
    },
}


def number(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest(), "little")


@cache
def made() -> dict[str, Any]:
    """Return all vectors; the same ones every time."""
    draws = [
        {"channel": channel_rows(channel), "rows": vectors(channel, name, 270, 6)}
        for name, channel in CHANNELS.items()
    ]
    return {"draws": draws, "memo": _memo(), "disguises": _disguises()}


def _memo() -> dict[str, Any]:
    secret, policy = bytes(range(16)), "ab" * 32
    key = panel_key(secret, policy)
    function, found = BlockFunction(key), []
    for i in range(500):
        tag = number("tag", i).to_bytes(32, "little")[:10]
        place, code, attempt = (
            number(what, i) % size for what, size in (("p", 2**16), ("c", 2**24), ("a", 256))
        )
        word = block_words(
            function, np.frombuffer(tag, np.uint8)[None], np.array([code], np.uint32), place, attempt
        )[0]
        found.append(
            {"tag": list(tag), "place": place, "code": code, "attempt": attempt, "word": f"{word:x}"}
        )
    return {"secret": list(secret), "policy": policy, "words": found}


def _disguises() -> list[dict[str, Any]]:
    found = []
    for name, values in POLICIES.items():
        policy = Policy.from_dict(values)
        cases = []
        for i in range(60):
            secret = number("secret", name, i).to_bytes(32, "little")[:16]
            codes = {v: number("code", name, i, v) % len(policy.schema[v]) for v in policy.schema}
            columns = {v: np.array([code], dtype=np.uint8) for v, code in codes.items()}
            reports = disguise_codes(columns, policy, panel_draws(panel_key(secret, policy.id)))
            cases.append(
                {
                    "secret": list(secret),
                    "codes": codes,
                    "reports": [int(reports[c][0]) for c in policy.observed],
                }
            )
        found.append({"policy": policy.id, "mechanism": mechanism(policy), "cases": cases})
    return found


def count(vectors: dict[str, Any]) -> int:
    return (
        sum(len(row["words"]) for draw in vectors["draws"] for row in draw["rows"])
        + len(vectors["memo"]["words"])
        + sum(len(one["cases"]) for one in vectors["disguises"])
    )
