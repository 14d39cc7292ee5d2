"""Figures of a survey for the fieldwork team: counts, estimates with intervals, and goodness of fit.

While the survey is open, figures are computed only from published reports (`batches`). If the cells of a
table may not be shown, the table contains the reason instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.tally import Merged, Tally
from masquerade.sources.records import Records
from masquerade.stats.percentages import shares
from masquerade.survey.collector.batches import (
    MODES_DIMENSION,
    Content,
    Counts,
    Dimension,
    ReportBatches,
    clear_variables,
    quota_dimension,
    total,
    variable_dimension,
)
from masquerade.survey.collector.export import MODE, complete
from masquerade.survey.collector.quotas import QuotaCounts
from masquerade.survey.collector.store import MODES, SurveyStore
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.team_words import say_among, say_guarantee, team_words

LEAST: Final = 10  # least number of reports for estimates
LEVEL: Final = 0.95
POOLED: Final = "pooled"
MOST_STRATA: Final = 6
DOUBTFUL: Final = 0.001  # p-value of the goodness of fit below which a question is flagged


@dataclass(frozen=True)
class FigureSource:
    """Reports and counts that figures are computed from.

    `counts` are the reports, `facts` the counts of the entire survey, `quotas` the count of each quota.
    `shows` returns True if the cells of a dimension of a version may be shown.
    """

    counts: Counts
    facts: Mapping[str, Any]
    quotas: list[int | None]
    shows: Callable[[str, Dimension], bool]


def show_all(store: SurveyStore) -> FigureSource:
    """Return all reports of a survey; raise InputError while it is open."""
    counts = complete(store)
    quotas: list[int | None] = [] if store.quotas is None else [*store.quotas.counts_in(counts)]
    return FigureSource(counts, {"batch": None, **store.counts()}, quotas, lambda _, __: True)


def show_nothing(store: SurveyStore, batch: int) -> FigureSource:
    """Return the state of an open survey without its running collector: no number of reports."""
    facts: dict[str, Any] = {"batch": batch, "versions": {}, "modes": {}}
    facts |= dict.fromkeys(("reports", "withdrawn", "begun", "closed"))
    facts["invited"] = store.count_invitations()["invited"]
    quotas: list[int | None] = [] if store.quotas is None else [None] * len(store.quotas.quotas)
    return FigureSource({}, facts, quotas, lambda _, __: False)


def show_batches(
    batches: ReportBatches, quotas: QuotaCounts | None, facts: Mapping[str, Any]
) -> FigureSource:
    """Return the published reports of an open survey, and which of their cells may be shown.

    A number without a published batch is None, whether there are few reports or none.
    """
    counts = batches.published_counts()
    modes = dict.fromkeys(MODES, 0)
    for reports in counts.values():
        for (mode, _), number in reports.items():
            modes[MODES[mode]] += number
    has_modes = all(batches.shows(name, MODES_DIMENSION) for name in counts)
    published_facts = {
        "reports": total(counts.values()) or None,
        "versions": {name: total([reports]) for name, reports in counts.items()},
        "modes": {mode: number for mode, number in modes.items() if number} if has_modes else {},
        "closed": None,
    }
    return FigureSource(counts, {**facts, **published_facts}, count_quotas(batches, quotas), batches.shows)


def count_quotas(
    batches: ReportBatches, quotas: QuotaCounts | None, code: int | None = None
) -> list[int | None]:
    """Return the published count of each quota, None if it may not be shown.

    With `code` 1, which decides about refusals, it is enough that the cell of reports that the
    quota counts may be shown. A count that is shown needs both cells, since the total reveals the other cell.
    """
    if quotas is None:
        return []
    counts = batches.published_counts()
    return [
        number if counts and all(batches.shows(name, quota_dimension(i), code) for name in counts) else None
        for i, number in enumerate(quotas.counts_in(counts))
    ]


def figures(
    source: FigureSource,
    survey: Survey,
    versions: Mapping[str, Policy],
    quotas: QuotaCounts | None = None,
    language: str | None = None,
) -> dict[str, Any]:
    """Return counts and, for every version with enough reports, estimated shares with 95% intervals.

    Versions of an amended survey are also pooled if their questions are equal. Strata are the modes (sources
    of randomness) and the variables that are not disguised. Texts are in `language`, by default the first.
    """
    language = language or survey.languages[0]
    words = _Words(
        {question.name: question.text[language] for question in survey.questions},
        {question.name: question.answers[language] for question in survey.questions},
        {question.name: say_among(survey, question, language) for question in survey.questions},
        team_words(language),
    )
    sources = {
        name: _Version(policy, source.counts[name], _list_hidden(source, name, policy))
        for name, policy in versions.items()
        if total([source.counts.get(name, {})]) >= LEAST
    }
    estimates: list[dict[str, Any]] = []
    schemas = {version.policy.schema for version in sources.values()}
    if len(sources) > 1 and len(schemas) == 1:
        pooled = Merged([version.source for version in sources.values()])
        hidden = {name for version in sources.values() for name in version.hidden}
        questions = _estimates(pooled, next(iter(schemas)), words, hidden)
        estimates.append({"policy": POOLED, "questions": questions})
    for name, version in sources.items():
        questions = _estimates(version.source, version.policy.schema, words, version.hidden)
        estimates.append({"policy": name, "questions": questions, "strata": _strata(version, words)})
    return {
        "title": survey.text(survey.spec.title)[language],
        "language": language,
        "guarantee": say_guarantee(survey, language),
        "open_link": survey.spec.issuer is None,
        **source.facts,
        "closes": survey.spec.closes,
        "delete_after": survey.spec.delete_after,
        "quotas": [] if quotas is None else quotas.figures(source.quotas),
        "estimates": estimates,
    }


def _list_hidden(source: FigureSource, name: str, policy: Policy) -> set[str]:
    """Return the clear variables, and `mode`, whose cells may not be shown."""
    hidden = {it for it in clear_variables(policy) if not source.shows(name, variable_dimension(it))}
    return hidden if MODE in policy.observed or source.shows(name, MODES_DIMENSION) else {*hidden, MODE}


@dataclass(frozen=True)
class _Words:
    names: dict[str, str]
    answers: dict[str, tuple[str, ...]]
    among: dict[str, str | None]
    team: dict[str, str]

    def place_of(self, name: str) -> int:
        """Return the place of a question in the survey file; variables of earlier versions come last."""
        return list(self.names).index(name) if name in self.names else len(self.names)

    def answers_of(self, variable: Variable) -> tuple[str, ...]:
        texts = self.answers.get(variable.name, ())
        return texts if len(texts) == len(variable) else tuple(map(str, variable.categories))


class _Version:
    """The reports of one version as codes, and the source that answers queries about them."""

    def __init__(self, policy: Policy, counted: Mapping[Content, int], hidden: Collection[str]) -> None:
        times = list(counted.values())
        self.hidden = hidden
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
    """Return estimates within groups that are not secret: modes, and categories of clear variables."""
    policy, strata = version.policy, []
    clear = clear_variables(policy)
    for by in [*([] if MODE in policy.observed else [MODE]), *clear][:MOST_STRATA]:
        if by in version.hidden:
            continue
        shown = (
            words.answers_of(policy.schema[by])
            if by in policy.schema
            else tuple(words.team[f"mode_{mode}"] for mode in MODES)
        )
        groups = []
        for code, text in enumerate(shown):
            part = version.only(by, code)
            if part.n >= LEAST:
                questions = _estimates(part, policy.schema, words, (), only=policy.disguised)
                groups.append({"label": text, "n": part.n, "questions": questions})
        if len(groups) > 1:
            strata.append({"by": by, "text": words.names.get(by, by), "groups": groups})
    return strata


def _estimates(
    source: Tally,
    schema: Schema,
    words: _Words,
    hidden: Collection[str],
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    questions = []
    ordered = sorted(schema, key=words.place_of)
    for name in ordered if only is None else [name for name in ordered if name in only]:
        entry: dict[str, Any] = {"name": name, "text": words.names.get(name, name)}
        if words.among.get(name) is not None:
            entry["among"] = words.among[name]
        if name in hidden:
            questions.append(entry | {"refused": words.team["waiting"]})
            continue
        try:
            [table] = source.answer([Query(by=(name,))])
        except QueryRefused as refused:
            questions.append(entry | {"refused": str(refused)})
            continue
        estimates = shares(table, name, level=LEVEL)
        entry["shares"] = [
            {"answer": label, "share": float(value), "low": float(low), "high": float(high)}
            for label, value, low, high in zip(
                words.answers_of(schema[name]),
                estimates.values,
                estimates.lower,
                estimates.upper,
                strict=True,
            )
        ]
        entry["doubt"] = _doubt(source, name)
        questions.append(entry)
    return questions


def _doubt(source: Any, name: str) -> float | None:
    """Return the p-value of the goodness of fit if it is very small: no true shares explain the reports."""
    if not hasattr(source, "misfit"):
        return None
    try:
        misfit = source.misfit((name,))
    except (InputError, QueryRefused):
        return None
    return float(misfit.p_value) if misfit.reliable and misfit.p_value < DOUBTFUL else None
