"""Remarks on a survey that works: what people would see and should not, and what a committee would miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group
from masquerade.core.schema import Category
from masquerade.survey.forms.free_text import text_entries
from masquerade.survey.forms.information import EXPECTED, texts_around
from masquerade.survey.forms.parts import Text
from masquerade.survey.forms.question_types import QuestionEntry, answered_categories, type_of
from masquerade.survey.forms.survey_file import Survey

LARGEST_ODDS: Final = 1000  # odds such as "19 of 30" are shown exactly up to this denominator
SHOWN_LABELS: Final = 4
PLACEHOLDERS: Final = (
    "Write here",
    "Schreiben Sie hier",
)  # in the files that `masquerade survey init` writes
OPEN_LINK: Final = "issuer: is missing"  # the start of that remark
CHOICES: Final = ("choice", "scale", "matrix")


def survey_remarks(survey: Survey) -> list[str]:
    """Return remarks for the author of a survey, before it is built or served.

    Parameters
    ----------
    survey : Survey
        A survey that loads without errors.

    Returns
    -------
    list of str
        One sentence per remark, with the place in the file: raw categories and numbers that people would
        see, missing translations, questions that nobody is asked, odds that are not exact, missing
        information for participants, and an open link.
    """
    return [
        *_raw_categories(survey),
        *_missing_translations(survey),
        *_unreachable(survey),
        *_rounded_odds(survey),
        *_incomplete_information(survey),
        *_open_link(survey),
    ]


def is_exact(share: Fraction) -> bool:
    """Return True if the page shows odds exactly."""
    return share.denominator < LARGEST_ODDS


def _raw_categories(survey: Survey) -> Iterator[str]:
    for entry in survey.entries:
        variable = survey.policy.schema[entry.name]
        if type_of(entry, survey.policy) not in CHOICES:
            continue
        texts = entry.spec.answers or {}
        raw = [label for label in answered_categories(variable) if label not in texts]
        if not raw:
            continue
        listed = ", ".join(map(str, raw[:SHOWN_LABELS])) + (" …" if len(raw) > SHOWN_LABELS else "")
        if all(_is_number(label) for label in raw):
            yield f"{entry.where}: people see numbers without a label as answers ({listed}); write 'answers'."
        else:
            yield f"{entry.where}: people see the policy's categories as answers ({listed}); write 'answers'."


def _missing_translations(survey: Survey) -> Iterator[str]:
    if len(survey.languages) == 1:
        return
    entries = [*survey.entries, *text_entries(survey.spec.questions)]
    texts = [*texts_around(survey.spec), *(text for entry in entries for text in _texts(entry))]
    places = [where for where, text in texts if isinstance(text, str) and any(map(str.isalpha, text))]
    for where in dict.fromkeys(places):
        yield f"{where}: has one text for all languages ({', '.join(survey.languages)})."


def _texts(entry: QuestionEntry) -> Iterator[tuple[str, Text]]:
    spec = entry.spec
    where = f"questions.{entry.screen}"
    yield f"{where}.text", spec.text
    if entry.item is not None:
        yield entry.where, entry.item
    for key, text in (("help", spec.help), ("caution", spec.caution)):
        if text is not None:
            yield f"{where}.{key}", text
    if spec.number is not None and spec.number.unit is not None:
        yield f"{where}.number.unit", spec.number.unit
    yield from ((f"{where}.answers.{label}", text) for label, text in (spec.answers or {}).items())


def _unreachable(survey: Survey) -> Iterator[str]:
    """Yield questions that nobody is asked: their conditions and those of earlier questions conflict."""
    by_name = {question.name: question for question in survey.questions}
    for entry in survey.entries:
        allowed: dict[str, set[int]] = {}
        waiting = [entry.name]
        while waiting:
            conditions: Mapping[str, tuple[int, ...]] = by_name[waiting.pop()].shown
            for name, codes in conditions.items():
                offered = set(range(len(survey.policy.schema[name]))) - set(by_name[name].not_offered)
                allowed[name] = allowed.get(name, offered) & set(codes)
                waiting.append(name)
        if any(not codes for codes in allowed.values()):
            yield f"{entry.where}: nobody is asked {entry.name!r}: its conditions exclude each other."


def _rounded_odds(survey: Survey) -> Iterator[str]:
    for group in survey.policy.groups:
        shares = [share for channel in _channels(group) for share in _shown_odds(channel)]
        if any(not is_exact(share) for share in shares):
            yield (
                f"policy: the odds of {', '.join(group.names)} are not simple: the page shows them rounded. "
                "Choose γ as a simple fraction, such as 19 or 5/2."
            )


def _channels(group: Group) -> list[Channel]:
    if not group.disguised:
        return []
    if group.response is None:
        return [group.matrix_channel]
    return [group.response.channel_of(size) for size in sorted(set(group.response.block_classes.tolist()))]


def _shown_odds(channel: Channel) -> Iterator[Fraction]:
    """Yield the odds that the page shows: of the answer itself or, with few answers, of each report."""
    for code in range(channel.truths):
        row = channel.row(code)
        yield from row.values() if channel.truths <= SHOWN_LABELS else [row.get(code, Fraction(0))]


def _incomplete_information(survey: Survey) -> Iterator[str]:
    spec = survey.spec
    if spec.agree is None:
        yield "agree: is missing: people tick no box to consent."
    texts = spec.information
    lacking = [name for name in EXPECTED if texts is None or getattr(texts, name) is None]
    if lacking:
        yield f"information: an ethics committee will ask for {', '.join(lacking)}."
    for where, text in texts_around(spec):
        parts = [text] if isinstance(text, str) else list(text.values())
        if any(start in part for part in parts for start in PLACEHOLDERS):
            yield f"{where}: still has the text to be replaced."
    if spec.delete_after is None:
        yield "delete_after: is missing: the page states no day of deletion."
    cautious = any(question.caution is not None for question in spec.questions)
    if cautious and (spec.closing is None or spec.closing.help is None):
        yield "closing.help: a question may distress ('caution'), and the closing page names no helpline."


def _open_link(survey: Survey) -> Iterator[str]:
    if survey.spec.issuer is None:
        yield (
            f"{OPEN_LINK}: the link is open. Anyone who has it can answer, also more than once; only "
            "invitations admit each person once (masquerade survey init --invited)."
        )


def _is_number(label: Category) -> bool:
    if isinstance(label, int) and not isinstance(label, bool):
        return True
    return isinstance(label, str) and label.replace(".", "", 1).lstrip("-").isdigit()
