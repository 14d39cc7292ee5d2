"""Texts and other small parts of a survey file, and checks that several of its sections share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

LONGEST_TEXT: Final = 10_000
LINK: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/?#-]*)?")

Plain = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
Text = Plain | dict[str, Plain]
Label = bool | int | str


class SurveyPart(BaseModel):
    """A part of a survey file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def text_problems(text: Text, where: str, languages: Iterable[str]) -> Iterator[str]:
    """Yield the languages that a text lacks, and those that the survey does not have."""
    if isinstance(text, dict):
        yield from (
            f"{where}: has no text in {language!r}." for language in languages if language not in text
        )
        yield from (
            f"{where}.{it}: is not one of the survey's languages." for it in text if it not in languages
        )
