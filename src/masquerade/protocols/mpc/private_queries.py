"""Query auditing by two servers that do not learn the query, with a helper that deals randomness.

Both servers hold the same table of counts. A client makes keys of a distributed point function (Boyle, Gilboa
& Ishai 2016), one for each server. Together they select one question among all cells of all sets of
variables; a single key looks random. On shares, the servers check that the keys select a question, compare it
with all earlier answers to this client, and only then compute shares of the answer, which only the client can
combine. The servers do not learn whether the question was refused. After Woodruff & Staddon (2004), with two
servers instead of encryption.

The rules are those of Dobkin, Jones & Lipton (1979): a cell has at least `least_people` people, and two
different cells that were answered have at most `most_overlap` people in common. Sums and differences of three
or more answers are not checked; `Controlled`, which knows the queries, checks them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, RoundAborted, did_you_mean
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Category, Schema
from masquerade.crypto.dpf import PointKeys, fresh_roots, point_keys
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.protocols.mpc.dealer import expand_key
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Steps, common_seed
from masquerade.protocols.wire import codec

MOST_QUESTIONS = 1 << 20
COUNT_BITS = 40  # bits of a difference of counts
CHECKS = 64  # random sums of numbers that must be zero: a nonzero number passes with probability 2^-64
ROOT = 16  # bytes

Words = NDArray[np.uint64]


class QuestionKey(codec.SessionMessage, tag=b"masquerade hidden question 1"):
    """One server's key of a question: the number of the question, the root, and the corrections."""

    number: codec.U64
    server: Annotated[int, codec.OneOf(codec.Number(1), (0, 1))]
    root: Annotated[bytes, codec.Blob(ROOT)]
    corrections: Annotated[bytes, codec.Blob(1 << 10)]


class AnswerShare(codec.SessionMessage, tag=b"masquerade hidden answer 1"):
    """One server's shares: of a bit that states whether the question is answered, and of the count if so."""

    number: codec.U64
    allowed: codec.U64
    count: codec.U64


class Questions:
    """All possible questions: the cells of every set of at most `most_variables` variables.

    The number of people is public and not a question.
    """

    def __init__(self, schema: Schema, most_variables: int | None = None) -> None:
        self.schema = schema
        self._shape = tuple(len(schema[name]) + 1 for name in schema)
        if prod(self._shape) > MOST_QUESTIONS:
            raise InputError(
                f"{prod(self._shape):,} questions are more than {MOST_QUESTIONS:,}: use fewer variables."
            )
        most = len(self._shape) if most_variables is None else most_variables
        if most < 1:
            raise InputError(f"Queries need at least one variable. Got {most} instead.")
        named = (np.indices(self._shape) > 0).sum(axis=0)
        self.asked = ((named > 0) & (named <= most)).ravel()  # True for indices that are questions

    @property
    def bits(self) -> int:
        """Return the number of bits of a question's index."""
        return max((len(self.asked) - 1).bit_length(), 1)

    def place(self, where: Mapping[str, Category]) -> int:
        """Return the index of a question: a cell, given by its variables and categories."""
        for name in where:
            if name not in self.schema:
                raise InputError(f"{name!r} is not a variable here.{did_you_mean(name, self.schema)}")
        codes = [self.schema[x].code(where[x]) + 1 if x in where else 0 for x in self.schema]
        place = int(np.ravel_multi_index(codes, self._shape))
        if not self.asked[place]:
            raise InputError("A query has at least one variable, and at most the allowed number.")
        return place

    def cells(self, chosen: Words) -> Words:
        """Map shares of a question's indicator to shares of the indicator of its cells in the table."""
        tensor = np.where(self.asked, chosen, np.uint64(0)).reshape(self._shape)
        for axis in range(len(self._shape)):
            parts = np.moveaxis(tensor, axis, 0)
            tensor = np.moveaxis(parts[1:] + parts[:1], 0, axis)  # index 0: no condition, so any category
        return np.ascontiguousarray(tensor).ravel()


def read_key(key: QuestionKey, questions: Questions) -> PointKeys:
    """Return the point function of a key; raise DecodingError if its sizes are wrong for these questions."""
    if len(key.root) != ROOT:
        raise DecodingError("A root has the wrong length.")
    root = np.frombuffer(key.root, dtype="<u8").astype(np.uint64)[None]
    return PointKeys.read(key.corrections, key.server, questions.bits, root)


