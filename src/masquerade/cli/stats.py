"""`masquerade stats`: percentages, differences, tests and regression from disguised (or clear) records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.data_source import Records, over_records, own_option
from masquerade.cli.options import Json, Out, Overwrite, group, option, required
from masquerade.core.errors import InputError
from masquerade.core.util.display import Shown
from masquerade.core.util.formatting import percent
from masquerade.learn.option_types import category_called, names_in

if TYPE_CHECKING:
    from masquerade.core.schema import Category, Schema, Variable

app = group("Percentages, differences, odds ratios, tests and regression, with their uncertainty.")

Where = Annotated[
    list[str] | None, option("Only records with this category; repeat for more.", "VARIABLE=CATEGORY")
]
Level = Annotated[float, option("Confidence level of the intervals.")]
Plot = Annotated[str | None, option("Draw it into this file (.png, .svg or .pdf).", "FILE")]
By = Annotated[str | None, option("Within categories of these variables.", "A,B")]
Given = Annotated[str | None, option("Within every category of these variables.", "A,B")]
Of = Annotated[str, required("The variable.", "--of", metavar="A")]
Pair = Annotated[str, required("The two variables.", "--of", metavar="A,B")]
Outcome = Annotated[str, required("The variable whose categories are counted.", metavar="A")]
Groups = Annotated[str, required("The variable whose categories are compared.", "--group", metavar="B")]
Picked = Annotated[str | None, option("The category of the outcome; the one that says yes if not given.")]
Base = Annotated[str | None, option("The category that others are compared with; the first if not given.")]
Scores = Annotated[str | None, option("Numbers for the categories, in their order.", "1,2,3")]
Adjust = Annotated[Literal["holm", "bh"], option("How p-values are adjusted for their number.")]


def command(run: Callable[..., Shown]) -> Callable[..., Shown]:
    """Make a function of a source and options a command: where records are, and where the result goes."""
    own = [p for p in signature(run, eval_str=True).parameters.values() if p.name not in ("source", "schema")]

    def given(records: Records, **typed: Any) -> None:
        kept = {name: typed.pop(name) for name in ("json", "out", "overwrite", "plot")}
        output.check_plot(kept["plot"], overwrite=kept["overwrite"])
        output.check_target(kept["out"], overwrite=kept["overwrite"])
        if kept["out"] not in {None, "-"} and not kept["json"]:
            from masquerade.report.export import check_ending  # noqa: PLC0415

            check_ending(kept["out"])
        level = typed.get("level", 0.95)
        output.refuse((not 0 < level < 1, f"--level must be between 0 and 1, such as 0.95. Got {level:g}."))
        with records.opened("counting", "figures are") as source:
            result = run(source=source, schema=records.policy.schema, **typed)
        give(result, **kept)
        if records.unsure is not None:
            output.say(records.unsure)

    parameters = [
        *own,
        own_option("records", Records),
        own_option("json", Json, default=False),
        own_option("plot", Plot, None),
        own_option("out", Out, None),
        own_option("overwrite", Overwrite, default=False),
    ]
    name = run.__name__.strip("_").replace("_", "-")
    app.command(name)(over_records(given, parameters, run.__doc__))
    return run


def give(result: Any, *, json: bool, out: str | None, overwrite: bool, plot: str | None) -> None:
    """Write a result as text or JSON, or as the ending of a file says; and draw it."""
    if plot is not None:
        if not hasattr(result, "plot"):
            raise InputError(f"A {type(result).__name__} has no picture: leave --plot out.")
        picture = output.picture_of(result.plot(), plot)
        output.write_whole(plot, picture, overwrite=overwrite)
        output.say(f"it is drawn in {plot}.")
    if out is not None and out != "-" and not json:
        from masquerade.report.export import exported  # noqa: PLC0415  (few results are exported)

        output.write_whole(out, exported(result, out), overwrite=overwrite)
        return
    output.emit(result.to_dict() if json else result.summary() + "\n", out, overwrite=overwrite)


def _conditions(texts: Sequence[str] | None, schema: Schema) -> dict[str, Category]:
    found: dict[str, Category] = {}
    for text in texts or []:
        name, separator, label = text.partition("=")
        if not separator:
            raise InputError(f"--where {text!r}: a condition is given as VARIABLE=CATEGORY.")
        variable = schema[name.strip()]
        found[variable.name] = category_called(variable, label.strip(), "--where")
    return found


def _names(text: str | None, schema: Schema, flag: str) -> tuple[str, ...]:
    return names_in(text, schema, flag) if text else ()


def _label(variable: Variable, text: str | None, flag: str) -> Category | None:
    return None if text is None else category_called(variable, text, flag)


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--scores takes numbers with commas between them. Got {text!r} instead.") from None


@command
def shares(
    *,
    source: Any,
    schema: Any,
    of: Of,
    by: By = None,
    among: Annotated[
        str | None, option("Of records with these categories only, as those who followed a design.", "A,B")
    ] = None,
    where: Where = None,
    level: Level = 0.95,
) -> Shown:
    """Percentages of a variable, of all records or of every category of others.

    Example: masquerade stats shares disguised.csv -p policy.yaml --of smoker --by region
    """
    asked = names_in(of, schema, "--of")
    given = _conditions(where, schema)
    kept = None
    if among is not None:
        if len(asked) > 1:
            raise InputError("--among lists categories of one variable: give one with --of.")
        kept = [category_called(schema[asked[0]], text.strip(), "--among") for text in among.split(",")]
    groups = _names(by, schema, "--by")
    return mq.stats.shares(source, asked, groups, among=kept, where=given, level=level)


def _effect(verb: Callable[..., Shown], source: Any, schema: Schema, typed: Mapping[str, Any]) -> Shown:
    outcome = schema[typed["outcome"]]
    groups = schema[typed["group"]]
    return verb(
        source,
        outcome.name,
        groups.name,
        category=_label(outcome, typed["category"], "--category"),
        reference=_label(groups, typed["reference"], "--reference"),
        given=_names(typed["given"], schema, "--given"),
        where=_conditions(typed["where"], schema),
        level=typed["level"],
    )


def _effect_command(name: str, told: str) -> None:
    """Make a comparison of groups a command."""

    def run(
        *,
        source: Any,
        schema: Any,
        outcome: Outcome,
        group: Groups,
        category: Picked = None,
        reference: Base = None,
        given: Given = None,
        where: Where = None,
        level: Level = 0.95,
    ) -> Shown:
        typed: dict[str, Any] = {
            "outcome": outcome,
            "group": group,
            "category": category,
            "reference": reference,
        }
        typed |= {"given": given, "where": where, "level": level}
        return _effect(getattr(mq.stats, name), source, schema, typed)

    flags = "--outcome smoker --group region"
    run.__name__ = name
    run.__doc__ = (
        f"{told}\n\nExample: masquerade stats {name.replace('_', '-')} disguised.csv -p policy.yaml {flags}"
    )
    command(run)


_effect_command("difference", "Differences of percentages between groups, with intervals and p-values.")
_effect_command("ratio", "Ratios of percentages between groups (relative risks).")
_effect_command("odds_ratio", "Odds ratios between groups, in every category of others if there are any.")


@command
def mantel_haenszel(
    *,
    source: Any,
    schema: Any,
    outcome: Outcome,
    group: Groups,
    given: Annotated[str, required("The strata.", metavar="A,B")],
    category: Picked = None,
    reference: Base = None,
    where: Where = None,
    level: Level = 0.95,
) -> Shown:
    """Estimate the odds ratio that all strata share, and test whether they do.

    Example: masquerade stats mantel-haenszel disguised.csv -p policy.yaml --outcome smoker --group sex
    --given region
    """
    return _effect(mq.stats.mantel_haenszel, source, schema, locals())


@command
def independence(
    *,
    source: Any,
    schema: Any,
    pair: Pair,
    given: Given = None,
    where: Where = None,
    power: Annotated[
        float | None,
        option("Also say how many records find an association like this one with this chance.", "SHARE"),
    ] = None,
) -> Shown:
    """Test whether two variables are independent, within every category of others if there are any.

    Example: masquerade stats independence disguised.csv -p policy.yaml --of smoker,region
    """
    first, second = _pair(pair, schema)
    asked = _names(given, schema, "--given")
    found = mq.stats.independence(source, first, second, given=asked, where=_conditions(where, schema))
    if power is None:
        return found
    n = found.needed(power)
    said = (
        "No association is estimated at all: no number of records can be named that would find it."
        if n is None
        else f"As strong as estimated here, it is found with a chance of {percent(power)} in {n:,} records."
    )
    return replace(found, notes=(*found.notes, said))


def _pair(text: str, schema: Schema) -> tuple[str, str]:
    names = names_in(text, schema, "--of")
    if len(names) != 2:
        raise InputError(f"--of takes two variables, as A,B. Got {text!r} instead.")
    return names[0], names[1]


@command
def associations(
    *,
    source: Any,
    schema: Any,
    of: Annotated[str | None, option("All pairs with this variable; all pairs if not given.", "A")] = None,
    given: Given = None,
    where: Where = None,
    adjust: Adjust = "holm",
) -> Shown:
    """Test all pairs of variables, or all with one, with p-values adjusted for their number.

    Example: masquerade stats associations disguised.csv -p policy.yaml --of smoker
    """
    asked = _names(given, schema, "--given")
    found = _conditions(where, schema)
    return mq.stats.associations(source, of, given=asked, where=found, method=adjust)


@command
def trend(
    *,
    source: Any,
    schema: Any,
    outcome: Outcome,
    over: Annotated[str, required("The ordered variable.", metavar="B")],
    category: Picked = None,
    scores: Scores = None,
    where: Where = None,
) -> Shown:
    """Test whether an outcome rises or falls along an ordered variable (Cochran and Armitage).

    Example: masquerade stats trend disguised.csv -p policy.yaml --outcome smoker --over age
    """
    picked = _label(schema[outcome], category, "--category")
    found = _conditions(where, schema)
    return mq.stats.trend(source, outcome, over, category=picked, scores=_numbers(scores), where=found)


@command
def marginal_homogeneity(
    *,
    source: Any,
    schema: Any,
    pair: Pair,
    where: Where = None,
) -> Shown:
    """Test whether two variables with the same categories are distributed alike (McNemar, Stuart).

    Example: masquerade stats marginal-homogeneity disguised.csv -p policy.yaml --of before,after
    """
    return mq.stats.marginal_homogeneity(source, *_pair(pair, schema), where=_conditions(where, schema))


@command
def mean(
    *,
    source: Any,
    schema: Any,
    of: Of,
    by: By = None,
    scores: Scores = None,
    where: Where = None,
    level: Level = 0.95,
) -> Shown:
    """Means of a variable whose categories are numbers, bins, or have scores.

    Example: masquerade stats mean disguised.csv -p policy.yaml --of age --by region
    """
    asked, found = _names(by, schema, "--by"), _conditions(where, schema)
    return mq.stats.mean(source, of, asked, scores=_numbers(scores), where=found, level=level)


MODELS: dict[str, str] = {
    "logistic": "logistic",
    "multinomial": "multinomial",
    "proportional-odds": "proportional_odds",
    "poisson": "poisson",
    "linear": "linear",
}


@command
def regress(
    *,
    source: Any,
    schema: Any,
    formula: Annotated[str, required("The outcome and its terms.", metavar="'Y ~ A + B'")],
    model: Annotated[
        Literal["logistic", "multinomial", "proportional-odds", "poisson", "linear"],
        option("The kind of regression."),
    ] = "logistic",
    reference: Annotated[
        list[str] | None, option("What others are compared with; repeat for more.", "VARIABLE=CATEGORY")
    ] = None,
    where: Where = None,
) -> Shown:
    """Fit a regression; any of outcome and covariates may be disguised.

    Example: masquerade stats regress disguised.csv -p policy.yaml --formula 'smoker ~ region + sex'
    """
    first, found = _conditions(reference, schema), _conditions(where, schema)
    verb = getattr(mq.stats, MODELS[model])
    return verb(source, formula, reference=first, where=found)  # type: ignore[no-any-return]


@command
def loglinear(
    *,
    source: Any,
    schema: Any,
    model: Annotated[str, required("The terms, such as 'a*b + c'.", metavar="'A*B + C'")],
    where: Where = None,
) -> Shown:
    """Fit a log-linear model and tell how well it fits the reports.

    Example: masquerade stats loglinear disguised.csv -p policy.yaml --model 'smoker*region + sex'
    """
    return mq.stats.loglinear(source, model, where=_conditions(where, schema))


@command
def quantile(
    *,
    source: Any,
    schema: Any,
    of: Of,
    q: Annotated[float, option("Which quantile; the median if not given.", "SHARE", "--q")] = 0.5,
    by: By = None,
    where: Where = None,
    level: Level = 0.95,
) -> Shown:
    """Estimate a quantile of an ordered variable, interpolated within bins.

    Example: masquerade stats quantile disguised.csv -p policy.yaml --of age
    """
    asked, found = _names(by, schema, "--by"), _conditions(where, schema)
    return mq.stats.quantile(source, of, q, asked, where=found, level=level)
