"""`masquerade show`: a saved model, read and drawn."""

from __future__ import annotations

import math
from typing import Annotated, Any

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.options import Json, Out, Overwrite, argument, flag, option
from masquerade.core.errors import InputError

FRAMES = (".csv", ".tsv", ".xlsx", ".md", ".tex", ".html", ".htm")


def command(
    model: Annotated[str, argument("A model that `masquerade learn --out` saved.", "MODEL.json")],
    *,
    json: Json = False,
    table: Annotated[
        bool, flag("With --json: the tables of the model, with intervals where it has them.", "--table")
    ] = False,
    plot: Annotated[str | None, option("Draw it into this file (.png, .svg or .pdf).", "FILE")] = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Show a saved model: its summary, its picture, or a table of it for a paper (.tex, .md, .html, .csv, …).

    Example: masquerade show model.json --plot model.png
    """
    from masquerade.report.export import check_ending, exported  # noqa: PLC0415  (few results are exported)

    output.check_plot(plot, overwrite=overwrite)
    output.check_target(out, overwrite=overwrite)
    named = out is not None and out != "-"
    if named and not json:
        check_ending(str(out))
    found: Any = mq.learn.load(model)
    wanted = named and not json and str(out).lower().endswith(FRAMES)
    if (table and not _frames(found)) or (wanted and not hasattr(found, "to_frame")):
        raise InputError(f"{model}: a {type(found).__name__} is no table; its summary is text (.txt).")
    if plot is not None:
        if not hasattr(found, "plot"):
            raise InputError(f"{model}: a {type(found).__name__} has no picture.")
        output.write_whole(plot, output.picture_of(found.plot(), plot), overwrite=overwrite)
        output.say(f"it is drawn in {plot}.")
    if named and not json:
        output.write_whole(str(out), exported(found, str(out)), overwrite=overwrite)
    else:
        values = _tables(found) if table else found.to_dict()
        output.emit(values if json else f"{found.summary()}\n", out, overwrite=overwrite)


def _frames(model: Any) -> list[tuple[str, Any]]:
    """Return the frames of a model with their titles, one for every table that it has."""
    if isinstance(model, mq.learn.BayesianNetwork):
        return [(table.summary().partition("\n")[0], table.to_frame()) for table in model.tables]
    return [(type(model).__name__, model.to_frame())] if hasattr(model, "to_frame") else []


def _tables(model: Any) -> list[dict[str, Any]]:
    return [
        {
            "title": title,
            "rows": [dict(zip(frame, map(_plain, row), strict=True)) for row in frame.to_numpy()],
        }
        for title, frame in _frames(model)
    ]


def _plain(value: Any) -> Any:
    """Return a value of a frame for JSON: sets as texts in order, numbers that are none as nothing."""
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if hasattr(value, "item"):
        value = value.item()
    return value if not isinstance(value, float) or math.isfinite(value) else None
