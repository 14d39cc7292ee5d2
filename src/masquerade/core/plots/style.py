"""Plot style: type and colours, SVG for pages and PNG for files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from masquerade.core.plots import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# pages define these CSS variables for light and dark mode
CSS_NAMES: Mapping[str, str] = {
    palette.INK: "ink",
    palette.MUTED: "muted",
    palette.LINE: "line",
    palette.GRID: "grid",
    palette.PAPER: "paper",
    palette.ESTIMATE: "estimate",
    palette.ESTIMATE_TINT: "estimate-tint",
    palette.NAIVE: "naive",
    palette.MASK: "mask",
    palette.MASK_TINT: "mask-tint",
    **{colour: f"series-{i}" for i, colour in enumerate(palette.SERIES)},
}

POINTS_PER_INCH = 72  # resolution of SVG, at which texts are measured


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with masquerade's colours and type; matplotlib's settings are restored afterwards."""
    import matplotlib as mpl  # noqa: PLC0415  (slow to load)

    # figures are created without pyplot, so no window ever opens
    with mpl.rc_context(palette.TYPE):  # type: ignore[arg-type]
        yield


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, with constrained layout."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to load)

    return Figure(figsize=(width, height), layout="constrained")


def open_frame(axes: Axes) -> None:
    """Remove the top and right spines and the ticks, and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True)
    axes.tick_params(length=0)


def svg(figure: Figure, name: str) -> str:
    """Return a figure as inline SVG: colours as CSS variables, ids prefixed with `name`."""
    buffer = io.StringIO()
    _lay_out(figure)
    # transparent, because the page's background may be dark
    figure.savefig(
        buffer, format="svg", facecolor="none", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\g<1>#{name}-", text)
    for colour, variable in CSS_NAMES.items():
        text = text.replace(colour, f"var(--{variable})")
    for size in ("width", "height"):  # the page sets the size
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", text, count=2).replace("xlink:href", "href")


def _lay_out(figure: Figure) -> None:
    """Lay a figure out for SVG once, and remove its layout engine.

    With an engine, even one that does nothing, saving would draw all of the figure a second time.
    """
    import matplotlib as mpl  # noqa: PLC0415  (slow to load)
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415  (slow to load)

    engine = figure.get_layout_engine()
    if engine is None:
        return
    canvas, dots_per_inch = figure.canvas, figure.dpi
    FigureCanvasSVG(figure)
    figure.dpi = POINTS_PER_INCH
    engine.execute(figure)
    figure.set_canvas(canvas)
    figure.dpi = dots_per_inch
    with mpl.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)


def png(figure: Figure, dots_per_inch: int = 160) -> bytes:
    """Return a figure as PNG on a white background."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
