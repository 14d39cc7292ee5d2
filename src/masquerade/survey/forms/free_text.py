"""Questions that people answer in their own words, which are sent and stored as written.

::

    - {variable: remarks, type: text, clear: accepted, text: ..., longest: 300}

A text cannot be disguised, so the question must accept that with `clear: accepted`. Its name is not a
variable of the policy, and estimates ignore it. A follow-up in words reveals who was asked, as any follow-up
in clear does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from masquerade.core.errors import InputError
from masquerade.survey.forms.parts import text_problems
from masquerade.survey.forms.question_types import QuestionEntry, QuestionSpec

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy

MOST_CHARACTERS: Final = 8_000  # most characters of all texts of a person: a message is at most 64 kB
BYTES_PER_CHARACTER: Final = 3  # most bytes of UTF-8 per unit of UTF-16, in which browsers count
DEFAULT_LONGEST: Final = 500
OTHER_KEYS: Final = ("items", "answers", "number", "date", "ticked", "not_asked")


@dataclass(frozen=True)
class FreeText:
    """A question in free text, with its texts in every language; `shown` as in `SurveyQuestion`."""

    name: str
    text: Mapping[str, str]
    help: Mapping[str, str] | None
    caution: Mapping[str, str] | None
    shown: Mapping[str, tuple[int, ...]]
    screen: int
    longest: int

    def values(self) -> dict[str, Any]:
        """Return the question as the page's script receives it."""
        values: dict[str, Any] = {
            "name": self.name,
            "type": "text",
            "text": self.text,
            "help": self.help,
            "shown": self.shown,
            "screen": self.screen,
            "most": self.longest,
            "optional": True,
        }
        return values if self.caution is None else values | {"caution": self.caution}


def text_entries(questions: Sequence[QuestionSpec]) -> tuple[QuestionEntry, ...]:
    """Return the questions in free text, in the order of the file."""
    return tuple(
        QuestionEntry(f"questions.{i}", i, spec.variable, spec)
        for i, spec in enumerate(questions)
        if spec.type == "text" and spec.variable is not None
    )


def free_text_problems(
    questions: Sequence[QuestionSpec], policy: Policy, languages: Iterable[str]
) -> Iterator[str]:
    """Yield the problems of questions in free text, apart from their conditions."""
    names: list[str] = []
    for entry in text_entries(questions):
        spec, where = entry.spec, entry.where
        if spec.clear is None:
            yield (
                f"{where}: a text cannot be disguised: it is sent and stored as people write it. Accept that "
                "with 'clear: accepted', or ask for a choice."
            )
        if entry.name in policy.schema:
            yield f"{where}.variable: {entry.name!r} is a variable of the policy; a text needs another name."
        if entry.name in names:
            yield f"{where}.variable: {entry.name!r} is asked twice."
        names.append(entry.name)
        unfit = [key for key in OTHER_KEYS if getattr(spec, key) is not None]
        yield from (f"{where}.{key}: does not fit the type text." for key in unfit)
        if spec.caution is not None:
            yield from text_problems(spec.caution, f"{where}.caution", languages)
    others = [(i, it) for i, it in enumerate(questions) if it.type != "text"]
    yield from (
        f"questions.{i}: 'clear' and 'longest' need the type text."
        for i, it in others
        if it.clear is not None or it.longest is not None
    )
    total = sum(longest_of(entry.spec) for entry in text_entries(questions))
    if total > MOST_CHARACTERS:
        yield (
            f"questions: texts may have {MOST_CHARACTERS:,} characters together. Got {total:,}: "
            "lower 'longest'."
        )


def longest_of(spec: QuestionSpec) -> int:
    """Return the maximum number of characters of a text."""
    return DEFAULT_LONGEST if spec.longest is None else spec.longest


def parse_texts(values: object, longest: Mapping[str, int]) -> dict[str, str]:
    """Check the texts of a report; the error quotes none of them.

    Parameters
    ----------
    values : object
        Parsed JSON; None if the report has no texts.
    longest : mapping of str to int
        Maximum number of characters for each question in free text.

    Returns
    -------
    dict of str to str
        Texts by name.

    Raises
    ------
    InputError
        If a text is unknown, empty, too long, or contains control characters.
    """
    if values is None:
        return {}
    if not isinstance(values, dict) or not values.keys() <= longest.keys():
        raise InputError("'texts' may contain only texts for questions in free text.")
    for name, text in values.items():
        if not isinstance(text, str) or not 1 <= len(text) <= longest[name]:
            raise InputError(f"'texts': {name!r} must have 1 to {longest[name]:,} characters.")
        if any((ord(it) < 32 and it != "\n") or 0xD800 <= ord(it) < 0xE000 for it in text):
            raise InputError(f"'texts': {name!r} contains characters that are not text.")
    return dict(values)
