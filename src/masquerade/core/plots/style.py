"""The style of plots: type and colours, figures as SVG for a page or PNG for a file."""

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

# a page gives these names colours for light and for dark
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


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house's colours and type; matplotlib's own settings come back afterwards."""
    import matplotlib as mpl  # noqa: PLC0415  (slow to load)

    # no interactive window is ever opened: figures are made through the object interface, without pyplot
    with mpl.rc_context(palette.TYPE):  # type: ignore[arg-type]
        yield


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that arranges itself."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to load)

    return Figure(figsize=(width, height), layout="constrained")


def open_frame(axes: Axes) -> None:
    """Leave only the axes that are read, with a quiet grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True)
    axes.tick_params(length=0)


def svg(figure: Figure, name: str) -> str:
    """Return a figure as SVG to stand in a page: colours by name, identifiers that begin with `name`."""
    buffer = io.StringIO()
    # the ground is the page's, which may be dark
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
    for size in ("width", "height"):  # the page decides how large it is
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", text, count=2).replace("xlink:href", "href")


def png(figure: Figure, dots_per_inch: int = 160) -> bytes:
    """Return a figure as PNG on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
