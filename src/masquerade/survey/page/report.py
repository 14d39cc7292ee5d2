"""Report of a survey: estimates with the questions' own texts, in one of the survey's languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.consequences import say_day, say_number, say_percent
from masquerade.survey.page.script_text import asset
from masquerade.survey.page.team_words import team_words


def write_report(figures: Mapping[str, Any], survey: Survey) -> str:
    """Return the report of a survey as one HTML page to print.

    Parameters
    ----------
    figures : mapping
        Figures of the survey, in the language of the report (`collector.figures`).
    survey : Survey
        The survey, with the texts that format numbers and days.

    Returns
    -------
    str
        HTML without scripts and without content from elsewhere.
    """
    language = figures["language"]
    words, page_words = team_words(language), survey.words[language]

    def percent(share: float) -> str:
        return say_percent(page_words, f"{100 * share:.1f}").replace("-", "−")

    reports = figures["reports"]
    number = (
        words["no_batch"]
        if reports is None
        else words["reports"].replace("{n}", say_number(page_words, reports))
    )
    days = {"closed_on": figures["closed"], "deleted_after": figures["delete_after"]}
    facts = [words[key].replace("{day}", say_day(page_words, day)) for key, day in days.items() if day]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.ChainableUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(asset("report.html.j2")).render(
        language=language, w=words, f=figures, number=number, facts=facts, percent=percent
    )