@dataclass(frozen=True)
class OverlapRules:
    """Rules that refuse cells of few people, and cells that share many people with an answered cell."""

    most_overlap: int
    least_people: int = 0

    def __post_init__(self) -> None:
        for name in ("most_overlap", "least_people"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << COUNT_BITS:
                raise InputError(f"{name!r} must be a whole number of at least 0. Got {value!r} instead.")


@dataclass
class QueryClient:
    """The client: makes the keys of a question for both servers, and combines their shares."""

    questions: Questions
    session: bytes = field(default_factory=lambda: os.urandom(codec.SESSION_SIZE))
    asked: int = 0

    def ask(self, where: Mapping[str, Category]) -> tuple[bytes, bytes]:
        """Return a message for each server; each goes to that server only."""
        place, bits = self.questions.place(where), self.questions.bits
        roots = fresh_roots(1)
        keys, _ = point_keys([place], [1], bits, roots)
        self.asked += 1
        first, second = (
            QuestionKey(
                self.session, self.asked - 1, server, root.astype("<u8").tobytes(), keys.encode_shared()
            ).encode()
            for server, root in enumerate(roots)
        )
        return first, second

    def read(self, replies: Sequence[bytes]) -> int | None:
        """Return the count, or None if the question was refused."""
        shares = [AnswerShare.decode(reply) for reply in replies]
        if {(it.session, it.number) for it in shares} != {(self.session, self.asked - 1)} or len(shares) != 2:
            raise InputError("The answers must be those of both servers to the last query.")
        allowed, count = (sum(getattr(it, name) for it in shares) % 2**64 for name in ("allowed", "count"))
        if allowed not in {0, 1} or count >> COUNT_BITS or (not allowed and count):
            raise RoundAborted("The shares of both servers do not form an answer: one is false.", spent=True)
        return count if allowed else None


class ControlServer:
    """One of two servers, for one client: it has the table, and shares of the answered questions.

    `engine` is the engine of one of two parties; the party's index is the server's index. `history` may be
    stored to outlive the server, and is then passed to the next one. If its length differs from the other
    server's, no further query is answered.
    """

    def __init__(
        self,
        engine: HelpedEngine,
        questions: Questions,
        counts: NDArray[Any],
        rules: OverlapRules,
        session: bytes,
        *,
        history: Sequence[Words] = (),
    ) -> None:
        table = np.asarray(counts)
        if table.shape != tuple(len(questions.schema[name]) for name in questions.schema):
            raise InputError("The table of counts must have one axis per variable.")
        if len(engine.parties) != 2:
            raise InputError("Queries need exactly two servers.")
        whole = table.astype(np.int64)
        if np.any(whole != table) or whole.min(initial=0) < 0 or int(whole.sum()) >> (COUNT_BITS - 1):
            raise InputError("Counts must be whole numbers of at least 0.")
        self._engine, self._questions, self._rules = engine, questions, rules
        self._counts, self._session = whole.ravel().astype(np.uint64), session
        self._number, self._me = len(history), engine.parties.index(engine.name)
        self.history = list(history)  # shares of the answered cells, zeros for a refused query

    def answer_query(self, message: bytes) -> Steps[bytes]:
        """Return this server's share of the answer, in step with the other server."""
        number, self._number = self._number, -1  # after an error, no further query is answered
        chosen = self._select_cells(QuestionKey.decode(message), number)
        yield from self._check(chosen)
        cells = self._questions.cells(chosen)
        size = self._engine.linear(self._counts.astype(np.int64)[None], cells)
        refused = yield from self._test_rules(cells, size)
        allowed = self._constant(1) - refused
        both = yield from self._engine.product(
            np.repeat(allowed, 1 + cells.size), self._engine.stack([size, cells])
        )
        self.history.append(both[1:])  # before the answer is sent
        self._number = number + 1
        return AnswerShare(self._session, number, int(allowed[0]), int(both[0])).encode()

    def _select_cells(self, key: QuestionKey, number: int) -> Words:
        if (key.session, key.number, key.server) != (self._session, number, self._me):
            raise KeySpent("The key is for another session, question or server, or the session has ended.")
        return read_key(key, self._questions).expand()[0, : len(self._questions.asked)]

    def _check(self, chosen: Words) -> Steps[None]:
        """Raise an error unless the keys select exactly one question.

        Only 0 and 1 are their own squares modulo 2^64, so it is enough that every number equals its square
        and that all numbers sum to one. The differences, which must be zero, are opened as sums with random
        weights, which are drawn after the keys were received.
        """
        engine, asked = self._engine, self._questions.asked
        some = chosen[asked]
        squares = yield from engine.product(some, some)
        seed = yield from common_seed()
        weights = expand_key(seed, CHECKS * some.size).reshape(CHECKS, some.size)
        one = some.sum(dtype=np.uint64) - self._constant(1)
        zeros = yield from engine.open(engine.stack([weights @ (squares - some), one]))
        if np.any(zeros):
            raise RoundAborted(
                "The keys select no query: the client did not follow the protocol.", spent=True
            )

    def _test_rules(self, cells: Words, size: Words) -> Steps[Words]:
        """Return a secret 1 if the rules refuse the cells, else 0."""
        engine, rules = self._engine, self._rules
        few = yield from engine.less(size, self._constant(rules.least_people), bits=COUNT_BITS)
        if not self.history:
            return few
        earlier = np.stack(self.history, axis=1)
        common = yield from engine.inner(np.stack([cells * self._counts, cells], axis=1), earlier)
        people, places = common
        apart = cells.sum(dtype=np.uint64) + earlier.sum(axis=0, dtype=np.uint64) - places - places
        limits = [np.full(len(people), limit) for limit in (rules.most_overlap, 0)]
        exceeded = yield from engine.less(
            engine.stack([engine.constant(limit) for limit in limits]),
            engine.stack([people, apart]),
            bits=COUNT_BITS,
        )
        many, other = exceeded.reshape(2, -1)
        faults = yield from engine.product(many, other)  # repeating a question is allowed
        total = few + faults.sum(dtype=np.uint64)
        return (yield from engine.less(self._constant(0), total, bits=COUNT_BITS))

    def _constant(self, value: int) -> Words:
        return self._engine.constant(np.array([value]))


def refusal(rules: OverlapRules) -> Refusal:
    """Return the refusal that a client receives; it does not reveal which rule applied."""
    reason = (
        f"The cell has fewer than {rules.least_people} people, or more than {rules.most_overlap} in common "
        "with one that was answered before. Ask about other people."
    )
    return Refusal("overlap", reason)


def control_guarantee(
    client: str, servers: Sequence[str], helper: str, variables: Sequence[str], rules: OverlapRules
) -> Guarantee:
    """Return the disclosures of two servers that answer queries without learning them."""
    first, second = servers
    names = tuple(variables)
    told = (
        f"counts of cells that it asks for, unless they have fewer than {rules.least_people} people, or more "
        f"than {rules.most_overlap} in common with an answered one,"
    )
    held = "how many questions there are, beside the table of counts, which it holds,"
    return Guarantee(
        (
            Disclosure(client, told, names, None),
            *(Disclosure(server, held, names, None) for server in servers),
            Disclosure(helper, "how many questions there are, and no value", names, Fraction(1)),
        ),
        control_assumptions(client, servers, helper),
        {client: "malicious", **dict.fromkeys((*servers, helper), "semi-honest")},
        1,
        (
            (first, second),
            (helper, client),
            *((one, server) for one in (helper, client) for server in servers),
        ),
        0,
    )


def control_assumptions(client: str, servers: Sequence[str], helper: str) -> tuple[str, ...]:
    """Return the assumptions of private queries, and the consequences if a member deviates."""
    first, second = servers
    helping = (
        f"the {helper} colludes with nobody: with a server it would learn every query, and with the "
        f"{client} the refused cells"
    )
    lying = (
        f"a {client} that makes invalid keys is detected, except with probability 2^-{CHECKS}, and receives "
        "no further answer in this session"
    )
    deviating = (
        "servers and helper follow the program, which is not verified: a false share or deal falsifies "
        "answers and refusals unnoticed; a server that adds to its shares while keys are checked learns the "
        "query, but the other server sees the check fail"
    )
    return (
        f"{first} and {second} do not combine keys or shares: together they would learn every query",
        helping,
        f"no server colludes with the {client}: it holds the counts, and could simply reveal them",
        lying,
        f"the servers know who sends each query: a {client} under two names has two histories",
        deviating,
        (
            "refusals depend on the counts: each refusal tells the analyst that a rule was broken, but not "
            "which rule"
        ),
        "what three or more answers reveal by addition and subtraction is not checked",
        "AES with a fixed key behaves like a random permutation; AES-256, HKDF and SHA-256 are secure",
    )
