"""Pictures and pages: how they look, wherever they stand; reports of the demo and of anonymity."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.core.palette import ESTIMATE, GRID, INK, MASK_TINT, MUTED, NAIVE, SERIES
    from masquerade.report.breach_curves import breach_plot
    from masquerade.report.style import canvas, filled, house_style, open_frame, png, svg

__all__ = [
    "ESTIMATE",
    "GRID",
    "INK",
    "MASK_TINT",
    "MUTED",
    "NAIVE",
    "SERIES",
    "breach_plot",
    "canvas",
    "filled",
    "house_style",
    "open_frame",
    "png",
    "svg",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "masquerade.core.palette": [name for name in __all__ if name.isupper()],
        "breach_curves": ["breach_plot"],
        "style": ["canvas", "filled", "house_style", "open_frame", "png", "svg"],
    },
)
