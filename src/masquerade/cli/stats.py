"""`masquerade stats`: percentages, differences, tests and regression from disguised (or clear) records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.data_source import RecordOptions, conditions_in, keyword_option, over_records
from masquerade.cli.options import Json, Out, Overwrite, group, option, required_option
from masquerade.cli.regression_views import add_tests, view_of
from masquerade.core.errors import InputError
from masquerade.core.util.display import Shown
from masquerade.core.util.formatting import percent
from masquerade.learn.option_types import category_called, names_in

if TYPE_CHECKING:
    import pandas as pd

    from masquerade.core.schema import Category, Schema, Variable

app = group("Estimate percentages, differences and odds ratios, run tests, and fit regressions.")

Where = Annotated[
    list[str] | None, option("Only records with this category; may be repeated.", "VARIABLE=CATEGORY")
]
Level = Annotated[float, option("Confidence level of the intervals.")]
Plot = Annotated[str | None, option("Plot the result into this file (.png, .svg or .pdf).", "FILE")]
By = Annotated[str | None, option("Group by these variables.", "A,B")]
Given = Annotated[str | None, option("Within every category of these variables.", "A,B")]
Drivers = Annotated[
    str | None, option("Variables that missing answers depend on, for --missing at-random.", "A,B")
]
Of = Annotated[str, required_option("The variable.", "--of", metavar="A")]
Pair = Annotated[str, required_option("The two variables.", "--of", metavar="A,B")]
Outcome = Annotated[str, required_option("The variable whose categories are counted.", metavar="A")]
Groups = Annotated[
    str, required_option("The variable whose categories are compared.", "--group", metavar="B")
]
Picked = Annotated[str | None, option("The category of the outcome; by default the category that means yes.")]
Base = Annotated[str | None, option("The category that others are compared with; by default the first.")]
Scores = Annotated[str | None, option("Numbers for the categories, in their order.", "1,2,3")]
Adjust = Annotated[Literal["holm", "bh"], option("Adjustment of p-values for multiple tests.")]


def command(run: Callable[..., Shown]) -> Callable[..., Shown]:
    """Register a function of a source and options as a command, with options for records and output."""
    every = signature(run, eval_str=True).parameters
    own = [p for p in every.values() if p.name not in ("source", "schema", "overwrite")]

    def run_on(records: RecordOptions, **typed: Any) -> None:
        kept = {name: typed.pop(name) for name in ("json", "out", "overwrite", "plot")}
        output.check_plot(kept["plot"], overwrite=kept["overwrite"])
        output.check_target(kept["out"], overwrite=kept["overwrite"])
        if kept["out"] not in {None, "-"} and not kept["json"]:
            from masquerade.report.export import check_ending  # noqa: PLC0415

            check_ending(kept["out"])
        if "overwrite" in every:  # the command itself writes a file
            typed["overwrite"] = kept["overwrite"]
        level = typed.get("level", 0.95)
        output.refuse((not 0 < level < 1, f"--level must be between 0 and 1, such as 0.95. Got {level:g}."))
        with records.open_source("counting", "figures are") as source:
            result = run(source=source, schema=records.policy.schema, **typed)
        give(result, **kept)
        if records.origin_note is not None:
            output.say(records.origin_note)

    parameters = [
        *own,
        keyword_option("records", RecordOptions),
        keyword_option("json", Json, default=False),
        keyword_option("plot", Plot, None),
        keyword_option("out", Out, None),
        keyword_option("overwrite", Overwrite, default=False),
    ]
    name = run.__name__.strip("_").replace("_", "-")
    app.command(name)(over_records(run_on, parameters, run.__doc__))
    return run


def give(result: Any, *, json: bool, out: str | None, overwrite: bool, plot: str | None) -> None:
    """Write a result as text, as JSON, or in the format of a file's suffix; plot it if requested."""
    if plot is not None:
        if not hasattr(result, "plot"):
            raise InputError(f"A {type(result).__name__} has no plot: omit --plot.")
        picture = output.picture_of(result.plot(), plot)
        output.write_whole(plot, picture, overwrite=overwrite)
        output.say(f"the plot is in {plot}.")
    if out is not None and out != "-" and not json:
        from masquerade.report.export import export_result  # noqa: PLC0415  (few results are exported)

        output.write_whole(out, export_result(result, out), overwrite=overwrite)
        return
    output.emit(result.to_dict() if json else result.summary() + "\n", out, overwrite=overwrite)


