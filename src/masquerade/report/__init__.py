"""Plots and HTML pages: their style, and the reports of the demo, plans, records and anonymity."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.core.plots.palette import ESTIMATE as ESTIMATE
    from masquerade.core.plots.palette import GRID as GRID
    from masquerade.core.plots.palette import INK as INK
    from masquerade.core.plots.palette import MASK_TINT as MASK_TINT
    from masquerade.core.plots.palette import MUTED as MUTED
    from masquerade.core.plots.palette import NAIVE as NAIVE
    from masquerade.core.plots.palette import SERIES as SERIES
    from masquerade.core.plots.style import canvas as canvas
    from masquerade.core.plots.style import house_style as house_style
    from masquerade.core.plots.style import open_frame as open_frame
    from masquerade.core.plots.style import png as png
    from masquerade.core.plots.style import svg as svg
    from masquerade.report.breach_plot import breach_plot as breach_plot
    from masquerade.report.pages import render_template as render_template

__getattr__, __dir__, __all__ = lazy_exports(__name__)
