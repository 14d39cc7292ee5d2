"""Catalogue of learners: options and queries of each, for commands, sessions and the studio.

A learner of another package is registered by an entry point of the group ``masquerade.learners``. Its name is
the learner's name, and it refers to a `Learner`. An entry imports its learner only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import masquerade.learn as learn  # noqa: PLR0402  (its own package, whose names load when they are used)
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.plugins import load_plugin, plugins
from masquerade.learn import option_types as kinds

if TYPE_CHECKING:
    from masquerade.core.tally import Tally
from masquerade.learn.learner_types import FirstQueries, Learner, Option, Options, Rehearsal

EM: Mapping[str, Any] = {"em": "families", "em-joint": "joint"}  # tables by value of `missing`
MOST_CELLS = 20_000  # most cells of the table of a survival curve or a regression


def _own_picture(source: Tally, model: Any) -> Any:  # noqa: ARG001  (the signature of `draw`)
    return model.plot()


def learner(name: str) -> Learner:
    """Return the learner with a given name, built in or of another package.

    Parameters
    ----------
    name : str
        Name of the learner.

    Returns
    -------
    Learner
        The learner's entry in the catalogue.

    Raises
    ------
    InputError
        If there is no such learner.

    Examples
    --------
    >>> mq.learn.learner("tree").title
    'decision tree'
    """
    if name in LEARNERS:
        return LEARNERS[name]
    if name not in plugins("learners"):
        raise InputError(f"There is no learner {name!r}.{did_you_mean(name, names())}")
    found: Learner = load_plugin("learners", name, partial(_problem, name))
    return found


def names() -> tuple[str, ...]:
    """Return the names of all learners, built-in ones first, without importing any.

    >>> names()[:3]
    ('network', 'structure', 'rules')
    """
    return (*LEARNERS, *(name for name in plugins("learners") if name not in LEARNERS))


def _problem(name: str, part: Any) -> str | None:
    if not isinstance(part, Learner):
        return f"it refers to a {type(part).__name__}, not to a masquerade.learn.Learner"
    return None if part.name == name else f"it calls itself {part.name!r}"


def _late(name: str) -> Callable[..., Any]:
    """Return a function that imports the named learner when it is called."""

    def learn_late(source: Tally, **options: Any) -> Any:
        return getattr(learn, name)(source, **options)

    return learn_late


def _network(
    source: Tally,
    *,
    structure: Any = None,
    order: Any = None,
    max_parents: int = 3,
    score: str = "bic",
    correction: Any = "likelihood",
    missing: Any = "answered",
    **options: Any,
) -> Any:
    tables = EM.get(missing)
    if tables is not None:
        _check_em(options)
        missing = "answered"  # the search compares families among people who answered
    if structure is None:
        with suppress(FirstQueries):  # check the other options before the first query
            learn.bayesian_network(Rehearsal(source.schema), dict.fromkeys(order, ()), **options)
        structure = learn.structure(
            source, order, max_parents=max_parents, score=score, correction=correction, missing=missing
        )
    if tables is not None:
        return learn.network_with_missing(source, structure, tables=tables, prior=options.get("prior", 0.0))
    return learn.bayesian_network(source, structure, missing=missing, **options)


def _check_em(options: Options) -> None:
    """Raise InputError if options of a network cannot be combined with EM on missing answers."""
    if options.get("method", "counts") != "counts" or options.get("equivalent_size") is not None:
        raise InputError(
            "EM on missing answers takes counts and a prior: leave method and equivalent_size out."
        )


def _tree(source: Tally, *, significance: float | None = 0.05, **options: Any) -> Any:
    return learn.decision_tree(source, significance=None if significance == 1 else significance, **options)


def _structure(
    source: Tally,
    *,
    resample: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Any:
    from masquerade.core.tally import Cached  # noqa: PLC0415  (loads NumPy, which help does not need)

    if resample and options.pop("polish", False):
        raise InputError("Resampled structures are not polished: leave --polish or --resample out.")
    asked = Cached(source) if resample else source
    if options.get("polish"):
        return learn.structure(asked, progress=progress, **options)
    found = learn.structure(asked, **options)
    if not resample:
        return found
    drawn = learn.resampled_network(asked, samples=resample, progress=progress, **options)
    return found.with_frequencies(drawn.frequency)


def _survival(
    source: Tally,
    *,
    time: str,
    event: str | None,
    by: tuple[str, ...] | None = None,
    given: tuple[str, ...] | None = None,
    category: str | None = None,
    **options: Any,
) -> Any:
    """Estimate survival curves from the one table of the variables named here."""
    from masquerade.core.table_statistics import call_statistic  # noqa: PLC0415  (loads NumPy)

    if event is None:
        raise InputError("A survival curve needs 'event', the variable that states whether it happened.")
    counted = None if category is None else kinds.category_called(source.schema[event], category, "category")
    names = (time, event, *(by or ()), *(given or ()))
    _check_cells(source, names, "survival curves")
    return call_statistic(
        "survival", source, time, event, by or (), given=given or (), category=counted, **options
    )


def _logistic(
    source: Tally,
    *,
    target: str,
    features: tuple[str, ...] | None,
    interactions: tuple[tuple[str, ...], ...] | None = None,
    category: str | None = None,
    **options: Any,
) -> Any:
    """Fit a logistic regression from the one table of the variables named here."""
    from masquerade.core.table_statistics import call_statistic  # noqa: PLC0415  (loads NumPy)

    if not features:
        raise InputError("A logistic regression needs 'features', the variables that explain the target.")
    for names in interactions or ():
        unknown = [name for name in names if name not in features]
        if unknown or len(set(names)) < 2:
            raise InputError(f"An interaction needs two or more features. Got {', '.join(names)}.")
    _check_cells(source, (*features, target), "a regression")
    terms = [_quote_name(name) for name in features]
    terms += [":".join(map(_quote_name, names)) for names in interactions or ()]
    chosen = ""
    if category is not None:
        chosen = f"[{kinds.category_called(source.schema[target], category, 'category')}]"
    return call_statistic("logistic", source, f"{target}{chosen} ~ {' + '.join(terms)}", **options)


def _quote_name(name: str) -> str:
    """Return a name as formulas write it."""
    return name if name.isidentifier() else f"`{name}`"


def _check_cells(source: Tally, names: tuple[str, ...], what: str) -> None:
    """Raise InputError if the table of a model is too large, for example with a continuous variable."""
    sizes = {name: len(source.schema[name]) for name in names}
    if prod(sizes.values()) > MOST_CELLS:
        longest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"The table of {', '.join(names)} has {prod(sizes.values()):,} cells; at most {MOST_CELLS:,} are "
            f"possible. Between parties, {what} needs that table, so its variables must have few categories. "
            "Continuous variables are not possible: each step of the fit would need sums of products of "
            "values that different parties hold for one person, and only counts are opened. Group "
            f"{longest!r} into bins in the policy."
        )


def _structure_picture(source: Tally, found: Any) -> Any:
    """Draw a resampled structure with its frequencies, or any other structure as a network."""
    if any(strength.frequency is not None for strength in found.strengths):
        return found.plot()
    return learn.bayesian_network(source, found).plot()


def _asked_by_network(options: Options, names: Collection[str]) -> bool:
    asked, structure = set(names), options.get("structure")
    if options.get("missing") == "em-joint" and asked <= {*(structure or ()), *(options.get("order") or ())}:
        return True
    if structure is not None:
        return not asked or any(asked <= {node, *parents} for node, parents in structure.items())
    return asked <= set(options.get("order") or ()) and _asked_by_structure(options, names)


def _asked_by_structure(options: Options, names: Collection[str]) -> bool:
    return len(set(names)) <= int(options.get("max_parents", 3)) + 1


def _asks_among(*options: str) -> Callable[[Options, Collection[str]], bool]:
    """Return a function that allows tables of the variables that the given options name, and of no others."""

    def asks(values: Options, names: Collection[str]) -> bool:
        named: set[str] = set()
        for option in options:
            value = values.get(option) or ()
            named |= {value} if isinstance(value, str) else set(value)
        return set(names) <= named

    return asks


_SCORE = Option("score", kinds.one_of("bic", "aic", "k2", "bdeu"), "bic", "Score of a structure.")


_CORRECTION = Option(
    "correction",
    kinds.CORRECTION,
    "likelihood",
    "How gains account for the noise: likelihood, design-effect, none, constant:C (C*), eta:E.",
)


_TARGET = Option("target", kinds.VARIABLE, None, "The variable to predict.")


_FEATURES = Option("features", kinds.VARIABLES, None, "Variables to predict from. None: all other variables.")


_MISSING = Option(
    "missing",
    kinds.one_of("answered", "category"),
    "answered",
    "Count people who answered, or count missing answers as categories.",
)


_MISSING_OR_EM = replace(
    _MISSING,
    kind=kinds.one_of("answered", "category", *EM),
    help="Count people who answered, count missing answers as categories, or replace missing answers by "
    "their expected counts: EM on each family's table (em) or on the table of all variables (em-joint).",
)


_TEXT = kinds.OptionType(str, "TEXT")


_MAX_PARENTS = Option("max_parents", kinds.whole_number(0), 3, "Maximum number of parents of a node.")


def _entries() -> Iterable[Learner]:
    yield Learner(
        "network",
        "Bayesian network",
        "Estimate the parameters of a Bayesian network, each with its standard error.",
        _network,
        (
            Option(
                "structure",
                kinds.STRUCTURE,
                None,
                "Parents as 'B<-A,S; C<-B', or a file: a learnt structure, a network, BIF, or JSON with the "
                "list of parents of every node.",
            ),
            Option(
                "order",
                kinds.VARIABLES,
                None,
                "Instead of a structure: variables, parents first; K2 searches the parents of each.",
                "A,B,…",
            ),
            Option("max_parents", kinds.whole_number(0), 3, "With --order: maximum number of parents."),
            replace(_SCORE, help="With --order: score of a structure."),
            replace(_CORRECTION, help=f"With --order: {_CORRECTION.help[0].lower()}{_CORRECTION.help[1:]}"),
            Option("prior", kinds.NOT_NEGATIVE, 0.0, "Pseudo-count added to every cell (MAP)."),
            Option(
                "equivalent_size",
                kinds.NUMBER,
                None,
                "Equivalent sample size of a BDeu prior, instead of --prior.",
            ),
            Option(
                "nonnegative",
                kinds.SWITCH,
                default=False,
                help="Set negative estimates to zero and rescale (biased).",
            ),
            Option(
                "method",
                kinds.one_of("counts", "likelihood", "composite"),
                "counts",
                "Family by family, or all tables together: by the joint likelihood of the reports, or by the "
                "composite likelihood of pairs where only tables are known.",
            ),
            _MISSING_OR_EM,
        ),
        needs=(("structure", "order"),),
        model=lambda: learn.BayesianNetwork,
        limits=("structure", "order"),
        asks=_asked_by_network,
        draw=_own_picture,
        example='--structure "cough<-smoker; smoker<-region"',
    )
    yield Learner(
        "structure",
        "structure of a Bayesian network",
        "Find the links of a Bayesian network over all variables of the policy, with the strength of each.",
        _structure,
        (
            Option(
                "order",
                kinds.VARIABLES,
                None,
                "All variables, parents first: K2. Without it, hill climbing.",
                "A,B,…",
            ),
            _MAX_PARENTS,
            _SCORE,
            _CORRECTION,
            Option("required", kinds.LINKS, (), "A link that must be present; repeat for more."),
            Option("forbidden", kinds.LINKS, (), "A link that must be absent; repeat for more."),
            Option("tabu", kinds.whole_number(0), 10, "Moves without a gain before hill climbing stops."),
            Option("restarts", kinds.whole_number(0), 0, "Restarts of hill climbing."),
            Option("seed", kinds.whole_number(0), 0, "Seed of the restarts and of the samples."),
            Option(
                "polish",
                kinds.SWITCH,
                False,  # noqa: FBT003  (its default)
                "Improve the structure by the joint likelihood of all reports; takes longer.",
            ),
            Option(
                "resample",
                kinds.whole_number(0),
                0,
                "Number of resamples of the reports, to count how often each link is found.",
            ),
            _MISSING,
        ),
        model=lambda: learn.LearnedStructure,
        limits=("order",),
        asks=_asked_by_structure,
        draw=_structure_picture,
        example="--out structure.json",
        in_steps=True,
    )
    yield Learner(
        "rules",
        "association rules",
        "Find association rules, with standard errors of supports and confidences.",
        _late("association_rules"),
        (
            Option("min_support", kinds.SHARE, 0.05, "Minimum share of records with both sides."),
            Option(
                "min_confidence",
                kinds.SHARE,
                0.6,
                "Minimum share with the right side, among records with the left side.",
            ),
            Option("max_len", kinds.WHOLE, None, "Maximum number of items in a rule."),
            Option("lhs", kinds.ITEMS, None, "Only these items on the left; repeat for more."),
            Option("rhs", kinds.ITEMS, None, "Only these items on the right; repeat for more."),
            Option("items", kinds.ITEMS, None, "Only these items, on either side; repeat for more."),
            Option("level", kinds.LEVEL, 0.95, "Confidence level of the intervals."),
            Option("fdr", kinds.SHARE, None, "Largest share of false discoveries among the rules found."),
            Option(
                "max_rows",
                kinds.whole_number(1),
                20,
                "Maximum number of rules shown.",
                for_summary=True,
                typed_as="rows",
            ),
            Option(
                "by",
                kinds.one_of("lift", "confidence", "support", "leverage", "conviction"),
                "lift",
                "Measure by which rules are sorted.",
                for_summary=True,
                typed_as="sort",
            ),
        ),
        model=lambda: learn.AssociationRules,
        limits=("items",),
        draw=_own_picture,
        example="--min-support 0.1 --rhs cough=yes",
    )
    yield Learner(
        "naive-bayes",
        "naive Bayes classifier",
        "Learn a naive Bayes classifier, each probability with its standard error.",
        _late("naive_bayes"),
        (
            _TARGET,
            _FEATURES,
            Option("alpha", kinds.NUMBER, 1.0, "Pseudo-count added to every cell of a class."),
            Option(
                "method",
                kinds.one_of("counts", "likelihood", "composite"),
                "counts",
                "Feature by feature, or all tables together: by the joint likelihood of the reports, or by "
                "the composite likelihood of pairs where only tables are known.",
            ),
            _MISSING,
        ),
        needs=(("target",),),
        model=lambda: learn.NaiveBayes,
        limits=("features",),
        at_once=True,
        asks=lambda options, names: len(set(names) - {options.get("target")}) <= 1,
        draw=_own_picture,
        example="--target smoker --out model.json",
    )
    yield Learner(
        "tree",
        "decision tree",
        "Grow a decision tree whose splits must beat the noise of the disguise.",
        _tree,
        (
            _TARGET,
            _FEATURES,
            Option(
                "criterion",
                kinds.one_of("gain", "gain_ratio"),
                "gain",
                "Criterion of a split: ID3's or C4.5's.",
            ),
            Option("max_depth", kinds.WHOLE, None, "Maximum number of splits on a path."),
            Option(
                "min_records",
                kinds.NUMBER,
                1.0,
                "Minimum number of records in at least two branches of a split.",
            ),
            Option(
                "significance",
                kinds.SHARE,
                0.05,
                "Probability of a split where the target depends on no feature; 1: no test.",
            ),
            Option(
                "prune", kinds.NUMBER, None, "Cut back by pessimistic errors at this confidence (C4.5: 0.25)."
            ),
            _MISSING,
        ),
        needs=(("target",),),
        model=lambda: learn.DecisionTree,
        limits=("features",),
        draw=_own_picture,
        example="--target smoker --max-depth 3 --plot tree.svg",
    )
    yield Learner(
        "linear",
        "linear classifier",
        "Learn a linear classifier by expected cost: pocket perceptron, least squares or logistic.",
        _late("linear_classifier"),
        (
            _TARGET,
            _FEATURES,
            Option("loss", kinds.one_of("pocket", "squares", "logistic"), "pocket", "Loss to minimise."),
            Option(
                "scores",
                kinds.SCORES,
                None,
                "Numbers of a feature's categories, or 'indicator'; repeat for more.",
            ),
            Option("ridge", kinds.NUMBER, 0.0, "Penalty of large coefficients; not for pocket."),
            Option(
                "counts",
                kinds.one_of("auto", "mle", "simplex", "clip", "unbiased"),
                "auto",
                "How negative counts are handled.",
            ),
            Option("steps", kinds.WHOLE, 20_000, "Steps of the pocket algorithm."),
            Option("seed", kinds.whole_number(0), 0, "Seed of the pocket algorithm."),
            _MISSING,
        ),
        needs=(("target",),),
        model=lambda: learn.LinearClassifier,
        limits=("features",),
        at_once=True,
        draw=_own_picture,
        example="--target smoker --loss logistic",
    )
    yield Learner(
        "k-means",
        "k-means clusters",
        "Find clusters of records by numeric or binned variables, with standard errors of the centres.",
        _late("k_means"),
        (
            Option("k", kinds.whole_number(1), None, "Number of clusters."),
            Option("names", kinds.VARIABLES, None, "Variables to cluster by. None: all."),
            Option("scores", kinds.SCORES, None, "Numbers of a variable's categories; repeat for more."),
            Option("start", kinds.CENTRES, None, "One initial centre; repeat for more. None: chosen."),
        ),
        needs=(("k",),),
        model=lambda: learn.Clusters,
        limits=("names",),
        at_once=True,
        example="--k 3 --names age,visits",
    )
    yield Learner(
        "tables",
        "tables",
        "Query tables of counts, each cell with its standard error.",
        _late("tables"),
        (Option("tables", kinds.TABLES, None, "The variables of a table; repeat for more."),),
        needs=(("tables",),),
        limits=("tables",),
        at_once=True,
        asks=lambda options, names: (
            not names or any(set(names) <= set(table) for table in options.get("tables", ()))
        ),
        command=False,  # `masquerade estimate` shows tables in more detail
    )
    yield Learner(
        "survival",
        "survival curves",
        "Estimate survival curves, with a log-rank test and hazard ratios.",
        _survival,
        (
            Option("time", kinds.VARIABLE, None, "Time of the event or of censoring, in order."),
            Option("event", kinds.VARIABLE, None, "Variable with a category for an event."),
            Option("by", kinds.VARIABLES, None, "Variables that define the groups."),
            Option("given", kinds.VARIABLES, None, "Strata, within which groups are compared."),
            Option("category", _TEXT, None, "Category of an event. None: yes."),
            Option("level", kinds.LEVEL, 0.95, "Confidence level of the intervals."),
            _MISSING,
        ),
        needs=(("time",), ("event",)),
        limits=("time", "event"),
        at_once=True,
        asks=_asks_among("time", "event", "by", "given"),
        draw=_own_picture,
        example="--time week --event relapse --by arm",
        command=False,  # `masquerade stats survival`
    )
    yield Learner(
        "logistic",
        "logistic regression",
        "Fit a logistic regression of a yes/no variable on variables with few categories.",
        _logistic,
        (
            replace(_TARGET, help="The outcome."),
            Option("features", kinds.VARIABLES, None, "Variables that explain the outcome."),
            Option("interactions", kinds.TABLES, None, "Features that act together; repeat for more."),
            Option("category", _TEXT, None, "Category of the outcome that is explained. None: yes."),
            Option("level", kinds.LEVEL, 0.95, "Confidence level of the intervals."),
        ),
        needs=(("target",), ("features",)),
        limits=("target", "features"),
        at_once=True,
        asks=_asks_among("target", "features"),
        draw=_own_picture,
        example="--target smoker --features age,region",
        command=False,  # `masquerade stats regress`
    )


LEARNERS: Mapping[str, Learner] = {entry.name: entry for entry in _entries()}
