"""What people read and agree to around the questions: information, consent, screening, closing page.

::

    agree: {en: "I am 16 or older, I have read this page and want to take part."}
    information:
      purpose: {en: "We want to know how many people ..."}
      participants: {en: "We ask 1,500 people who work in care homes."}
      effort: {en: "Eight questions, about four minutes. You are not paid."}
      benefits: {en: "You have no advantage yourself. We hope that ..."}
      legal_basis: {en: "Your consent (Article 6(1)(a) GDPR)."}
      officer: {en: "privacy@example.org"}
      rights: {en: "You may ask ..."}
      retention: {en: "We keep ... for ten years."}
    screening:
      text: {en: "How old are you?"}
      answers: {older: {en: "16 or older"}, younger: {en: "Under 16"}}
      admits: [older]
      end: {en: "Thank you. This survey is for people of 16 or older."}
    closing:
      text: {en: "Thank you for your time."}
      help: {en: "Telephone counselling, free of charge: 0800 111 0 111"}
      links: [{text: {en: "About the study"}, url: "https://study.example.org"}]

The answer to the screening question stays on the device: it is neither sent nor stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from masquerade.survey.forms.parts import LINK, Label, SurveyPart, Text, text_problems

if TYPE_CHECKING:
    from masquerade.survey.forms.survey_file import Survey, SurveySpec

MOST_LINKS: Final = 20
MOST_SCREENING: Final = 12
SECTIONS: Final = (
    "purpose", "participants", "effort", "benefits", "funding", "approval", "legal_basis", "recipients",
    "retention", "rights", "officer",
)  # fmt: skip
OPTIONAL: Final = ("funding", "approval", "recipients")
EXPECTED: Final = tuple(name for name in SECTIONS if name not in OPTIONAL)  # by ethics committees
CONSENT_DIGITS: Final = 32


class InformationSpec(SurveyPart):
    """Information for participants, as ethics committees and data protection law ask for it."""

    purpose: Text | None = None
    participants: Text | None = None
    effort: Text | None = None
    benefits: Text | None = None
    funding: Text | None = None
    approval: Text | None = None
    legal_basis: Text | None = None
    recipients: Text | None = None
    retention: Text | None = None
    rights: Text | None = None
    officer: Text | None = None


class ScreeningSpec(SurveyPart):
    """A question that decides who is asked; its answer stays on the device."""

    text: Text
    help: Text | None = None
    answers: dict[Label, Text] = Field(min_length=2, max_length=MOST_SCREENING)
    admits: list[Label] = Field(min_length=1)
    end: Text | None = None


class LinkSpec(SurveyPart):
    """A link on the closing page."""

    text: Text
    url: str


class ClosingSpec(SurveyPart):
    """The closing page: thanks, a helpline, links."""

    text: Text | None = None
    help: Text | None = None
    links: list[LinkSpec] = Field(default_factory=list, max_length=MOST_LINKS)


def consent_digest(spec: SurveySpec) -> str | None:
    """Return the digest of the consent that people tick, in all languages; None without a box to tick.

    It is the same for everyone, so that it reveals neither the language nor the time.
    """
    if spec.agree is None:
        return None
    contents = [spec.agree, spec.consent, None if spec.information is None else spec.information.model_dump()]
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:CONSENT_DIGITS]


def texts_around(spec: SurveySpec) -> Iterator[tuple[str, Text]]:
    """Yield the texts around the questions, with their places in the file."""
    yield from (("title", spec.title), ("contact", spec.contact), ("consent", spec.consent))
    if spec.agree is not None:
        yield "agree", spec.agree
    for name, text in _sections(spec).items():
        yield f"information.{name}", text
    if spec.screening is not None:
        yield "screening.text", spec.screening.text
        yield from _optional("screening.help", spec.screening.help)
        yield from _optional("screening.end", spec.screening.end)
        yield from ((f"screening.answers.{name}", text) for name, text in spec.screening.answers.items())
    if spec.closing is not None:
        yield from _optional("closing.text", spec.closing.text)
        yield from _optional("closing.help", spec.closing.help)
        yield from ((f"closing.links.{i}.text", link.text) for i, link in enumerate(spec.closing.links))


def information_problems(spec: SurveySpec) -> Iterator[str]:
    """Yield the problems of the texts around the questions."""
    for where, text in texts_around(spec):
        yield from text_problems(text, where, spec.languages)
    screening = spec.screening
    if screening is not None:
        yield from (
            f"screening.admits: {label!r} is not one of its answers."
            for label in screening.admits
            if label not in screening.answers
        )
        if set(screening.answers) <= set(screening.admits):
            yield "screening.admits: admits all answers; leave out at least one, or the screening."
    links = () if spec.closing is None else spec.closing.links
    yield from (
        f"closing.links.{i}.url: must be an address such as https://help.example.org/page."
        for i, link in enumerate(links)
        if not LINK.fullmatch(link.url)
    )


def information_values(survey: Survey) -> dict[str, Any]:
    """Return the parts around the questions as the page's script receives them; absent parts are omitted."""
    spec, values = survey.spec, dict[str, Any]()
    if spec.agree is not None:
        values |= {"agree": survey.text(spec.agree), "agreed": consent_digest(spec)}
    sections = _sections(spec)
    if sections:
        values["information"] = [[name, survey.text(text)] for name, text in sections.items()]
    if spec.screening is not None:
        values["screening"] = {
            "text": survey.text(spec.screening.text),
            "help": _translate(survey, spec.screening.help),
            "end": _translate(survey, spec.screening.end),
            "answers": [survey.text(text) for text in spec.screening.answers.values()],
            "admits": [i for i, label in enumerate(spec.screening.answers) if label in spec.screening.admits],
        }
    if spec.closing is not None:
        values["closing"] = {
            "text": _translate(survey, spec.closing.text),
            "help": _translate(survey, spec.closing.help),
            "links": [[survey.text(link.text), link.url] for link in spec.closing.links],
        }
    return values


def _sections(spec: SurveySpec) -> dict[str, Text]:
    texts = {} if spec.information is None else {name: getattr(spec.information, name) for name in SECTIONS}
    return {name: text for name, text in texts.items() if text is not None}


def _optional(where: str, text: Text | None) -> Iterator[tuple[str, Text]]:
    if text is not None:
        yield where, text


def _translate(survey: Survey, text: Text | None) -> Mapping[str, str] | None:
    return None if text is None else survey.text(text)
