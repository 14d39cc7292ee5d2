"""Minifier for the scripts and styles of a page, whose output is the same on every machine.

It removes comments and unnecessary whitespace, and shortens names that a script declares itself. It is not a
general minifier: it supports only the style of the scripts in `assets` (`;` after each statement, no class,
no label).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import count, product
from string import ascii_letters
from typing import Any, Final, NamedTuple

PIECE: Final = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<pattern>(?<=[(,=] )/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*|(?<=\()/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*)"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<blank>\s+)"
    r"|(?P<word>[A-Za-z0-9_$]+)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
TEMPLATE: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(?:`|\$\{)", re.DOTALL)
SHORTER: Final = {"const": "let"}  # equivalent here: a constant is never assigned again
RESERVED: Final = frozenset([
    "as", "async", "await", "break", "case", "catch", "const", "continue", "do", "else", "export", "false",
    "finally", "for", "from", "function", "if", "import", "in", "instanceof", "let", "new", "null", "of",
    "return", "static", "switch", "this", "throw", "true", "try", "typeof", "undefined", "var", "void",
    "while",
])  # fmt: skip
OBJECT: Final = frozenset(["(", ",", "=", ":", "[", "?", "&", "|", ".", "return", "const", "let"])
PAIRS: Final = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A piece of a script: its kind, its text, and the gap before it: nothing, a blank or a line break."""

    kind: str
    text: str
    gap: str


def asset(name: str) -> str:
    """Return a file of this package."""
    return (files("masquerade.survey.page") / "assets" / name).read_text(encoding="utf-8")


def script_of(names: Iterable[str], values: Any) -> str:
    """Combine the named assets into one script; `values` become its constant `S`."""
    joined = re.sub(r"^export ", "", "\n".join(map(asset, names)), flags=re.MULTILINE)
    return f'"use strict";const S={literal(values)};\n{compact(joined)}'


def literal(values: Any) -> str:
    """Return JSON values as JavaScript that is safe inside an HTML script element."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    # the key "__proto__" would set the prototype of an object, not a property; quotes in texts are escaped
    text = re.sub(r'(?<=[{,])"__proto__":', '["__proto__"]:', text)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def compact(script: str) -> str:
    """Shorten the names of a script, and remove comments and whitespace that cannot end a statement."""
    result: list[str] = []
    for kind, token, gap in _shorten_names(list(_tokens(script))):
        before = result[-1][-1] if result else ""
        if gap and before:
            both = _is_word(before) and _is_word(token[0])
            if (
                (gap == "\n" and before not in "{([,;:?&|=<>+*" and token[0] not in ")]},;:?.&|=*")
                or both
                or before == token[0] in "+-"
            ):
                result.append(gap)
        result.append(SHORTER.get(token, token) if kind == "word" else token)
    return "".join(result)


def compact_style(style: str) -> str:
    """Return a style sheet without unnecessary whitespace."""
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r":\s+", ":", re.sub(r"\s+", " ", style))).strip()


def _tokens(script: str) -> Iterator[Token]:
    """Yield the tokens of a script; a template literal with values is split into texts and values."""
    at, gap, open_braces = 0, "", [0]
    while at < len(script):
        inside = len(open_braces) > 1 and open_braces[-1] == 0 and script[at] == "}"
        template = inside or script[at] == "`"
        match = TEMPLATE.match(script, at + 1) if template else PIECE.match(script, at)
        if match is None:
            raise ValueError("a template has no end")
        kind, text = ("text", script[at : match.end()]) if template else (str(match.lastgroup), match.group())
        if inside:
            open_braces.pop()
        if template and text.endswith("{"):
            open_braces.append(0)
        if not template:
            open_braces[-1] += (text == "{") - (text == "}")
        at = match.end()
        if kind in {"blank", "comment"}:
            gap = "\n" if "\n" in text or gap == "\n" else " "
        else:
            yield Token(kind, text, gap)
            gap = ""


def _shorten_names(tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens with short names for all names that the script declares; frequent names first."""
    texts = [token.text for token in tokens]
    ends = _ends(texts)
    roles = [_role(texts, i, ends) if _is_name(token) else "" for i, token in enumerate(tokens)]
    declared = set(_declared_names(texts, ends))
    used = Counter(texts[i] for i, role in enumerate(roles) if role in {"name", "both"})
    free = _names(RESERVED | (used.keys() - declared))
    ordered = sorted(declared & used.keys(), key=lambda name: (-used[name], name))
    short = dict(zip(ordered, free, strict=False))
    for token, role in zip(tokens, roles, strict=True):
        name = short.get(token.text)
        if name is None or role not in {"name", "both"}:
            yield token
        else:
            yield token._replace(text=name if role == "name" else f"{token.text}:{name}")


