"""Parse untrusted XML within limits: no entities, nothing fetched, every problem an InputError."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any, Final, NoReturn
from xml.parsers import expat

from masquerade.core.errors import InputError

MOST_DEPTH: Final = 20
MOST_ELEMENTS: Final = 1 << 20
MOST_CHARACTERS: Final = 1 << 26


def parse_xml(text: str, *, most: int = MOST_CHARACTERS) -> ET.Element:
    """Return the root of XML text; element declarations are ignored, and entity declarations are refused.

    >>> parse_xml("<a><b>1</b></a>")[0].text
    '1'
    """
    if len(text) > most:
        raise InputError(f"too long: at most {most:,} characters are read.")
    return _Reader().read(text)


class _Reader:
    """Builds a tree and limits its depth and size."""

    def __init__(self) -> None:
        self.builder, self.depth, self.elements = ET.TreeBuilder(), 0, 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.builder.data
        self.parser.EntityDeclHandler = self.entity
        self.parser.ExternalEntityRefHandler = self.entity

    def read(self, text: str) -> ET.Element:
        try:
            data = text.encode()
            self.parser.Parse(data, True)  # noqa: FBT003  (expat takes no names)
        except UnicodeEncodeError:
            raise InputError("a text contains half a character (a lone surrogate).") from None
        except (expat.ExpatError, LookupError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            line = getattr(error, "lineno", self.parser.CurrentLineNumber)
            raise InputError(f"line {line}: not well-formed XML.") from None
        return self.builder.close()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth, self.elements = self.depth + 1, self.elements + 1
        if self.depth > MOST_DEPTH or self.elements > MOST_ELEMENTS:
            self.fail(f"more than {MOST_DEPTH} levels or {MOST_ELEMENTS:,} elements")
        self.builder.start(name, attributes)

    def end(self, name: str) -> None:
        self.depth -= 1
        self.builder.end(name)

    def entity(self, *_: Any) -> NoReturn:
        self.fail("entities are not read")

    def fail(self, problem: str) -> NoReturn:
        raise InputError(f"line {self.parser.CurrentLineNumber}: {problem}.")
