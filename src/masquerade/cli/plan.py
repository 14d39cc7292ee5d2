"""`masquerade plan`: the best policy for a purpose, its errors, and the number of people needed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from masquerade.cli import output
from masquerade.cli.options import POLICY_ENDINGS, Json, Out, Overwrite, argument, flag, option
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.plan.person_budget import LimitSpending
    from masquerade.plan.result import Plan


def command(
    variables: Annotated[
        str,
        argument(
            "The variables: a policy file or a draft (only its categories are read), or a data file (only "
            "the names of its columns and their categories are read).",
            "VARIABLES",
        ),
    ],
    *,
    epsilon: Annotated[float | None, option("Bound on ε.", "E")] = None,
    gamma: Annotated[float | None, option("Bound on γ = e^ε.", "G")] = None,
    breach: Annotated[
        str | None,
        option("Bound on beliefs: with 5%:50% a belief of 5% rises to at most 50%.", "BEFORE:AFTER"),
    ] = None,
    per: Annotated[
        Literal["record", "variable"], option("Apply the bound to a whole record, or to each variable.")
    ] = "record",
    queries: Annotated[
        str,
        option(
            "Tables to count: singles, pairs, 'smoker×region, age' (or smoker*region), or a learner: "
            "structure(max_parents=2), naive_bayes(target), rules(size=3), tree(target).",
            "QUERIES",
        ),
    ] = "pairs",
    n: Annotated[int | None, option("Number of people who will answer.", "PEOPLE", "--n")] = None,
    error: Annotated[
        str | None, option("Half-width of the 95% interval of a share: 3% or 0.03 is ±3 points.", "SHARE")
    ] = None,
    detect: Annotated[
        float | None, option("Size φ of an association between two variables that must be detected.", "PHI")
    ] = None,
    power: Annotated[float, option("Power with which the association of --detect must be detected.")] = 0.8,
    rule: Annotated[Literal["test", "bic"], option("Detect by a test at 5%, or as a BIC link.")] = "test",
    prior: Annotated[
        str | None, option("File of expected shares: {smoker: [0.2, 0.8], …}; equal by default.", "FILE")
    ] = None,
    clear: Annotated[
        list[str] | None, option("A public variable that is not disguised; may be repeated.", "NAME")
    ] = None,
    counted_by: Annotated[
        str | None,
        option(
            "Compare with parties that add noise to their sums: the number of parties, and how many may "
            "collude.",
            "PARTIES:COLLUDERS",
        ),
    ] = None,
    compare: Annotated[bool, flag("Show all designs that were compared.", "--compare")] = False,
    curve: Annotated[
        bool,
        flag("With --json: add the errors of all designs by ε, and the detectable associations.", "--curve"),
    ] = False,
    out: Out = None,
    plot: Annotated[str | None, option("Write a plot (.png, .svg or .pdf).", "FILE")] = None,
    picture: Annotated[
        Literal["error", "needed", "queries", "detectable", "counting"],
        option(
            "The plot: error or people needed by ε, errors of tables, smallest detectable associations, or "
            "methods of counting."
        ),
    ] = "error",
    report: Annotated[
        str | None, option("Write a page with all plots, tables and the policy (.html).", "FILE")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Plan a survey: given two of privacy, people and error, find the third, and the best policy.

    Without a bound on privacy, the limit is 5%:50% (γ = 19) for each person.

    Example: masquerade plan variables.yaml --epsilon 1.5 --error 0.03 --n 3000 --queries singles --out
    policy.yaml
    """
    from masquerade.plan.person_budget import compare_limits  # noqa: PLC0415  (loads SciPy)
    from masquerade.plan.planner import plan as make_plan  # noqa: PLC0415  (loads SciPy)

    output.check_plot(plot, overwrite=overwrite)
    _check_out(out, json=json)
    output.check_target(out, overwrite=overwrite)
    if report is not None and not report.lower().endswith((".html", ".htm")):
        raise InputError(f"{report}: a report is a page: its name must end in .html.")
    output.check_target(report, overwrite=overwrite)
    made = make_plan(
        _variables(variables),
        privacy=_privacy(epsilon, gamma, breach),
        queries=queries,
        n=n,
        error=None if error is None else _share(error, "--error", "4%"),
        detect=None if detect is None else {"phi": detect, "power": power, "rule": rule},
        prior=prior,
        per=per,
        clear=clear or (),
        counted_by=None if counted_by is None else _parties(counted_by),
    )
    spending = compare_limits(made) if made.limit is not None else None
    for line in spending.warning_lines() if spending is not None else ():
        output.say(f"warning: {line}")
    if out is not None:
        _write(made, out, overwrite=overwrite)
    if plot is not None:
        axes = getattr(made, f"plot_{picture}")()
        output.write_whole(plot, output.picture_of(axes, plot), overwrite=overwrite)
        output.say(f"the plot is in {plot}.")
    if report is not None:
        from masquerade.report.plan import plan_html  # noqa: PLC0415  (loads matplotlib)

        output.write_whole(report, plan_html(made).encode(), overwrite=overwrite)
        output.say(f"the report is in {report}.")
    if json:
        output.emit(made.to_dict() | cost_values(spending) | (_curve(made) if curve else {}))
    elif out != "-":
        costs = [] if spending is None else ["", *spending.table_lines()]
        output.emit(output.render(*_parts(made, compare=compare), *costs))


