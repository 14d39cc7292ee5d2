"""Draw Mermaid sequence diagrams as SVG, so that the site needs no script and no other address.

Only what the READMEs use is known: `participant X as name` and `X->>Y: text`.
"""

from __future__ import annotations

import re
from html import escape

FENCE = re.compile(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
ARROW = re.compile(r"(\w+)->>(\w+): (.+)")
LETTER, LINE, BOX, MARGIN = 7.2, 40, 34, 24  # pixels: a letter of 13 px, a message, a box, around a text


def draw_diagrams(markdown: str) -> str:
    """Return Markdown with every sequence diagram replaced by an SVG picture."""
    return FENCE.sub(lambda match: draw(match[1]), markdown)


def draw(text: str) -> str:
    """Return a sequence diagram as SVG in one HTML block."""
    names: dict[str, str] = {}
    arrows: list[tuple[str, str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if match := PARTICIPANT.fullmatch(line):
            names[match[1]] = match[2]
        elif match := ARROW.fullmatch(line):
            arrows.append((match[1], match[2], match[3]))
        else:
            raise ValueError(f"not a line of a sequence diagram that can be drawn: {line!r}")
    at = columns(names, arrows)
    height = 2 * BOX + (len(arrows) + 1) * LINE
    width = max([*(x + wide(names[key]) / 2 for key, x in at.items()), *(right(a, at) for a in arrows)]) + 2
    parts = [box(at[key], 1, name) for key, name in names.items()]
    parts += [f'<path d="M{x:.0f} {BOX + 1}V{height:.0f}" stroke-dasharray="4"/>' for x in at.values()]
    parts += [arrow(at[a], at[b], BOX + (i + 1) * LINE, label) for i, (a, b, label) in enumerate(arrows)]
    summary = "; ".join(f"{names[a]} to {names[b]}: {label}" for a, b, label in arrows)
    return (  # in a block element: Markdown would read the text inside an inline one
        f'<div><svg role="img" aria-label="{escape(summary)}" viewBox="0 0 {width:.0f} {height}" '
        f'style="max-width:{width:.0f}px" fill="none" stroke="currentColor" font-size="13">'
        f"{''.join(parts)}</svg></div>"
    )


def columns(names: dict[str, str], arrows: list[tuple[str, str, str]]) -> dict[str, float]:
    """Return the x of every participant: far enough apart for the names and for the longest message."""
    order = list(names)
    at = {order[0]: wide(names[order[0]]) / 2 + 2}
    for place, key in enumerate(order[1:], start=1):
        before = order[place - 1]
        x = at[before] + (wide(names[before]) + wide(names[key])) / 2 + MARGIN / 2
        for first, second, label in arrows:
            ends = sorted((order.index(first), order.index(second)))
            if ends[1] == place and ends[0] < place:
                x = max(x, at[order[ends[0]]] + wide(label))
            if ends == [place - 1, place - 1]:  # a message to oneself is written to the right
                x = max(x, at[before] + wide(label) + MARGIN)
        at[key] = x
    return at


def wide(text: str) -> float:
    """Return the width of a text with its margin."""
    return len(text) * LETTER + MARGIN


def right(message: tuple[str, str, str], at: dict[str, float]) -> float:
    """Return the right end of a message."""
    first, second, label = message
    return at[first] + wide(label) + MARGIN if first == second else max(at[first], at[second])


def box(x: float, y: float, name: str) -> str:
    """Return a participant's box."""
    half = wide(name) / 2
    return (
        f'<rect x="{x - half:.0f}" y="{y:.0f}" width="{2 * half:.0f}" height="{BOX}" rx="3"/>'
        f'<text x="{x:.0f}" y="{y + BOX / 2 + 5:.0f}" text-anchor="middle" fill="currentColor" stroke="none">'
        f"{escape(name)}</text>"
    )


def arrow(start: float, end: float, y: float, label: str) -> str:
    """Return a message: its text above its arrow."""
    # the outline in the page's colour keeps a text readable where it crosses a participant's line
    text = (
        '<text x="{:.0f}" y="{:.0f}"{} fill="currentColor" stroke="var(--md-default-bg-color, Canvas)" '
        'stroke-width="4" paint-order="stroke">{}</text>'
    )
    if start == end:
        loop = f'<path d="M{start:.0f} {y - 12}h14v16h-12m5 -4l-5 4l5 4"/>'
        return text.format(start + 22, y, "", escape(label)) + loop
    head = -6 if end > start else 6
    line = f'<path d="M{start:.0f} {y}H{end:.0f}m{head} -4l{-head} 4l{head} 4"/>'
    return text.format((start + end) / 2, y - 6, ' text-anchor="middle"', escape(label)) + line
