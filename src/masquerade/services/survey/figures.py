"""How far a survey is, for the fieldwork team: how many, estimates with intervals, and what looks wrong."""

from __future__ import annotations

from typing import Any, Final

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused
from masquerade.core.query import Query
from masquerade.services.survey.export import table_of
from masquerade.services.survey.store import SurveyStore
from masquerade.sources.tally import tally
from masquerade.survey.survey_file import Survey

LEAST: Final = 10  # reports below which nothing is estimated
LEVEL: Final = 0.95
DOUBTFUL: Final = 0.001  # a misfit this unlikely is said


def figures(store: SurveyStore, survey: Survey) -> dict[str, Any]:
    """Return counts and, for every version with reports enough, estimated shares with 95% intervals."""
    language = survey.languages[0]
    names = {question.name: question.text[language] for question in survey.questions}
    answers = {question.name: question.answers[language] for question in survey.questions}
    counts = store.counts()
    found = [
        {"policy": name, "questions": _estimates(store, policy, names, answers)}
        for name, policy in store.versions().items()
        if counts["versions"].get(name, 0) >= LEAST
    ]
    return {"title": survey.text(survey.spec.title)[language], **counts, "estimates": found}


def _estimates(
    store: SurveyStore, policy: Policy, names: dict[str, str], answers: dict[str, tuple[str, ...]]
) -> list[dict[str, Any]]:
    source = tally(table_of(store, policy), policy)
    found = []
    for name in policy.schema:
        entry: dict[str, Any] = {"name": name, "text": names.get(name, name)}
        try:
            [table] = source.answer([Query(by=(name,))])
        except QueryRefused as refused:
            found.append(entry | {"refused": str(refused)})
            continue
        low, high = table.conf_int(LEVEL)
        labels = answers.get(name) or tuple(map(str, policy.schema[name].categories))
        entry["shares"] = [
            {
                "answer": label,
                "share": float(value) / table.n,
                "low": float(a) / table.n,
                "high": float(b) / table.n,
            }
            for label, value, a, b in zip(labels, table.values, low, high, strict=True)
        ]
        entry["doubt"] = _doubt(source, name)
        found.append(entry)
    return found


def _doubt(source: Any, name: str) -> float | None:
    """Return how unlikely the reports of a question are under any truth at all, if that is very unlikely."""
    try:
        found = source.misfit((name,))
    except (InputError, QueryRefused):
        return None
    return float(found.p_value) if found.reliable and found.p_value < DOUBTFUL else None