def _parties(text: str) -> dict[str, int]:
    """Parse --counted-by: the number of parties, and the number that may collude."""
    parts = text.split(":")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--counted-by: give parties and colluders, such as 3:1. Got {text!r}.")
    return dict(zip(("parties", "colluders"), map(int, parts), strict=False))


def cost_values(spending: LimitSpending | None) -> dict[str, Any]:
    """Return the half-widths by limit and by size of the table, and the unusable tables, for JSON."""
    if spending is None:
        return {}
    costs = [
        {"limit": limit, "variables": width, "margin": margin if math.isfinite(margin) else None}
        for limit, errors in spending.costs.items()
        for width, margin in errors.items()
    ]
    return {"costs": costs, "not_usable": spending.unanswerable}


def _curve(made: Plan) -> dict[str, Any]:
    """Return the data of a plan's plots for JSON: errors by ε, and detectable associations."""
    rows = made.curve().to_dict(orient="records")
    found = [
        {"pair": list(pair), "phi": phi if math.isfinite(phi) else None}
        for pair, phi in made.detectable().items()
    ]
    known = [
        {key: value if isinstance(value, str) or math.isfinite(value) else None for key, value in row.items()}
        for row in rows
    ]
    return {"curve": known, "detectable": found}


def _parts(made: Plan, *, compare: bool) -> list[Any]:
    """Return the plan as text, with a table of all designs if `compare`."""
    parts: list[Any] = [made.explain()]
    if compare:
        parts += ["", _comparison(made)]
    return parts


def _comparison(made: Plan) -> Any:
    targeted = made.goal.targeted
    table = output.plain_table(
        f"Designs at ε = {made.epsilon:.4g}, {made.n:,} people",
        ["design"],
        [
            "± points\nworst table",
            *(["people\nneeded"] if targeted else []),
            "ε of a\nvariable",
            "ε of a\nrecord",
            "ε of published\ncounts (δ = 10⁻⁶)",
            "reports",
            "bytes",
            "above the\nleast possible",
        ],
    )
    for row in made.alternatives.to_dict(orient="records"):
        people = [f"{row['needed_n']:,.0f}"] if targeted else []
        name = row["design"] + (" ←" if row["chosen"] else "")
        table.add_row(
            name,
            f"{100 * row['margin']:.3g}",
            *people,
            f"{row['epsilon_variable']:.3g}",
            f"{row['epsilon_record']:.3g}",
            f"{row['epsilon_central']:.3g}",
            f"{row['reports']:,.0f}" if row["reports"] < 1e7 else f"{row['reports']:.1e}",
            f"{row['bytes']}",
            "–" if row["gap"] != row["gap"] else f"{row['gap'] + 1:.3g}×",
        )
    return table


