"""The planner: given two of privacy, people and error, it computes the third and the best channels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit, gamma_of
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable
from masquerade.plan.candidates import Candidate, Task, candidates
from masquerade.plan.counting import CountedBy
from masquerade.plan.expected_errors import LEVEL
from masquerade.plan.goals import PlanGoal, least_people, people
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
    together: Iterable[Sequence[str]] = (),
    counted_by: Mapping[str, Any] | None = None,
) -> Plan:
    """Find the best channels for a purpose, and the number of people or the ε that they need.

    Give two of `privacy`, `n` and `error` (or `detect`), and the third is computed. Given all three, they are
    checked. Given `n` or `error` alone, the privacy is a limit for each person: a belief of 5% rises to at
    most 50%.

    Parameters
    ----------
    schema : Schema, Policy or mapping of str to sequence
        The variables and their categories. If it is a policy, its channels are ignored.
    privacy : float or mapping, optional
        The most that reports may reveal: an ε, or one of {"epsilon": 1.5}, {"gamma": 19} and
        {"breach": (0.05, 0.5)}. The last is the default, unless both `n` and a goal are given.
    queries : str, Query or sequence, optional
        The tables to count; see `tables_of`. A table with a clear variable compares its groups.
    n : int, optional
        Number of people.
    error : float, optional
        Half-width of the 95% interval of a cell's share: 0.03 is ±3 points.
    detect : float or mapping, optional
        Size φ of an association between two variables to detect, with options
        {"phi": 0.1, "power": 0.8, "rule": "test" | "bic", "level": 0.05}.
    prior : mapping, path or Tally, optional
        Expected shares. Uniform by default. Do not take them from the clear data: a plan would publish them.
    per : {"record", "variable"}, optional
        Whether `privacy` bounds a whole record or each variable. With "record" the policy contains the limit.
    clear : iterable of str, optional
        Variables that are public and released in clear. The plan states the errors of differences between
        their groups; see `Plan.comparisons`.
    together : iterable of sequences of str, optional
        Variables that are always reported together, such as a question and its follow-up.
    counted_by : mapping, optional
        Parties that could add noise to sums instead, such as {"parties": 3, "colluders": 1}. `counting` of
        the plan then compares all ways to count at the same ε.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If the goals cannot be reached together; the message states what is possible.

    Examples
    --------
    >>> survey = {"smoker": ["yes", "no"], "region": ["north", "south", "west"]}
    >>> found = mq.plan(survey, privacy=1.5, n=3000, queries="smoker, region")
    >>> found.design
    'dealt blocks of different sizes'
    >>> round(found.error, 3)
    0.043
    """
    fields = schema if isinstance(schema, Policy) else None
    parties = None if counted_by is None else CountedBy.parse(counted_by)
    known = _schema(schema)
    wanted = PlanGoal.of(n, error, detect)
    hidden = _disguised_schema(known, clear)
    tables = tables_of(queries, hidden, set(known) - set(hidden))
    shares, given = expected_shares(prior, known)
    if per not in {"record", "variable"}:
        raise InputError(f"'per' is 'record' or 'variable'. Got {per!r} instead.")
    task = Task(hidden, tables, shares, per, given & set(hidden), _units(together, hidden))
    if wanted.detect is not None and not any(len(table) >= 2 for table in tables):
        raise InputError(
            "detect: an association is between two variables; ask for 'pairs' or other tables of two."
        )
    if privacy is None and per == "record" and (wanted.n is not None) != wanted.targeted:
        privacy = DEFAULT_LIMIT.to_dict()
    epsilon = None if privacy is None else _epsilon(privacy)
    ways = tuple(candidates(task))
    if epsilon is None:
        if wanted.n is None or not wanted.targeted:
            each = " 'privacy' of each variable and" if per == "variable" else ""
            raise InputError(
                f"Give{each} 'n', the number of people, or 'error' (or 'detect'). Got {wanted.words()}."
            )
        chosen, epsilon = _least_epsilon(ways, task, wanted)
    elif wanted.n is None and not wanted.targeted:
        raise InputError(
            "Give two of 'privacy', 'n' and 'error' (or 'detect'), and the third is computed. Got 'privacy'."
        )
    else:
        chosen = _best(ways, task, wanted, epsilon)
        takes = people(chosen, task, wanted, epsilon)
        if wanted.n is not None and wanted.targeted and takes > wanted.n * (1 + 1e-9):
            raise InputError(_impossible(ways, task, wanted, epsilon, takes))
    limit = None if per == "variable" else _limit(privacy, epsilon)
    return Plan(task, chosen, epsilon, wanted, ways, known, fields, limit, parties)


def _best(ways: Sequence[Candidate], task: Task, goal: PlanGoal, epsilon: float) -> Candidate:
    """Return the design that needs the fewest people; ties up to rounding error go to the first design."""
    least = {way: least_people(way, goal, epsilon) for way in ways}
    takes: dict[Candidate, float] = {}
    for way in sorted(ways, key=lambda way: least[way] > 0):
        if least[way] <= min(takes.values(), default=math.inf) * (1 + 1e-6):  # it may need the fewest
            takes[way] = float(f"{people(way, task, goal, epsilon):.9g}")
    return min((way for way in ways if way in takes), key=takes.__getitem__)


def plan_at(made: Plan, limit: PrivacyLimit) -> Plan:
    """Return the best plan for the tables and people of `made` under a different limit for a record."""
    epsilon = float(limit.stated[0]) if limit.kind == "epsilon" else math.log(limit.gamma)
    goal = PlanGoal(n=made.n)
    chosen = _best(made.ways, made.task, goal, epsilon)
    return replace(made, way=chosen, epsilon=epsilon, goal=goal, limit=limit)


def _limit(privacy: Privacy | None, epsilon: float) -> PrivacyLimit:
    """Return the limit of the policy: the privacy as stated, or the computed ε."""
    if isinstance(privacy, Mapping):
        return PrivacyLimit.parse(privacy)
    return PrivacyLimit.parse({"epsilon": f"{epsilon:.6g}" if privacy is None else privacy})


def _units(together: Iterable[Sequence[str]], schema: Schema) -> tuple[tuple[str, ...], ...]:
    units = tuple(tuple(names) for names in together)
    listed = [schema[name].name for unit in units for name in unit]
    if len(set(listed)) < len(listed):
        raise InputError("together: a variable may be in only one group.")
    return units


def _least_epsilon(ways: Sequence[Candidate], task: Task, goal: PlanGoal) -> tuple[Candidate, float]:
    """Return the design that reaches the goal with the least ε, and that ε."""
    assert goal.n is not None  # noqa: S101  (for the type checker: the caller checked it)
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
    ways: Sequence[Candidate], task: Task, goal: PlanGoal, epsilon: float | None, takes: float
) -> str:
    """Describe what can be reached instead of an unreachable goal."""
    assert goal.n is not None  # noqa: S101  (both were given, or it would not be impossible)
    if epsilon is None:
        clear = float(((1 - task.squares) / task.cells).max())
        if goal.error is not None and clear * (two_sided_quantile(LEVEL) / goal.error) ** 2 > goal.n:
            least = math.ceil(clear * (two_sided_quantile(LEVEL) / goal.error) ** 2)
            return f"{goal.words()} cannot be reached together: even clear data need {least:,} people."
        least = math.ceil(min(people(way, task, goal, MOST_EPSILON) for way in ways))
        return (
            f"{goal.words()} cannot be reached together by any disguise: even at ε = {MOST_EPSILON:g} it "
            f"needs {least:,} people."
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
    return f"ε = {epsilon:.3g} and {goal.words()} cannot be reached together. Possible: {'; '.join(options)}."


def _epsilon(privacy: Privacy) -> float:
    """Return the ε of a privacy level that is given as ε, γ or beliefs."""
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
        "not accepted, because a plan made with them would publish them."
    )


def _disguised_schema(schema: Schema, clear: Iterable[str]) -> Schema:
    """Return the variables that are disguised."""
    names = {clear} if isinstance(clear, str) else set(clear)
    for name in names:
        schema[name]
    rest: list[Variable] = [variable for variable in schema.variables if variable.name not in names]
    if not rest:
        raise InputError("clear: every variable would be released in clear; there is nothing to plan.")
    return Schema(rest)
