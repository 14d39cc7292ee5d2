"""Display of a policy as text, table, notebook output and plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.util.display import html_of
from masquerade.core.util.formatting import gamma_words, log_gamma, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def _as_float(gamma: Any) -> float:
    """Return γ as a float; infinite if it is too large for one."""
    try:
        return float(gamma)
    except OverflowError:
        return float("inf")


class PolicyOverview:
    """Methods that show a policy: its variables, the γ of each variable, and the γ of a whole record."""

    @printable
    def summary(self: Any) -> str:
        """Return the privacy of each variable and of a whole record as text.

        Returns
        -------
        str
            One line per variable.
        """
        frame = self.to_frame()
        body = frame.to_string(index=False, float_format=lambda x: f"{x:.3g}", na_rep="–")
        limit = "no limit is stated" if self.limit is None else f"limit {self.limit}"
        revealed = gamma_words(self.record_gamma) if self.disguised else "nothing is disguised"
        return f"{self!r}\n{body}\nwhole record: {revealed}; {limit}"

    def to_frame(self: Any) -> pd.DataFrame:
        """Return a frame with one row per variable.

        Returns
        -------
        DataFrame
            Columns variable, categories (their number), released, gamma and epsilon. The columns gamma and
            epsilon describe the report that contains the variable, in the stratum with the largest values.
        """
        import pandas as pd  # noqa: PLC0415  (needed for frames only)

        gammas: dict[str, Any] = {}
        for stratum in self.strata or (None,):
            for group in self.groups_of(stratum):
                gamma = group.channel.gamma if group.response is None else group.response.gamma
                for name in group.names if group.disguised else ():
                    gammas[name] = max(gamma, gammas.get(name, gamma))
        rows = []
        for variable in self.schema.variables:
            together = [name for name in self.group(variable.name).names if name != variable.name]
            released = "disguised" if variable.name in self.disguised else "clear"
            if together and released == "disguised":
                released = f"with {', '.join(together[:3])}{' …' if len(together) > 3 else ''}"
            gamma = gammas.get(variable.name)
            values = (float("nan"), float("nan")) if gamma is None else (_as_float(gamma), log_gamma(gamma))
            rows.append((variable.name, len(variable), released, *values))
        return pd.DataFrame(rows, columns=["variable", "categories", "released", "gamma", "epsilon"])

    def plot(self: Any, ax: Axes | None = None) -> Axes:
        """Plot the ε of every disguised variable, and a line at the ε of a whole record.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw on. By default a new figure.

        Returns
        -------
        Axes
            The axes.
        """
        frame = self.to_frame().dropna(subset=["epsilon"])
        mark = log_gamma(self.record_gamma) if self.disguised else None
        return dot_plot(
            frame["variable"].tolist(),
            {"": Dots(frame["epsilon"].to_numpy())},
            ax,
            xlabel="ε of a report; the line is a whole record",
            title=repr(self),
            mark=mark if mark is not None and mark < float("inf") else None,
        )

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks."""
        return html_of(self)
