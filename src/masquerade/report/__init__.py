"""Pictures and pages: how they look, wherever they stand; reports of the demo and of anonymity."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.core.palette import ESTIMATE as ESTIMATE
    from masquerade.core.palette import GRID as GRID
    from masquerade.core.palette import INK as INK
    from masquerade.core.palette import MASK_TINT as MASK_TINT
    from masquerade.core.palette import MUTED as MUTED
    from masquerade.core.palette import NAIVE as NAIVE
    from masquerade.core.palette import SERIES as SERIES
    from masquerade.report.breach_curves import breach_plot as breach_plot
    from masquerade.report.style import canvas as canvas
    from masquerade.report.style import filled as filled
    from masquerade.report.style import house_style as house_style
    from masquerade.report.style import open_frame as open_frame
    from masquerade.report.style import png as png
    from masquerade.report.style import svg as svg

__getattr__, __dir__, __all__ = lazy_exports(__name__)
