"""Pictures and pages: how they look, wherever they stand; reports of the demo and of anonymity."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.report.style import (
        ESTIMATE,
        GRID,
        INK,
        MASK_TINT,
        MUTED,
        NAIVE,
        SERIES,
        canvas,
        filled,
        house_style,
        open_frame,
        png,
        svg,
    )

__all__ = [
    "ESTIMATE",
    "GRID",
    "INK",
    "MASK_TINT",
    "MUTED",
    "NAIVE",
    "SERIES",
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
        "style": [
            "ESTIMATE",
            "GRID",
            "INK",
            "MASK_TINT",
            "MUTED",
            "NAIVE",
            "SERIES",
            "canvas",
            "filled",
            "house_style",
            "open_frame",
            "png",
            "svg",
        ],
    },
)