def _pairs(texts: Sequence[str] | None, flag: str, right: str = "VALUE") -> dict[str, str]:
    """Parse options of the form NAME=VALUE."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"{flag} {text!r}: it must be written as VARIABLE={right}.")
        pairs[name.strip()] = value.strip()
    return pairs


def _read_columns(path: str) -> pd.DataFrame:
    """Return the columns of a CSV file."""
    import pandas as pd  # noqa: PLC0415  (slow to import)

    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: it cannot be read as CSV ({type(error).__name__}).") from None


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
        raise InputError(f"--scores takes numbers separated by commas. Got {text!r} instead.") from None


Answers = Annotated[
    Literal["answered", "category"], option("Omit missing answers, or count them as categories.")
]


@command
def shares(
    *,
    source: Any,
    schema: Any,
    of: Of,
    by: By = None,
    among: Annotated[
        str | None,
        option("Categories of the denominator, such as yes,no to omit cheaters.", "A,B"),
    ] = None,
    where: Where = None,
    missing: Annotated[
        Literal["category", "answered", "at-random", "bounds"],
        option("Count missing answers, omit them, assume them at random given --given, or bound them."),
    ] = "category",
    given: Drivers = None,
    level: Level = 0.95,
) -> Shown:
    """Estimate percentages of a variable, of all records or within categories of other variables.

    Example: masquerade stats shares disguised.csv -p policy.yaml --of smoker --by region
    """
    asked = names_in(of, schema, "--of")
    conditions = conditions_in(where, schema)
    kept = None
    if among is not None:
        if len(asked) > 1:
            raise InputError("--among lists categories of one variable: give one with --of.")
        kept = [category_called(schema[asked[0]], text.strip(), "--among") for text in among.split(",")]
    groups = _names(by, schema, "--by")
    drivers = _names(given, schema, "--given")
    return mq.stats.shares(
        source, asked, groups, among=kept, where=conditions, missing=missing, given=drivers, level=level
    )


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
        where=conditions_in(typed["where"], schema),
        missing=typed["missing"],
        level=typed["level"],
    )


def _effect_command(name: str, text: str) -> None:
    """Register a comparison of groups as a command with a help text."""

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
        missing: Answers = "answered",
        level: Level = 0.95,
    ) -> Shown:
        typed: dict[str, Any] = {
            "outcome": outcome,
            "group": group,
            "category": category,
            "reference": reference,
        }
        typed |= {"given": given, "where": where, "missing": missing, "level": level}
        return _effect(getattr(mq.stats, name), source, schema, typed)

    flags = "--outcome smoker --group region"
    run.__name__ = name
    run.__doc__ = (
        f"{text}\n\nExample: masquerade stats {name.replace('_', '-')} disguised.csv -p policy.yaml {flags}"
    )
    command(run)


_effect_command(
    "difference", "Estimate differences of percentages between groups, with intervals and p-values."
)
_effect_command("ratio", "Estimate ratios of percentages between groups (relative risks).")
_effect_command(
    "odds_ratio", "Estimate odds ratios between groups, optionally within categories of other variables."
)


@command
def mantel_haenszel(
    *,
    source: Any,
    schema: Any,
    outcome: Outcome,
    group: Groups,
    given: Annotated[str, required_option("Variables whose combinations are the strata.", metavar="A,B")],
    category: Picked = None,
    reference: Base = None,
    where: Where = None,
    missing: Answers = "answered",
    level: Level = 0.95,
) -> Shown:
    """Estimate the odds ratio common to all strata, and test whether it is the same in all.

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
    missing: Answers = "answered",
    power: Annotated[
        float | None,
        option(
            "Also estimate the number of records needed to detect this association with this power.", "SHARE"
        ),
    ] = None,
) -> Shown:
    """Test whether two variables are independent, optionally within categories of other variables.

    Example: masquerade stats independence disguised.csv -p policy.yaml --of smoker,region
    """
    first, second = _pair(pair, schema)
    asked = _names(given, schema, "--given")
    kept = conditions_in(where, schema)
    found = mq.stats.independence(source, first, second, given=asked, where=kept, missing=missing)
    if power is None:
        return found
    n = found.sample_size(power)
    note = (
        "The estimated association is zero: no number of records detects it."
        if n is None
        else f"An association of this strength is detected with power {percent(power)} in {n:,} records."
    )
    return replace(found, notes=(*found.notes, note))


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
    of: Annotated[str | None, option("Only pairs with this variable; by default all pairs.", "A")] = None,
    given: Given = None,
    where: Where = None,
    missing: Answers = "answered",
    adjust: Adjust = "holm",
) -> Shown:
    """Test all pairs of variables, or all pairs with one variable, with adjusted p-values.

    Example: masquerade stats associations disguised.csv -p policy.yaml --of smoker
    """
    asked = _names(given, schema, "--given")
    found = conditions_in(where, schema)
    return mq.stats.associations(source, of, given=asked, where=found, missing=missing, method=adjust)