def _names(taken: Iterable[str]) -> Iterator[str]:
    forbidden = frozenset(taken)
    for length in count(1):
        names = map("".join, product(ascii_letters, repeat=length))
        yield from (name for name in names if name not in forbidden)


def _ends(texts: list[str]) -> dict[int, int]:
    """Return the index of the matching bracket for each bracket."""
    matches, opened = {}, []
    for i, text in enumerate(texts):
        if text in PAIRS:
            opened.append(i)
        elif opened and text == PAIRS[texts[opened[-1]]]:
            begin = opened.pop()
            matches[begin], matches[i] = i, begin
    if opened:
        raise ValueError("a bracket has no end")
    return matches


def _role(texts: list[str], i: int, ends: dict[int, int]) -> str:
    """Classify a word: "name", "property", or "both" (`{ name }` names a property and its value)."""
    before, after = texts[i - 1] if i else "", texts[i + 1] if i + 1 < len(texts) else ""
    if before == "." and texts[i - 2] != ".":
        return "property"
    if before in {"{", ","} and after in {":", ",", "}", "="} and _in_object(texts, i, ends):
        return "property" if after == ":" else "both"
    return "name"


def _in_object(texts: list[str], i: int, ends: dict[int, int]) -> bool:
    j = i - 1
    while j >= 0 and texts[j] not in PAIRS:
        j = ends.get(j, j) - 1
    return j > 0 and texts[j] == "{" and texts[j - 1] in OBJECT


def _declared_names(texts: list[str], ends: dict[int, int]) -> Iterator[str]:
    """Yield the names declared by const, let and function, as parameters and in patterns."""
    for i, text in enumerate(texts):
        after = texts[i + 1 : i + 3]
        if text in {"const", "let"}:
            yield from _bound(texts, i + 1, len(texts), ends)
        elif text == "function":
            yield texts[i + 1]
            yield from _bound(texts, i + 3, ends[i + 2], ends)
        elif text == "(" and (texts[ends[i] + 1 : ends[i] + 3] == ["=", ">"] or texts[i - 1] == "catch"):
            yield from _bound(texts, i + 1, ends[i], ends)
        elif after == ["=", ">"] and _is_word(text[0]):
            yield text


def _bound(texts: list[str], at: int, end: int, ends: dict[int, int]) -> Iterator[str]:
    """Yield the names that a list of declarations binds, also in patterns but not in their initial values."""
    while at < end:
        while texts[at] == ".":
            at += 1
        if texts[at + 1] == ":":  # { property: name }
            at += 2
        if texts[at] in PAIRS:
            yield from _bound(texts, at + 1, ends[at], ends)
            at = ends[at]
        elif _is_word(texts[at][0]):
            yield texts[at]
        while at < end and texts[at] not in {",", ";", "of", "in"}:
            at = ends[at] + 1 if texts[at] in PAIRS else at + 1
        if at >= end or texts[at] != ",":
            return
        at += 1


def _is_name(token: Token) -> bool:
    return token.kind == "word" and not token.text[0].isdigit() and token.text not in RESERVED


def _is_word(character: str) -> bool:
    return character.isalnum() or character in "_$"
