"""`masquerade show`: a saved model, read and drawn."""

from __future__ import annotations

from typing import Annotated, Any

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.options import Json, Out, Overwrite, argument, option
from masquerade.core.errors import InputError


def command(
    model: Annotated[str, argument("A model that `masquerade learn --out` saved.", "MODEL.json")],
    *,
    json: Json = False,
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
    if plot is not None:
        if not hasattr(found, "plot"):
            raise InputError(f"{model}: a {type(found).__name__} has no picture.")
        output.write_whole(plot, output.picture_of(found.plot(), plot), overwrite=overwrite)
        output.say(f"it is drawn in {plot}.")
    if named and not json:
        output.write_whole(str(out), exported(found, str(out)), overwrite=overwrite)
    else:
        output.emit(found.to_dict() if json else f"{found.summary()}\n", out, overwrite=overwrite)