@command
def trend(
    *,
    source: Any,
    schema: Any,
    outcome: Outcome,
    over: Annotated[str, required_option("The ordered variable.", metavar="B")],
    category: Picked = None,
    scores: Scores = None,
    where: Where = None,
    missing: Answers = "answered",
) -> Shown:
    """Test whether an outcome rises or falls along an ordered variable (Cochran and Armitage).

    Example: masquerade stats trend disguised.csv -p policy.yaml --outcome smoker --over age
    """
    picked = _label(schema[outcome], category, "--category")
    found = conditions_in(where, schema)
    return mq.stats.trend(
        source, outcome, over, category=picked, scores=_numbers(scores), where=found, missing=missing
    )


@command
def marginal_homogeneity(
    *,
    source: Any,
    schema: Any,
    pair: Pair,
    where: Where = None,
    missing: Answers = "answered",
) -> Shown:
    """Test whether two variables with the same categories have the same distribution (McNemar, Stuart).

    Example: masquerade stats marginal-homogeneity disguised.csv -p policy.yaml --of before,after
    """
    first, second = _pair(pair, schema)
    kept = conditions_in(where, schema)
    return mq.stats.marginal_homogeneity(source, first, second, where=kept, missing=missing)


@command
def mean(
    *,
    source: Any,
    schema: Any,
    of: Of,
    by: By = None,
    scores: Scores = None,
    where: Where = None,
    missing: Annotated[
        Literal["answered", "category", "at-random", "bounds"],
        option("Omit missing answers, score them, assume them at random given --given, or bound them."),
    ] = "answered",
    given: Drivers = None,
    level: Level = 0.95,
) -> Shown:
    """Estimate means of a variable whose categories are numbers, bins, or have scores.

    Example: masquerade stats mean disguised.csv -p policy.yaml --of age --by region
    """
    asked, found = _names(by, schema, "--by"), conditions_in(where, schema)
    drivers = _names(given, schema, "--given")
    return mq.stats.mean(
        source, of, asked, scores=_numbers(scores), where=found, missing=missing, given=drivers, level=level
    )


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
    overwrite: bool,
    formula: Annotated[str, required_option("The outcome and its terms.", metavar="'Y ~ A + B'")],
    model: Annotated[
        Literal["logistic", "multinomial", "proportional-odds", "poisson", "linear"],
        option("The type of regression."),
    ] = "logistic",
    reference: Annotated[
        list[str] | None,
        option("The category that others are compared with; may be repeated.", "VARIABLE=CATEGORY"),
    ] = None,
    where: Where = None,
    covariates: Annotated[
        str | None,
        option(
            "A CSV file of clear columns for the formula, one row per record; may be DATA itself.", "FILE"
        ),
    ] = None,
    scores: Annotated[
        list[str] | None,
        option("Numbers for the categories of a variable; may be repeated.", "VARIABLE=1,2,3"),
    ] = None,
    method: Annotated[
        Literal["auto", "likelihood", "score"],
        option("Estimator: likelihood of the reports, or corrected score."),
    ] = "auto",
    link: Annotated[
        Literal["logit", "probit", "cloglog", "log"], option("Link of a logistic regression.")
    ] = "logit",
    items: Annotated[
        Literal["auto", "binomial", "binomial-free", "beta-binomial", "multinomial", "multinomial-free"],
        option("Distribution of the items of a list experiment."),
    ] = "auto",
    among: Annotated[
        str | None, option("Only records with these categories of the outcome.", "CATEGORY,CATEGORY")
    ] = None,
    nuisance: Annotated[
        list[str] | None,
        option(
            "Terms of another component of the model, by category or variable; may be repeated.",
            "NAME='~ A + B'",
        ),
    ] = None,
    missing: Annotated[
        Literal["answered", "at-random"],
        option("Use the people who answered, or assume missing covariates at random given --given."),
    ] = "answered",
    given: Drivers = None,
    errors: Annotated[
        Literal["observed", "expected", "outer", "sandwich"] | None,
        option("Information matrix for the standard errors."),
    ] = None,
    penalty: Annotated[
        Literal["jeffreys"] | None, option("Penalty that keeps estimates finite, and shrinks them.")
    ] = None,
    within: Annotated[
        str | None, option("Column of --covariates with the clusters, for CR2 standard errors.", "COLUMN")
    ] = None,
    test: Annotated[
        list[str] | None,
        option("Likelihood-ratio test that all terms of these variables are 0; may be repeated.", "A,B"),
    ] = None,
    against: Annotated[
        list[str] | None,
        option("Another formula to compare with: test, AIC and BIC; may be repeated.", "'Y ~ A'"),
    ] = None,
    show: Annotated[
        Literal["coefficients", "effects", "shares", "nuisance"],
        option("Coefficients, average marginal effects, shares, or coefficients of the other components."),
    ] = "coefficients",
    predict: Annotated[
        str | None, option("Predict for each row of covariates in this CSV file.", "FILE")
    ] = None,
    residuals: Annotated[
        str | None, option("Plot observed minus fitted reports into this file.", "FILE")
    ] = None,
    level: Level = 0.95,
) -> Shown:
    """Fit a regression by the likelihood of the reports; outcome and covariates may be disguised.

    Example: masquerade stats regress disguised.csv -p policy.yaml --formula 'smoker ~ region + sex'
    """
    columns = None if covariates is None else _read_columns(covariates)
    bases = _pairs(reference, "--reference", "CATEGORY")
    in_policy = [f"{name}={label}" for name, label in bases.items() if columns is None or name in schema]
    options: dict[str, Any] = {
        "reference": bases | conditions_in(in_policy, schema, "--reference"),
        "where": conditions_in(where, schema),
        "covariates": columns,
        "scores": {name: _numbers(text) for name, text in _pairs(scores, "--scores").items()},
        "method": method,
        "items": items,
        "among": [label.strip() for label in among.split(",")] if among else (),
        "nuisance": _pairs(nuisance, "--nuisance") or None,
        "missing": missing,
        "given": tuple(name.strip() for name in given.split(",")) if given else (),
        "errors": errors,
        "clusters": within,
        "penalty": penalty,
        "level": level,
    }
    if model == "logistic":
        options["link"] = link
    output.check_plot(residuals, overwrite=overwrite)
    fit = partial(getattr(mq.stats, MODELS[model]), source, **options)
    result = fit(formula)
    if residuals is not None:
        picture = output.picture_of(result.plot_residuals(), residuals)
        output.write_whole(residuals, picture, overwrite=overwrite)
        output.say(f"residuals are drawn in {residuals}.")
    if predict is not None:
        return result.predict(_read_columns(predict), level)  # type: ignore[no-any-return]
    if show != "coefficients":
        return view_of(result, show, level)
    return add_tests(result, test or (), [fit(text) for text in against or []])


