"""Private queries: two servers answer a client's queries without learning them, and still refuse some."""

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
    ControlServer,
    OverlapRules,
    QueryClient,
    Questions,
    control_guarantee,
)

SERVERS, CLIENT, HELPER = ("first", "second"), "client", "helper"
Where = Mapping[str, Category]


@dataclass(frozen=True)
class PrivateAnswers:
    """Answers to a client, None where refused, with cost and guarantee."""

    questions: tuple[dict[str, Category], ...]
    counts: tuple[int | None, ...]
    n: int
    rules: OverlapRules
    cost: Cost
    key_bytes: int
    seconds: float
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
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
    """Answer queries of a client without revealing them to the two servers or the dealer.

    Parameters
    ----------
    codes : mapping of str to array
        All columns, as category codes.
    schema : Schema
        Variables of the columns.
    questions : sequence of mapping
        Queried cells: categories by variable.
    rules : OverlapRules
        Rules by which servers refuse.

    Returns
    -------
    PrivateAnswers
        One count per query, None if refused.

    Raises
    ------
    InputError
        If a query names an unknown variable or category.

    Notes
    -----
    Formula: see `protocols.mpc.private_queries`. A query selects one cell among the cells of all tables over
    any set of variables.
    Reference: Woodruff & Staddon (2004); Boyle, Gilboa & Ishai (2016); Dobkin, Jones & Lipton (1979).
    Cost: at most nine rounds per query. Bytes grow with cells × earlier queries.
    """
    shape = schema.shape(schema.names)
    places = np.ravel_multi_index([np.asarray(codes[name]) for name in schema], shape)
    table = np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
    known = Questions(schema)
    client = QueryClient(known)
    for where in questions:  # validate all queries before sending the first
        known.place(where)
    keys = local_keys({server: os.urandom(32) for server in SERVERS})
    servers = []
    for server in SERVERS:
        engine = HelpedEngine(server, SERVERS, _server_keys(keys, server), len(places))
        servers.append(ControlServer(engine, known, table, rules, client.session))
    cost, dealer, sent, counts = Cost(), Dealer(SERVERS, keys), 0, []
    start = time.perf_counter()
    for where in questions:
        messages = client.ask(where)
        sent += sum(map(len, messages))
        steps = {name: it.answer_query(key) for name, it, key in zip(SERVERS, servers, messages, strict=True)}
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
    """Draw random cells of one to three variables."""
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


def _server_keys(keys: Any, server: str) -> Any:
    return lambda purpose, number: keys(server, purpose, number)
