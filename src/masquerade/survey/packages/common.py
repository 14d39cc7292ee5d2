"""Parts that the packages of all tools share: checks, texts of questions, files."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted
from masquerade.survey.forms.survey_file import Survey, SurveyQuestion

RESPONSES: Final = "responses.json"
SURVEY: Final = "survey.yaml"
POLICY: Final = "policy.json"
TOOLS: Final = ("limesurvey", "surveyjs", "odk")


def check_reports_are_answers(survey: Survey, tool: str) -> None:
    """Raise InputError if a report is not one answer to each question, which other tools cannot store."""
    policy = survey.policy
    if [variable.categories for variable in policy.observed.variables] != [
        variable.categories for variable in policy.schema.variables
    ] or list(policy.observed) != list(policy.schema):
        reports = counted(len(policy.observed), "column")
        raise InputError(
            f"{tool} stores one answer to each question, but this policy reports {reports} of other values "
            "(dealt blocks, or channels with their own reports). Draft a policy with joint channels, or use "
            "masquerade's own page or SurveyJS."
        )


def check_without_tokens(survey: Survey, tool: str) -> None:
    """Raise InputError for invitations and panels, which need masquerade's own page."""
    for key, is_used in (("issuer", survey.spec.issuer is not None), ("panel", survey.spec.panel)):
        if is_used:
            raise InputError(
                f"{key}: needs masquerade's own page; {tool} cannot do it. Leave {key!r} out of the survey."
            )


def question_text(question: SurveyQuestion, language: str) -> str:
    """Return the text of a question, preceded by the text that it shares with other questions."""
    text = question.text[language]
    return text if question.intro is None else f"{question.intro[language]} – {text}"


def help_text(survey: Survey, question: SurveyQuestion, language: str) -> str:
    """Return the help of a question, with a remark if its answer is sent in clear; may be empty."""
    parts = [] if question.help is None else [question.help[language]]
    if question.name in survey.clear_variables:
        parts.append(survey.words[language]["clear"])
    return " ".join(parts)


def offered_codes(question: SurveyQuestion) -> list[int]:
    """Return the codes that people can choose."""
    number = len(next(iter(question.answers.values())))
    return [code for code in range(number) if code not in question.not_offered]


def tool_asset(name: str) -> str:
    """Return a file of this package."""
    return (files("masquerade.survey.packages") / "assets" / name).read_text(encoding="utf-8")


def json_bytes(values: Any) -> bytes:
    """Return JSON that is the same on every machine."""
    return (json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
