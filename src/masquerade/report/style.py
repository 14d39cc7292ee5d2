"""What all pictures share: colours, type, and how a figure becomes SVG for a page or PNG for a file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID, PAPER = "#1d2733", "#65717f", "#dde2e8", "#fffffe"
ESTIMATE, NAIVE, MASK, MASK_TINT = "#1a6fb5", "#d2541b", "#6b4696", "#ece4f5"
SERIES = ("#1a6fb6", "#0f8a6d", "#b5791b", "#c23b72", "#6b4697")

# a page gives these names colours for light and for dark
CSS_NAMES: Mapping[str, str] = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    ESTIMATE: "estimate",
    NAIVE: "naive",
    MASK: "mask",
    MASK_TINT: "mask-tint",
    **{colour: f"series-{i}" for i, colour in enumerate(SERIES)},
}

TYPE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "path",
    "svg.hashsalt": "masquerade",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the report's colours and type; matplotlib's own settings come back afterwards."""
    # no interactive window is ever opened: figures are made through the object interface, without pyplot
    with mpl.rc_context(TYPE):
        yield


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that arranges itself."""
    return Figure(figsize=(width, height), layout="constrained")


def open_frame(axes: Axes) -> None:
    """Leave only the axes that are read, with a quiet grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True)
    axes.tick_params(length=0)


def svg(figure: Figure, name: str) -> str:
    """Return a figure as SVG to stand in a page: colours by name, identifiers that begin with `name`."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\g<1>#{name}-", text)
    for colour, variable in CSS_NAMES.items():
        text = text.replace(colour, f"var(--{variable})")
    for size in ("width", "height"):  # the page decides how large it is
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", text, count=2).replace("xlink:href", "href")


def png(figure: Figure, dots_per_inch: int = 160) -> bytes:
    """Return a figure as PNG on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
