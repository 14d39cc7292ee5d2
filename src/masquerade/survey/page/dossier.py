"""Dossier of a survey for an ethics committee: protocol, information, risks in numbers, drawing of data flow.

Everything follows from the survey file and its policy; texts that a committee asks for and the file does not
have are called missing. The dossier says nothing that the page does not say: both use `consequences`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from typing import Any, Final

import jinja2

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group
from masquerade.core.util.formatting import gamma_text
from masquerade.survey.forms.free_text import FreeText
from masquerade.survey.forms.information import EXPECTED, SECTIONS, information_values
from masquerade.survey.forms.remarks import OPEN_LINK, is_exact, survey_remarks
from masquerade.survey.forms.survey_file import OWN_LANGUAGES, Survey, SurveyQuestion
from masquerade.survey.page.consequences import (
    percent_after,
    protection_level,
    say_bound,
    say_clear,
    say_day,
    say_number,
    say_percent,
    say_views,
)
from masquerade.survey.page.page import build
from masquerade.survey.page.script_text import asset

BELIEFS: Final = (Fraction(1, 100), Fraction(5, 100), Fraction(10, 100), Fraction(1, 2), Fraction(9, 10))
BATCH: Final = 10  # least number of reports by which the team's numbers change, by default


@dataclass(frozen=True)
class AskedQuestion:
    """A question as the dossier lists it: texts, answers, how it is sent, and notes."""

    text: str
    help: str
    answers: tuple[str, ...]
    sent: str
    notes: tuple[str, ...]


def write_dossier(survey: Survey, language: str | None = None, *, batch: int = BATCH) -> str:
    """Return the dossier of a survey as one HTML page.

    Parameters
    ----------
    survey : Survey
        Survey to describe.
    language : str, optional
        One of the survey's languages; by default the first. Headings are in English if pages have no texts
        of their own in that language.
    batch : int
        The `batch` of the collector's settings.

    Returns
    -------
    str
        HTML without scripts and without content from elsewhere.
    """
    chosen = language or survey.languages[0]
    words = survey.words[chosen]
    total, clear = len(survey.questions) + len(survey.free_texts), len(survey.clear_texts)
    spec, level = survey.spec, protection_level(survey.record_gamma)
    texts = dossier_words(chosen)
    sections: dict[str, dict[str, str]] = dict(information_values(survey).get("information", []))
    return (
        _environment()
        .from_string(asset("dossier.html.j2"))
        .render(
            language=chosen,
            d=texts,
            w=words,
            spec=spec,
            title=survey.text(spec.title)[chosen],
            contact=_paragraphs(survey, spec.contact, chosen),
            consent=_paragraphs(survey, spec.consent, chosen),
            agree=None if spec.agree is None else survey.text(spec.agree)[chosen],
            screening=None if spec.screening is None else survey.text(spec.screening.text)[chosen],
            helpline=None
            if spec.closing is None or spec.closing.help is None
            else _paragraphs(survey, spec.closing.help, chosen),
            counted=_fill(
                texts["counted"],
                n=say_number(words, total),
                k=say_number(words, total - clear),
                m=say_number(words, clear),
            ),
            languages=", ".join(survey.languages),
            sections=[
                (words[f"info_{name}"], sections[name][chosen] if name in sections else None)
                for name in SECTIONS
                if name in sections or name in EXPECTED
            ],
            clear=say_clear(survey, chosen),
            free=bool(survey.free_texts),
            bound=say_bound(survey, chosen),
            views=say_views(survey, chosen),
            questions=_describe_questions(survey, chosen, texts),
            risks=None if level == "none" else _risks(survey, words),
            risk_text=_risk_text(survey, texts, words),
            closes=None if spec.closes is None else say_day(words, spec.closes),
            deleted=None if spec.delete_after is None else say_day(words, spec.delete_after),
            team=_fill(texts["step_team"], n=say_number(words, batch)),
            flow_until=None
            if spec.delete_after is None
            else _fill(texts["flow_until"], day=say_day(words, spec.delete_after)),
            # an open link is the author's choice: the dossier says under "access" what it means
            remarks=[remark for remark in survey_remarks(survey) if not remark.startswith(OPEN_LINK)],
            digest=build(survey).digest,
            policy=survey.policy.id,
        )
    )


def dossier_words(language: str) -> dict[str, str]:
    """Return the texts of dossiers in a language, in English if there are none."""
    supported = language if language in OWN_LANGUAGES else "en"
    text = (files("masquerade.survey.page") / "words" / f"dossier-{supported}.json").read_text(
        encoding="utf-8"
    )
    words: dict[str, str] = json.loads(text)
    return words


def _risks(survey: Survey, words: dict[str, str]) -> list[tuple[str, str]]:
    """Return prior beliefs, and their bounds after a reader has seen everything that is sent."""
    rows = []
    for before in BELIEFS:
        after = percent_after(survey.record_gamma, before)
        rows.append((say_percent(words, str(int(before * 100))), say_percent(words, after or "100")))
    return rows


def _risk_text(survey: Survey, texts: dict[str, str], words: dict[str, str]) -> str:
    gamma = survey.record_gamma
    if math.isinf(gamma):
        return texts["risks_none"]
    epsilon = f"{math.log(gamma):.2f}".replace(".", words["decimal"])
    text = _fill(texts["risks_text"], g=gamma_text(gamma).replace(".", words["decimal"]), e=epsilon)
    return f"{text} {texts['risks_clear']}" if survey.sends_clear else text


def _describe_questions(survey: Survey, language: str, texts: dict[str, str]) -> list[AskedQuestion]:
    """Return all questions in the order of the file."""
    questions = [(it.screen, _describe_question(survey, it, language, texts)) for it in survey.questions]
    questions += [(it.screen, _describe_text(survey, it, language, texts)) for it in survey.free_texts]
    return [question for _, question in sorted(questions, key=lambda pair: pair[0])]


def _describe_text(survey: Survey, question: FreeText, language: str, texts: dict[str, str]) -> AskedQuestion:
    words = survey.words[language]
    notes = [] if question.caution is None else [f"{texts['warned']} {question.caution[language]}"]
    if question.shown:
        notes.append(texts["if_written"])
    help_text = "" if question.help is None else question.help[language]
    most = _fill(words["text_most"], n=say_number(words, question.longest))
    return AskedQuestion(question.text[language], help_text, (most,), texts["sent_text"], tuple(notes))


def _describe_question(
    survey: Survey, question: SurveyQuestion, language: str, texts: dict[str, str]
) -> AskedQuestion:
    words = survey.words[language]
    notes = []
    if question.caution is not None:
        notes.append(f"{texts['warned']} {question.caution[language]}")
    if question.not_asked is not None:
        notes.append(_fill(texts["if_asked"], a=question.answers[language][question.not_asked]))
    intro = "" if question.intro is None else f"{question.intro[language]} "
    offered = tuple(
        text for code, text in enumerate(question.answers[language]) if code not in question.not_offered
    )
    return AskedQuestion(
        intro + question.text[language],
        "" if question.help is None else question.help[language],
        offered,
        _how_sent(survey, question, texts, words),
        tuple(notes),
    )


def _how_sent(survey: Survey, question: SurveyQuestion, texts: dict[str, str], words: dict[str, str]) -> str:
    if question.name in survey.clear_variables:
        return texts["sent_clear"]
    if survey.policy.stratum_variable is not None:
        return texts["sent_other"]
    group = survey.policy.group(question.name)
    shares = {channel_kept(channel) for channel in _group_channels(group)}
    share = next(iter(shares)) if len(shares) == 1 else None
    if group.response is not None:
        least = min((it for it in shares if it is not None), default=None)
        return texts["sent_other"] if least is None else _fill(texts["sent_block"], p=say_odds(least, words))
    if share is None:
        return texts["sent_other"]
    others = len(group.names) - 1
    key = {0: "sent_kept", 1: "sent_pair"}.get(others, "sent_with")
    return _fill(texts[key], n=str(others), p=say_odds(share, words))


def channel_kept(channel: Channel) -> Fraction | None:
    """Return the probability that the truth itself is reported, None if it depends on the truth.

    >>> channel_kept(mq.channels.for_gamma(4, 19))
    Fraction(19, 22)
    """
    shares = {channel.row(code).get(code, Fraction(0)) for code in range(channel.truths)}
    return shares.pop() if len(shares) == 1 else None


def say_odds(share: Fraction, words: dict[str, str]) -> str:
    """Format a probability as odds that people can use: exact if the numbers are small, else rounded."""
    for number in (10, 100):
        if (share * number).denominator == 1:
            return _fill(words["of"], k=str(int(share * number)), m=str(number))
    if is_exact(share):
        return _fill(words["of"], k=str(share.numerator), m=str(share.denominator))
    number = 100
    while not 0 < round(share * number) < number:
        number *= 10
    return _fill(words["about"], k=say_number(words, round(share * number)), m=say_number(words, number))


def _group_channels(group: Group) -> list[Channel]:
    if group.response is None:
        return [group.matrix_channel]
    return [group.response.channel_of(size) for size in sorted(set(group.response.block_classes.tolist()))]


def _paragraphs(survey: Survey, text: Any, language: str) -> list[str]:
    return [part.strip() for part in survey.text(text)[language].split("\n\n") if part.strip()]


def _fill(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
