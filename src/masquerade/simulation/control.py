"""A client whose questions two servers answer without learning them, unless they must not be answered."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.guarantee import Guarantee
from masquerade.core.schema import Category, Schema
from masquerade.protocols.mpc.dealer import Dealer, local_keys
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Cost, run_each
from masquerade.protocols.mpc.private_queries import (
    Client,
    ControlServer,
    OverlapRules,
    Questions,
    control_guarantee,
)

SERVERS, CLIENT, HELPER = ("first", "second"), "client", "helper"
Where = Mapping[str, Category]


@dataclass(frozen=True)
class PrivateAnswers:
    """What a client was answered, None where it was refused, what that cost, and who learnt what."""

    questions: tuple[dict[str, Category], ...]
    counts: tuple[int | None, ...]
    n: int
    rules: OverlapRules
    cost: Cost
    key_bytes: int
    seconds: float
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        asked = zip(self.questions, self.counts, strict=True)
        return {
            "answers": [{"where": where, "count": count, "refused": count is None} for where, count in asked],
            "n": self.n,
            "rules": asdict(self.rules),
            "cost": {**asdict(self.cost), "key_bytes": self.key_bytes, "seconds": self.seconds},
            "guarantee": self.guarantee.to_dict(),
        }


def private_answers(
    codes: Mapping[str, NDArray[Any]], schema: Schema, questions: Sequence[Where], rules: OverlapRules
) -> PrivateAnswers:
    """Return what a client is answered whose questions two servers with a helper do not learn.

    Formula: `protocols.hidden.control`; every question is one of all cells of all sets of variables.
    Reference: Woodruff & Staddon (2004); Boyle, Gilboa & Ishai (2016); Dobkin, Jones & Lipton (1979).
    Cost: at most nine rounds a question; bytes grow with the cells and, times these, with earlier questions.
    """
    shape = schema.shape(schema.names)
    places = np.ravel_multi_index([np.asarray(codes[name]) for name in schema], shape)
    table = np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
    known = Questions(schema)
    client = Client(known)
    for where in questions:  # all that is wrong is said before anything is asked
        known.place(where)
    keys = local_keys({server: os.urandom(32) for server in SERVERS})
    servers = []
    for server in SERVERS:
        engine = HelpedEngine(server, SERVERS, _own(keys, server), len(places))
        servers.append(ControlServer(engine, known, table, rules, client.session))
    cost, dealer, sent, counts = Cost(), Dealer(SERVERS, keys), 0, []
    start = time.perf_counter()
    for where in questions:
        messages = client.ask(where)
        sent += sum(map(len, messages))
        steps = {name: it.answered(key) for name, it, key in zip(SERVERS, servers, messages, strict=True)}
        counts.append(client.read(list(run_each(steps, dealer, cost).values())))
    return PrivateAnswers(
        tuple(dict(where) for where in questions),
        tuple(counts),
        len(places),
        rules,
        cost,
        sent,
        round(time.perf_counter() - start, 3),
        control_guarantee(CLIENT, SERVERS, HELPER, schema.names, rules),
    )


def random_questions(schema: Schema, count: int, seed: int) -> list[dict[str, Category]]:
    """Return cells of one to three variables, at random."""
    generator = np.random.default_rng(seed)
    names = list(schema)
    found = []
    for _ in range(count):
        size = int(generator.integers(1, min(3, len(names)) + 1))
        some = sorted(generator.choice(len(names), size, replace=False).tolist())
        found.append(
            {
                names[at]: schema[names[at]].categories[int(generator.integers(len(schema[names[at]])))]
                for at in some
            }
        )
    return found


def _own(keys: Any, server: str) -> Any:
    return lambda purpose, number: keys(server, purpose, number)
