"""`masquerade show`: the summary, plot or tables of a saved model."""

from __future__ import annotations

import math
from typing import Annotated, Any

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.options import Json, Out, Overwrite, argument, flag, option
from masquerade.core.errors import InputError
from masquerade.learn.option_types import category_called, variable_named

FRAMES = (".csv", ".tsv", ".xlsx", ".md", ".tex", ".html", ".htm")


def command(
    model: Annotated[str, argument("A model saved by `masquerade learn --out`.", "MODEL.json")],
    *,
    json: Json = False,
    table: Annotated[
        bool, flag("With --json: print the tables of the model, with intervals if it has any.", "--table")
    ] = False,
    query: Annotated[
        str | None,
        option("For a network: show the distribution of variables, given others.", "A | B=x, C=y"),
    ] = None,
    plot: Annotated[str | None, option("Plot the model into this file (.png, .svg or .pdf).", "FILE")] = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Show a saved model: its summary, its plot, or a table of it for a paper (.tex, .md, .html, .csv, …).

    A network answers --query "smoker | cough=yes" with the distribution of smoker among those who cough, with
    standard errors if the network was fitted with --method likelihood or composite.

    Example: masquerade show model.json --plot model.png
    """
    from masquerade.report.export import check_ending, export_result  # noqa: PLC0415  (few results are exported)

    output.check_plot(plot, overwrite=overwrite)
    output.check_target(out, overwrite=overwrite)
    named = out is not None and out != "-"
    if named and not json:
        check_ending(str(out))
    found: Any = mq.learn.load(model)
    if query is not None:
        if table or plot is not None:
            raise InputError("--query shows one distribution: leave --table and --plot out.")
        found = _distribution(found, query, model)
    wanted = named and not json and str(out).lower().endswith(FRAMES)
    if (table and not _frames(found)) or (wanted and not hasattr(found, "to_frame")):
        raise InputError(f"{model}: a {type(found).__name__} is not a table; its summary is text (.txt).")
    if plot is not None:
        if not hasattr(found, "plot"):
            raise InputError(f"{model}: a {type(found).__name__} has no plot.")
        output.write_whole(plot, output.picture_of(found.plot(), plot), overwrite=overwrite)
        output.say(f"the plot is in {plot}.")
    if named and not json:
        output.write_whole(str(out), export_result(found, str(out)), overwrite=overwrite)
    else:
        values = _tables(found) if table else found.to_dict()
        output.emit(values if json else f"{found.summary()}\n", out, overwrite=overwrite)


def _distribution(model: Any, text: str, path: str) -> Any:
    """Return the distribution that a query such as 'A | B=x, C=y' names."""
    if not isinstance(model, mq.learn.BayesianNetwork):
        raise InputError(f"{path}: only a network has distributions to query, not a {type(model).__name__}.")
    left, _, right = text.partition("|")
    targets = [name.strip() for name in left.split(",") if name.strip()]
    evidence = {}
    for pair in filter(None, (part.strip() for part in right.split(","))):
        name, equals, label = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError(f"--query: evidence is written VARIABLE=category. Got {pair!r} instead.")
        variable = variable_named(name, model.schema, "--query")
        evidence[name] = category_called(variable, label, "--query")
    return model.project().query(targets, evidence)


def _frames(model: Any) -> list[tuple[str, Any]]:
    """Return the titles and frames of a model, one per table."""
    if isinstance(model, mq.learn.BayesianNetwork):
        return [(table.summary().partition("\n")[0], table.to_frame()) for table in model.tables]
    if isinstance(model, mq.learn.LinearClassifier):
        return [(type(model).__name__, model.coefficient_frame())]
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
    """Convert a value of a frame for JSON: sets to sorted text, infinite numbers and NaN to None."""
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if hasattr(value, "item"):
        value = value.item()
    return value if not isinstance(value, float) or math.isfinite(value) else None
