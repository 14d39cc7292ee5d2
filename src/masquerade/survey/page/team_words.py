"""Texts of the fieldwork team's page and report, in the survey's language."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files

from masquerade.survey.forms.survey_file import OWN_LANGUAGES, Survey, SurveyQuestion
from masquerade.survey.page.consequences import BEFORE, percent_after, say_percent
from masquerade.survey.page.script_text import asset, literal


@cache
def team_words(language: str) -> dict[str, str]:
    """Return the texts for the team in a language, in English if there are none."""
    supported = language if language in OWN_LANGUAGES else "en"
    place = files("masquerade.survey.page") / "words" / f"team-{supported}.json"
    words: dict[str, str] = json.loads(place.read_text(encoding="utf-8"))
    return words


def team_page(survey: Survey) -> str:
    """Return the team's page in the survey's first language."""
    language = survey.languages[0]
    words = team_words(language)
    page = asset("team.html").replace("%LANGUAGE%", language).replace("%WORDS%", literal(words))
    return page.replace("%HEADING%", words["heading"]).replace("%OPEN_WITH%", words["open_with"])


def say_guarantee(survey: Survey, language: str) -> str:
    """Return the bound on everything that one person sends, preceded by a list of the clear questions."""
    words, page_words = team_words(language), survey.words[language]
    quoted = [words["quote"].replace("{x}", text[language]) for text in survey.clear_texts]
    listed = [words["clear"].replace("{x}", ", ".join(quoted))] if quoted else []
    gamma = survey.record_gamma
    after = None if math.isinf(gamma) else percent_after(gamma)
    if after is None:
        return " ".join([*listed, words["guarantee_none"]])
    before = say_percent(page_words, str(int(BEFORE * 100)))
    bound = words["guarantee"].replace("{b}", before).replace("{p}", say_percent(page_words, after))
    return " ".join([*listed, bound])


def say_among(survey: Survey, question: SurveyQuestion, language: str) -> str | None:
    """Describe who is asked a question and how others are recorded; return None if all are asked."""
    if question.not_asked is None:
        return None
    words = team_words(language)
    by_name = {one.name: one for one in survey.questions}
    parts = []
    for name, codes in question.shown.items():
        earlier = by_name[name]
        quoted = [words["quote"].replace("{x}", earlier.answers[language][code]) for code in codes]
        sentence = words["among"].replace("{answers}", words["among_or"].join(quoted))
        parts.append(sentence.replace("{question}", earlier.text[language]))
    recorded = words["among_others"].replace("{answer}", question.answers[language][question.not_asked])
    return " ".join([*parts, recorded])
