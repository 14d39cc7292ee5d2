"""Plan a survey under a mask: two of privacy, people and error give the third, and the best mask for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.channels.privacy_level import gamma_of
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable
from masquerade.plan.candidates import Candidate, Task, candidates
from masquerade.plan.expected_errors import LEVEL
from masquerade.plan.goals import Goal, people
from masquerade.plan.priors import Prior, expected_shares
from masquerade.plan.questions import Questions, tables_of
from masquerade.plan.result import Plan

LEAST_EPSILON, MOST_EPSILON = 0.01, 40.0
Privacy = float | int | str | Mapping[str, Any]


def plan(
    schema: Schema | Policy | Mapping[str, Sequence[Any]],
    *,
    privacy: Privacy | None = None,
    queries: Questions = "pairs",
    n: int | None = None,
    error: float | None = None,
    detect: float | Mapping[str, Any] | None = None,
    prior: Prior | None = None,
    per: str = "record",
    clear: Iterable[str] = (),
) -> Plan:
    """Return the best mask for a purpose, and what it takes.

    Give two of `privacy`, `n` and `error` (or `detect`); the third is computed. Given all three, they are
    checked. `privacy` is an ε, or one of {"epsilon": 1.5}, {"gamma": 19}, {"breach": (0.05, 0.5)}, over a
    whole record or for each variable (`per`). `error` is the half-width of a 95% interval of a cell's share:
    0.03 is ±3 points. `detect` is the size φ of an association between two variables that is to be found,
    with options {"phi": 0.1, "power": 0.8, "rule": "test" | "bic", "level": 0.05}. `queries` are the tables
    that will be asked (see `tables_of`), `prior` what shares are expected (uniform by default; never the
    data's own, unless they are a release). Variables in `clear` are public and released as they are.

    >>> survey = {"smoker": ["yes", "no"], "region": ["north", "south", "west"]}
    >>> found = mq.plan(survey, privacy=1.5, n=3000, queries="smoker, region")
    >>> found.design
    'dealt blocks'
    >>> round(found.error, 3)
    0.044
    """
    fields = schema if isinstance(schema, Policy) else None
    known = _schema(schema)
    wanted = Goal.of(n, error, detect)
    hidden = _hidden(known, clear)
    tables = tables_of(queries, hidden)
    shares, given = expected_shares(prior, known)
    if per not in {"record", "variable"}:
        raise InputError(f"'per' is 'record' or 'variable'. Got {per!r} instead.")
    task = Task(hidden, tables, shares, per, given & set(hidden))
    if wanted.detect is not None and not any(len(table) >= 2 for table in tables):
        raise InputError("detect: an association is between two variables; ask for 'pairs', or such tables.")
    epsilon = None if privacy is None else _epsilon(privacy)
    ways = tuple(candidates(task))
    if epsilon is None:
        if wanted.n is None or not wanted.targeted:
            raise InputError(
                "Give two of 'privacy', 'n' and 'error' (or 'detect'), and the third is computed. Got "
                f"{wanted.words()}."
            )
        chosen, epsilon = _least_epsilon(ways, task, wanted)
    elif wanted.n is None and not wanted.targeted:
        raise InputError(
            "Give two of 'privacy', 'n' and 'error' (or 'detect'), and the third is computed. Got 'privacy'."
        )
    else:
        chosen = min(ways, key=lambda way: people(way, task, wanted, epsilon))
        takes = people(chosen, task, wanted, epsilon)
        if wanted.n is not None and wanted.targeted and takes > wanted.n * (1 + 1e-9):
            raise InputError(_impossible(ways, task, wanted, epsilon, takes))
    return Plan(task, chosen, epsilon, wanted, ways, known, fields)


def _least_epsilon(ways: Sequence[Candidate], task: Task, goal: Goal) -> tuple[Candidate, float]:
    """Return the way that reaches the goal with the least ε, and that ε."""
    assert goal.n is not None  # noqa: S101  (for the type checker: the caller has seen to it)
    found = []
    for way in ways:
        if people(way, task, goal, MOST_EPSILON) > goal.n:
            continue
        low, high = LEAST_EPSILON, MOST_EPSILON
        if people(way, task, goal, low) <= goal.n:
            high = low
        for _ in range(30):
            if high - low < 1e-4 * high:
                break
            middle = math.sqrt(low * high)
            low, high = (low, middle) if people(way, task, goal, middle) <= goal.n else (middle, high)
        found.append((math.ceil(high * 1e4) / 1e4, way))
    if not found:
        raise InputError(_impossible(ways, task, goal, None, math.inf))
    epsilon, way = min(found, key=lambda pair: pair[0])
    return way, epsilon


def _impossible(
    ways: Sequence[Candidate], task: Task, goal: Goal, epsilon: float | None, takes: float
) -> str:
    """Say what would be possible instead."""
    assert goal.n is not None  # noqa: S101  (both were given, or it would not be impossible)
    if epsilon is None:
        clear = float(((1 - task.squares) / task.cells).max())
        if goal.error is not None and clear * (two_sided_quantile(LEVEL) / goal.error) ** 2 > goal.n:
            least = math.ceil(clear * (two_sided_quantile(LEVEL) / goal.error) ** 2)
            return f"{goal.words()} do not go together: even in clear, sampling takes {least:,} people."
        least = math.ceil(min(people(way, task, goal, MOST_EPSILON) for way in ways))
        return (
            f"{goal.words()} do not go together under any mask: at ε = {MOST_EPSILON:g}, next to no mask, it "
            f"takes {least:,} people."
        )
    options = [f"{math.ceil(takes):,} people"]
    try:
        _, enough = _least_epsilon(ways, task, goal)
        options.append(f"ε = {enough:.3g} with {goal.n:,}")
    except InputError:
        pass
    if goal.error is not None:
        best = min(float(way.variances(epsilon).max()) for way in ways)
        margin = two_sided_quantile(LEVEL) * math.sqrt(best / goal.n)
        options.append(f"±{100 * margin:.2g} points")
    return f"ε = {epsilon:.3g} and {goal.words()} do not go together. Possible: {'; '.join(options)}."


def _epsilon(privacy: Privacy) -> float:
    """Return ε of a privacy level, in whichever way it is given."""
    if isinstance(privacy, Mapping):
        unknown = set(privacy) - {"epsilon", "gamma", "breach"}
        if unknown or len(privacy) != 1:
            raise InputError("'privacy' is an ε, or one of 'epsilon', 'gamma' and 'breach'.")
        gamma = gamma_of(**privacy)
        if "epsilon" in privacy:
            return float(privacy["epsilon"])
        return math.log(gamma)
    gamma_of(epsilon=privacy)
    return float(privacy)


def _schema(schema: Any) -> Schema:
    if isinstance(schema, Policy):
        return schema.schema
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        return Schema({str(name): list(labels) for name, labels in schema.items()})
    raise InputError(
        f"A plan needs a Schema, a Policy or categories by variable. Got a {type(schema).__name__}: data are "
        "not looked at, as a plan made with them would publish them."
    )


def _hidden(schema: Schema, clear: Iterable[str]) -> Schema:
    """Return the variables that are disguised."""
    names = {clear} if isinstance(clear, str) else set(clear)
    for name in names:
        schema[name]
    rest: list[Variable] = [variable for variable in schema.variables if variable.name not in names]
    if not rest:
        raise InputError("clear: every variable would be released as it is; there is nothing to plan.")
    return Schema(rest)