@command
def loglinear(
    *,
    source: Any,
    schema: Any,
    model: Annotated[str, required_option("The terms, such as 'a*b + c'.", metavar="'A*B + C'")],
    where: Where = None,
    missing: Answers = "answered",
) -> Shown:
    """Fit a log-linear model and test how well it fits the reports.

    Example: masquerade stats loglinear disguised.csv -p policy.yaml --model 'smoker*region + sex'
    """
    return mq.stats.loglinear(source, model, where=conditions_in(where, schema), missing=missing)


@command
def quantile(
    *,
    source: Any,
    schema: Any,
    of: Of,
    q: Annotated[float, option("The quantile; by default the median.", "SHARE", "--q")] = 0.5,
    by: By = None,
    where: Where = None,
    missing: Annotated[
        Literal["answered", "at-random", "bounds"],
        option("Omit missing answers, assume them at random given --given, or bound them."),
    ] = "answered",
    given: Drivers = None,
    level: Level = 0.95,
) -> Shown:
    """Estimate a quantile of an ordered variable, interpolated within bins.

    Example: masquerade stats quantile disguised.csv -p policy.yaml --of age
    """
    asked, found = _names(by, schema, "--by"), conditions_in(where, schema)
    drivers = _names(given, schema, "--given")
    return mq.stats.quantile(source, of, q, asked, where=found, missing=missing, given=drivers, level=level)


@command
def survival(
    *,
    source: Any,
    schema: Any,
    time: Annotated[
        str, required_option("The variable with the time of the event or censoring.", "--time", metavar="A")
    ],
    event: Annotated[
        str, required_option("The variable that states whether the event happened.", metavar="B")
    ],
    by: By = None,
    given: Given = None,
    category: Annotated[
        str | None, option("The category of an event; by default the category that means yes.")
    ] = None,
    where: Where = None,
    missing: Answers = "answered",
    level: Level = 0.95,
) -> Shown:
    """Estimate survival curves, with a log-rank test and hazard ratios between groups.

    Example: masquerade stats survival disguised.csv -p policy.yaml --time week --event relapse --by arm
    """
    return mq.stats.survival(
        source,
        time,
        event,
        _names(by, schema, "--by"),
        given=_names(given, schema, "--given"),
        category=_label(schema[event], category, "--category"),
        where=conditions_in(where, schema),
        missing=missing,
        level=level,
    )