def _privacy(epsilon: float | None, gamma: float | None, breach: str | None) -> dict[str, Any] | None:
    given = {"epsilon": epsilon, "gamma": gamma, "breach": breach}
    named: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if len(named) > 1:
        raise InputError(
            f"Give one of --epsilon, --gamma and --breach. Got {' and '.join(f'--{k}' for k in named)}."
        )
    if "breach" in named:
        named["breach"] = _beliefs(str(breach))
    return named or None


def _share(text: str, flag: str, example: str) -> float:
    """Parse a share, such as "4%" or "0.04"."""
    try:
        return float(text.rstrip("% ")) / (100 if "%" in text else 1)
    except ValueError:
        raise InputError(f"{flag} {text!r}: must be a share, such as {example}.") from None


def _beliefs(text: str) -> tuple[float, float]:
    """Parse two beliefs, such as "5%:50%" or "0.05:0.5"."""
    parts = text.split(":")
    try:
        before, after = (float(part.rstrip("% ")) / (100 if "%" in part else 1) for part in parts)
    except ValueError:
        raise InputError(f"--breach {text!r}: must be two beliefs, such as 5%:50%.") from None
    return before, after


def _check_out(out: str | None, *, json: bool) -> None:
    output.check_streams(out, json=json)
    if out is not None and out != "-" and not out.lower().endswith(POLICY_ENDINGS):
        raise InputError(f"{out}: a policy file ends in .yaml, .yml or .json.")


def _write(made: Plan, out: str, *, overwrite: bool) -> None:
    from masquerade.channels.policy import text as policy_text  # noqa: PLC0415

    form = policy_text.SUFFIXES[Path(out).suffix.lower()] if out != "-" else "yaml"
    output.emit(policy_text.write(made.policy_values(), form), out, overwrite=overwrite)
    if out != "-":
        output.say(f"the policy is in {out}; masquerade privacy {out} shows what it reveals.")


def _variables(path: str) -> Policy:
    """Return the variables of a policy file, a draft or a data file, without channels."""
    from masquerade.channels.policy import Policy  # noqa: PLC0415
    from masquerade.channels.policy import text as policy_text  # noqa: PLC0415

    if Path(path).suffix.lower() not in POLICY_ENDINGS:
        return _variables_of_data(path)
    values = policy_text.read(Path(path))
    entries = values.get("variables") if isinstance(values, dict) else None
    if not isinstance(entries, dict):
        raise InputError(f"{path}: lists no 'variables'; see masquerade policy init for a draft.")
    bare = {
        name: {key: value for key, value in entry.items() if key != "channel"}
        if isinstance(entry, dict)
        else entry
        for name, entry in entries.items()
    }
    try:
        return Policy.from_dict({"masquerade": values.get("masquerade", 1), "variables": bare})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _variables_of_data(path: str) -> Policy:
    """Return the variables of a data file, with the categories that occur in it."""
    from masquerade.channels.policy import Policy  # noqa: PLC0415
    from masquerade.disguising.column_summary import summaries  # noqa: PLC0415  (loads Arrow)
    from masquerade.disguising.policy_draft import draft_variables  # noqa: PLC0415
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415

    with open_batches([path]) as batches:
        draft = draft_variables(summaries(batches, text=batches.text, missing_kinds=batches.missing_kinds))
    output.say(
        f"the categories are those that occur in {path}, so a policy with them reveals which occur: give "
        "the full lists of categories instead (masquerade policy init drafts a file to edit)."
    )
    return Policy.from_dict(draft.variables())
