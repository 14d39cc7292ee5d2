"""Colours and type of all plots."""

INK, MUTED, LINE, GRID, PAPER = "#1d2733", "#65717f", "#8b97a5", "#dde2e8", "#fffffe"
# colours of estimates, of naive or doubtful values, and of disguised variables
ESTIMATE, NAIVE, MASK = "#1a6fb5", "#d2541b", "#6b4696"
ESTIMATE_TINT, MASK_TINT = "#f3f7fb", "#ece4f5"
# curves in one plot; line styles distinguish them in print
SERIES = ("#1a6fb6", "#0f8a6d", "#b5791b", "#c23b72", "#6b4697")
STYLES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))
# areas and dots of categories: the palette of Okabe & Ito, safe for colour-blind readers
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")

TYPE = {
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
