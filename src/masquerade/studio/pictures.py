"""SVG plots for a page with a strict content security policy: colours by class, a tooltip on every mark."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from masquerade.learn.networks.network_plot import assign_layers, coordinates, order_layers

WIDTH = 640
ROW, LEFT, RIGHT = 26, 170, 24
MOST_BARS = 40
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" class="arrow"/></marker></defs>'
)


# colours of a downloaded plot; on the page they come from studio.css, light or dark
COLOURS = (
    "text{font:12px sans-serif;fill:#1d2733}.tick{fill:#65717f}.grid{stroke:#dde2e8}.bar{fill:#bcd7ee}"
    ".whisker{stroke:#1a6fb5;stroke-width:2}.within{stroke:#1a6fb5;stroke-width:6;opacity:.5}"
    ".floor{fill:#dde2e8}.cursor{stroke:#6b4696;stroke-dasharray:4 3}.cursor-words{fill:#6b4696}"
    ".series,.link,.touch{fill:none;stroke-width:2}.node{fill:#ece4f5;stroke:#6b4696}.link{stroke:#1a6fb5}"
    ".arrow{fill:#1a6fb5}polyline.s0{stroke:#1a6fb6}polyline.s1{stroke:#0f8a6d}polyline.s2{stroke:#b5791b}"
    "polyline.s3{stroke:#c23b72}polyline.s4{stroke:#6b4697}.w2{stroke-width:2.5}.w3{stroke-width:4}"
    ".w4{stroke-width:5.5}.w5{stroke-width:7}"
)
LINKS = re.compile(r"<a [^>]*>|</a>")  # links to pages of the running studio


def standing_alone(picture: Markup) -> bytes:
    """Return a plot as a standalone file, with its colours and without links."""
    text = LINKS.sub("", str(picture)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return text.replace(">", f"><style>{COLOURS}</style>", 1).encode()


class Bar(NamedTuple):
    """A value with its interval."""

    label: str
    value: float
    lower: float
    upper: float
    within: tuple[float, float] | None = None  # the interval due to the disguise alone


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> Markup:
    size = f'viewBox="0 0 {width:g} {height:g}"'
    body = "".join(parts)
    return Markup(f'<svg {size} role="img" aria-label="{escape(title)}">{body}</svg>')  # noqa: S704


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _short(words: str, most: int = 24) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / wanted))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= wanted)
    first = math.ceil(low / step)
    return [place * step for place in range(first, math.floor(high / step) + 1)]


def bars(rows: Sequence[Bar], title: str) -> Markup:
    """Return bars with their intervals, one row per bar; if there are many, only the first rows."""
    shown = [row for row in rows[:MOST_BARS] if all(map(math.isfinite, row[1:4]))]
    if not shown:
        return Markup("")
    low = min(0.0, *(row.lower for row in shown))
    high = max(0.0, *(row.upper for row in shown))
    span = (high - low) or 1.0
    low, high = (low - 0.02 * span if low < 0 else low), high + 0.02 * span

    def at(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    height = ROW * len(shown) + 30
    parts = []
    for tick in _ticks(low, high):
        parts.append(_line(at(tick), 4, at(tick), height - 24, "grid"))
        parts.append(_text(at(tick), height - 8, f"{tick:,.6g}", "tick", "middle"))
    for place, row in enumerate(shown):
        middle = 4 + ROW * place + ROW / 2
        left, right = sorted((at(0.0), at(row.value)))
        told = f"{row.label}: {row.value:,.4g}, interval {row.lower:,.4g} to {row.upper:,.4g}"
        parts.append(f"<g><title>{escape(told)}</title>")
        parts.append(_text(LEFT - 10, middle + 4, _short(row.label), "", "end"))
        box = f'x="{left:.1f}" y="{middle - 7:.1f}" width="{max(right - left, 0.5):.1f}" height="14"'
        parts.append(f'<rect {box} class="bar"/>')
        parts.append(_line(at(row.lower), middle, at(row.upper), middle, "whisker"))
        parts += [_line(at(end), middle - 4, at(end), middle + 4, "whisker") for end in row[2:4]]
        if row.within is not None:
            inside = (at(end) for end in row.within)
            parts.append(_line(next(inside), middle, next(inside), middle, "within"))
        parts.append("</g>")
    return _svg(WIDTH, height, title, parts)


Points = Sequence[tuple[float, float]]


class _Plane:
    """Logarithmic axes: ε is horizontal, the error vertical."""

    left, right, top, bottom = 60.0, WIDTH - 150.0, 20.0, 290.0

    def __init__(self, points: Points) -> None:
        self.low, self.high = (pick(math.log(x) for x, _ in points) for pick in (min, max))
        values = [math.log(y) for _, y in points if y > 0]
        self.least, self.most = min(values), max(values)

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        """Return the coordinates of a point in the plot."""
        across = (math.log(x) - self.low) / ((self.high - self.low) or 1)
        up = (math.log(y) - self.least) / ((self.most - self.least) or 1)
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    def grid(self) -> list[str]:
        """Return lines and numbers of both axes."""
        parts = []
        for value in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
            if self.least <= math.log(value) <= self.most:
                height = self(math.exp(self.low), value)[1]
                parts.append(_line(self.left, height, self.right, height, "grid"))
                parts.append(_text(self.left - 6, height + 4, f"{100 * value:g}", "tick", "end"))
        for value in (0.25, 0.5, 1, 2, 4, 8, 16):
            if self.low <= math.log(value) <= self.high:
                across = self(value, math.exp(self.least))[0]
                parts.append(_line(across, self.top, across, self.bottom, "grid"))
                parts.append(_text(across, self.bottom + 18, f"{value:g}", "tick", "middle"))
        words = "ε (privacy loss, less is better) →   error in points, less is better ↑"
        return [*parts, _text(self.left, 326, words, "tick")]

    def shade(self, floor: Points) -> str:
        """Return the shaded area that no design can reach."""
        edge = [self(x, y) for x, y in floor if y > 0]
        if not edge:
            return ""
        around = [*edge, (edge[-1][0], self.bottom), (edge[0][0], self.bottom)]
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in around)
        title = "<title>No design can be better.</title>"
        return f'<polygon points="{outline}" class="floor">{title}</polygon>'


def curves(lines: Mapping[str, Points], floor: Points, at: float, title: str) -> Markup:
    """Return lines by ε on logarithmic axes, with the unreachable area shaded and one ε marked."""
    points = [*(point for line in lines.values() for point in line), *floor]
    if not points:
        return Markup("")
    plane = _Plane(points)
    parts = [*plane.grid(), plane.shade(floor)]
    labels: list[float] = []
    for number, (name, line) in enumerate(lines.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (plane(*point) for point in line))
        kind = f"s{number % 5}"
        told = f"<title>{escape(name)}</title>"
        parts.append(f'<polyline points="{path}" class="series {kind}">{told}</polyline>')
        wanted = plane(*line[-1])[1] + 4
        while any(abs(wanted - other) < 14 for other in labels):
            wanted -= 14
        labels.append(wanted)
        parts.append(_text(WIDTH - 144, wanted, _short(name, 22), f"label {kind}"))
    if plane.low <= math.log(at) <= plane.high:
        across = plane(at, math.exp(plane.least))[0]
        parts.append(_line(across, 12, across, plane.bottom, "cursor"))
        parts.append(_text(across + 4, 16, f"ε = {at:.3g}", "cursor-words"))
    return _svg(WIDTH, 330, title, parts)


def network(
    parents: Mapping[str, Sequence[str]], strength: Mapping[tuple[str, str], float], address: str
) -> Markup:
    """Return a network: boxes in layers, and links that open a test; stronger links are wider."""
    structure = {name: tuple(given) for name, given in parents.items()}
    widths = {name: max(2.0, 0.17 * len(_short(name)) + 0.9) for name in structure}
    layers, segments = assign_layers(structure)
    layers = order_layers(layers, segments)
    across = coordinates(layers, segments, widths)
    low = min(across[spot] - (widths[spot] if isinstance(spot, str) else 0) / 2 for spot in across)
    high = max(across[spot] + (widths[spot] if isinstance(spot, str) else 0) / 2 for spot in across)
    unit = min(60.0, (WIDTH - 20) / max(high - low, 1))
    level = {spot: number for number, layer in enumerate(layers) for spot in layer}
    edge = max(10.0, (WIDTH - (high - low) * unit) / 2)
    places = {spot: (edge + (across[spot] - low) * unit, 30 + 84 * level[spot]) for spot in across}
    most = max(strength.values(), default=1.0) or 1.0
    parts = [ARROW]
    for child, given in structure.items():
        for parent in given:
            bends = [(parent, child, at) for at in range(level[parent] + 1, level[child])]
            stops = [places[parent], *(places[bend] for bend in bends), places[child]]
            (ax, ay), (bx, by) = stops[0], stops[-1]
            stops[0], stops[-1] = (ax, ay + 16), (bx, by - 17)
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in stops)
            value = strength.get((parent, child), 0.0)
            thick = 1 + round(4 * max(value, 0.0) / most)
            words = f"{parent} to {child}, strength {value:.4g}"
            target = escape(address.format(parent=_quote_name(parent), child=_quote_name(child)))
            parts.append(
                f'<a href="{target}" aria-label="{escape(words)}"><title>{escape(words)}</title>'
                f'<path d="{path}" class="touch"/>'
                f'<path d="{path}" class="link w{thick}" marker-end="url(#arrow)"/></a>'
            )
    for name in structure:
        x, y = places[name]
        half = widths[name] * unit / 2
        box = f'x="{x - half:.1f}" y="{y - 15:.1f}" width="{2 * half:.1f}" height="30" rx="8"'
        parts.append(f'<rect {box} class="node"/>' + _text(x, y + 4, _short(name), "", "middle"))
    return Markup(  # noqa: S704  (every word in it is escaped)
        f'<svg viewBox="0 0 {WIDTH} {60 + 84 * (len(layers) - 1)}" role="group" '
        f'aria-label="Network; each link leads to its test">{"".join(parts)}</svg>'
    )


def _quote_name(name: str) -> str:
    return quote(name, safe="")
