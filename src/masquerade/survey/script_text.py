"""Our own scripts and styles as a page carries them: in one piece, without comments and spare blanks.

This is no tool for others' scripts: it knows the forms that ours are written in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

TOKEN: Final = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`)'
    r"|(?P<pattern>(?<=[(,=] )/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*|(?<=\()/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*)"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<blank>\s+)"
    r"|(?P<other>[A-Za-z0-9_$]+|.)",
    re.DOTALL,
)
SHORTER: Final = {"const": "let"}  # what is never assigned again may be called so, too
WORD: Final = re.compile(r"[A-Za-z0-9_$]")


def asset(name: str) -> str:
    """Return a file of this package."""
    return (files("masquerade.survey") / "assets" / name).read_text(encoding="utf-8")


def script_of(names: Iterable[str], values: Any) -> str:
    """Return scripts as one: each part of ours, with the survey as the constant `S` before the last."""
    parts = [re.sub(r"^export ", "", asset(name), flags=re.MULTILINE) for name in names]
    return (
        "\n".join(map(compact, ['"use strict";', *parts[:-1]]))
        + f"\nconst S={literal(values)};\n{compact(parts[-1])}"
    )


def literal(values: Any) -> str:
    """Return plain values as JavaScript that may stand inside an HTML script."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def compact(script: str) -> str:
    """Return a script without comments and blanks; a line's end stays where it could end a statement."""
    result: list[str] = []
    gap = ""
    for match in TOKEN.finditer(script):
        kind, token = match.lastgroup, match.group()
        token = SHORTER.get(token, token) if kind == "other" else token
        if kind in {"blank", "comment"}:
            gap = "\n" if "\n" in token or gap == "\n" else " "
            continue
        before = result[-1][-1] if result else ""
        if gap and before:
            both = WORD.match(before) and WORD.match(token[0])
            if (
                (gap == "\n" and before not in "{([,;:?&|=<>+*" and token[0] not in ")]},;:?.&|=*")
                or both
                or before == token[0] in "+-"
            ):
                result.append(gap)
        gap = ""
        result.append(token)
    return "".join(result)


def compact_style(style: str) -> str:
    """Return a style sheet without spare blanks."""
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r":\s+", ":", re.sub(r"\s+", " ", style))).strip()
