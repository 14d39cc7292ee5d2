"""How far a survey is, for the fieldwork team: how many, estimates with intervals, and what looks wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.tally import Merged, Tally
from masquerade.services.survey.export import MODE
from masquerade.services.survey.store import MODES, SurveyStore
from masquerade.sources.records import Records
from masquerade.survey.survey_file import Survey

LEAST: Final = 10  # reports below which nothing is estimated
LEVEL: Final = 0.95
POOLED: Final = "pooled"
MOST_STRATA: Final = 6
DOUBTFUL: Final = 0.001  # a misfit this unlikely is said


def figures(store: SurveyStore, survey: Survey) -> dict[str, Any]:
    """Return counts and, for every version with reports enough, estimated shares with 95% intervals.

    Versions of an amended survey are pooled, too, where they ask the same. Strata are whose chance drew, and
    the variables that are not disguised.
    """
    language = survey.languages[0]
    words = _Words(
        {question.name: question.text[language] for question in survey.questions},
        {question.name: question.answers[language] for question in survey.questions},
    )
    counts, counted = store.counts(), store.counted()
    sources = {
        name: _Version(policy, counted.get(name, {}))
        for name, policy in store.versions().items()
        if sum(counted.get(name, {}).values()) >= LEAST
    }
    found: list[dict[str, Any]] = []
    alike = {version.policy.schema for version in sources.values()}
    if len(sources) > 1 and len(alike) == 1:
        pooled = Merged([version.source for version in sources.values()])
        found.append({"policy": POOLED, "questions": _estimates(pooled, next(iter(alike)), words)})
    for name, version in sources.items():
        entry = {"policy": name, "questions": _estimates(version.source, version.policy.schema, words)}
        found.append(entry | {"strata": _strata(version, words)})
    return {
        "title": survey.text(survey.spec.title)[language],
        **counts,
        "closes": survey.spec.closes,
        "delete_after": survey.spec.delete_after,
        "quotas": [] if store.quotas is None else store.quotas.figures(),
        "estimates": found,
    }


@dataclass(frozen=True)
class _Words:
    names: dict[str, str]
    answers: dict[str, tuple[str, ...]]

    def answers_of(self, variable: Variable) -> tuple[str, ...]:
        told = self.answers.get(variable.name, ())
        return told if len(told) == len(variable) else tuple(map(str, variable.categories))


class _Version:
    """The reports of one version, as codes, and what answers for them."""

    def __init__(self, policy: Policy, counted: Mapping[tuple[int, tuple[int, ...]], int]) -> None:
        times = list(counted.values())
        self.policy, self.modes = policy, np.repeat([mode for mode, _ in counted], times)
        self.codes = {
            variable.name: np.repeat(
                np.array([codes[place] for _, codes in counted], np.min_scalar_type(len(variable) - 1)), times
            )
            for place, variable in enumerate(policy.observed.variables)
        }
        self.source = Records(self.codes, policy)

    def only(self, by: str, code: int) -> Records:
        """Return the reports with one mode, or with one category of an undisguised variable."""
        met = np.flatnonzero(self.codes.get(by, self.modes) == code)
        return Records({name: column[met] for name, column in self.codes.items()}, self.policy)


def _strata(version: _Version, words: _Words) -> list[dict[str, Any]]:
    """Return estimates within groups that everybody may know: whose chance drew, and undisguised answers."""
    policy, found = version.policy, []
    clear = [name for name in policy.schema if name not in policy.disguised and name in policy.observed]
    for by in list(dict.fromkeys([MODE, *clear]))[:MOST_STRATA]:
        shown = words.answers_of(policy.schema[by]) if by in policy.schema else tuple(MODES)
        groups = []
        for code, text in enumerate(shown):
            part = version.only(by, code)
            if part.n >= LEAST:
                questions = _estimates(part, policy.schema, words, only=policy.disguised)
                groups.append({"label": text, "n": part.n, "questions": questions})
        if len(groups) > 1:
            found.append({"by": by, "text": words.names.get(by, by), "groups": groups})
    return found


def _estimates(
    source: Tally, schema: Schema, words: _Words, only: Collection[str] | None = None
) -> list[dict[str, Any]]:
    found = []
    for name in schema if only is None else [name for name in schema if name in only]:
        entry: dict[str, Any] = {"name": name, "text": words.names.get(name, name)}
        try:
            [table] = source.answer([Query(by=(name,))])
        except QueryRefused as refused:
            found.append(entry | {"refused": str(refused)})
            continue
        low, high = table.conf_int(LEVEL)
        entry["shares"] = [
            {
                "answer": label,
                "share": float(value) / table.n,
                "low": float(a) / table.n,
                "high": float(b) / table.n,
            }
            for label, value, a, b in zip(
                words.answers_of(schema[name]), table.values, low, high, strict=True
            )
        ]
        entry["doubt"] = _doubt(source, name)
        found.append(entry)
    return found


def _doubt(source: Any, name: str) -> float | None:
    """Return how unlikely the reports of a question are under any truth at all, if that is very unlikely."""
    if not hasattr(source, "misfit"):
        return None
    try:
        found = source.misfit((name,))
    except (InputError, QueryRefused):
        return None
    return float(found.p_value) if found.reliable and found.p_value < DOUBTFUL else None
