"""What can be learnt: an entry for every learner, its options and what it asks; commands and sessions use it.

A learner of another package takes part by an entry point of the group ``masquerade.learners``: its name is
the learner's, and it leads to a `Learner`. Entries load what they describe only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import masquerade.learn as learn  # noqa: PLR0402  (its own package, whose names load when they are used)
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.plugins import load_plugin, plugins
from masquerade.learn import option_types as kinds

if TYPE_CHECKING:
    from masquerade.core.errors import Refusal
    from masquerade.core.guarantee import Guarantee
    from masquerade.core.query import Query
    from masquerade.core.schema import Schema
    from masquerade.core.table import CountTable
    from masquerade.core.tally import Tally

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """Something that a learner can be told: the name of the parameter, the kind of its value, what it means.

    `for_summary` marks what says how a model is shown, and goes to its `summary` instead of the learner;
    `typed_as` is the name of a command's option where it is another one.

    >>> [option] = [option for option in mq.learn.learner("tree").options if option.name == "max_depth"]
    >>> option.flag, option.default
    ('--max-depth', None)
    """

    name: str
    kind: kinds.Kind
    default: Any
    help: str
    metavar: str | None = None
    for_summary: bool = False
    typed_as: str = ""

    @property
    def flag(self) -> str:
        """Return the option of a command."""
        return f"--{self.typed_as or self.name.replace('_', '-')}"


def _own_picture(source: Tally, model: Any) -> Any:  # noqa: ARG001  (the form that `draw` has)
    return model.plot()


class _Asked(Exception):
    """A learner has asked its first questions."""

    def __init__(self, queries: Iterable[Query]) -> None:
        self.queries = list(queries)
        super().__init__(self.queries)


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """A source that answers nothing: whoever asks it has checked what it was told."""

    schema: Schema

    @property
    def guarantee(self) -> Guarantee:
        from masquerade.core.guarantee import Guarantee  # noqa: PLC0415

        return Guarantee(())

    def check(self, queries: Iterable[Query]) -> list[Refusal]:  # noqa: ARG002
        return []

    def answer(self, queries: Iterable[Query]) -> list[CountTable]:
        raise _Asked(queries)


@dataclass(frozen=True, slots=True)
class Learner:
    """A way to learn: what it is called and told, the function, the model that comes out, what it asks.

    `needs` lists options of which exactly one must be given. `learn` takes a source of counts and the options
    by name, and returns a model with `summary` and `to_dict`; `model` returns its class, which `from_dict`
    reads back. If it learns `in_steps` it takes `progress` too, which is told how many of how many are done.
    `asks` tells whether a table of some variables may be asked for, given the options: parties consent to no
    other. `limits` are options of which each, where it is given, names all variables that are asked about;
    without them it may ask about any. One that asks `at_once` asks nothing after its first batch. `draw`
    makes a picture of the source and the model; None where there is none.
    Without `command` there is no ``masquerade learn NAME``.

    >>> learner = mq.learn.learner("naive-bayes")
    >>> [option.name for option in learner.options]
    ['target', 'features', 'alpha']
    >>> learner.learnt(mq.tally(mq.data.students()), {"target": "sleep"}).target.name
    'sleep'
    """

    name: str
    title: str
    help: str
    learn: Callable[..., Any]
    options: tuple[Option, ...] = ()
    needs: tuple[tuple[str, ...], ...] = ()
    model: Callable[[], type[Any]] | None = None
    asks: Callable[[Options, Collection[str]], bool] = lambda _options, _names: True
    limits: tuple[str, ...] = ()
    at_once: bool = False
    draw: Callable[[Tally, Any], Any] | None = None
    example: str = ""
    command: bool = True
    in_steps: bool = False

    def read(
        self, typed: Options, schema: Schema, called: Callable[[Option], str] = lambda option: option.name
    ) -> dict[str, Any]:
        """Return the options as the learner takes them, from what people typed; `called` names one in errors.

        What was not given (None) has its default, which is written as people would type it.
        """
        own = {option.name: option for option in self.options}
        faults: list[InputError] = [
            InputError(f"{self.name!r} has no option {name!r}.{did_you_mean(name, own)}")
            for name in typed
            if name not in own
        ]
        for names in self.needs:
            given = [name for name in names if typed.get(name) is not None]
            if len(given) != 1:
                wanted = " or ".join(called(own[name]) for name in names)
                such = f", such as {self.example}" if wanted.startswith("--") and self.example else ""
                faults.append(
                    InputError(
                        f"{wanted} is missing{such}."
                        if not given
                        else f"{wanted} must be given, not both of them."
                    )
                )
        found = {}
        for name, option in own.items():
            value = option.default if typed.get(name) is None else typed[name]
            try:
                found[name] = None if value is None else option.kind.read(value, schema, called(option))
            except InputError as error:
                faults.append(error)
        if faults:
            raise faults[0] if len(faults) == 1 else InputError(" ".join(map(str, faults)))
        return found

    def rehearse(self, schema: Schema, options: Options) -> list[Query]:
        """Return the questions that are asked first about some variables; what is wrong is raised by then.

        Everything that a learner checks before it asks is checked, by the learner itself; nobody is asked.
        """
        try:
            self.learnt(_Rehearsal(schema), options)
        except _Asked as asked:
            return asked.queries
        return []

    def needed(self, options: Options, names: Collection[str]) -> tuple[str, ...]:
        """Return those of some variables that are asked about, all of them unless options name which."""
        if not any(options.get(name) for name in self.limits):
            return tuple(names)
        named = set(self.variables(options))
        return tuple(name for name in names if name in named)

    def learnt(
        self, source: Tally, options: Options, progress: Callable[[int, int], None] | None = None
    ) -> Any:
        """Return the model that is learnt from a source; `progress` is told of steps where there are some."""
        shown = {option.name for option in self.options if option.for_summary}
        told = {name: value for name, value in options.items() if name not in shown}
        return self.learn(source, **told, **({"progress": progress} if self.in_steps else {}))

    def summary(self, model: Any, options: Options) -> str:
        """Return a model for reading, as the options say."""
        shown = {o.name: options[o.name] for o in self.options if o.for_summary and o.name in options}
        return str(model.summary(**shown))

    def variables(self, options: Options) -> tuple[str, ...]:
        """Return the variables that the options name."""
        found: list[str] = []
        for option in self.options:
            if options.get(option.name) is not None:
                found += option.kind.names(options[option.name])
        return tuple(dict.fromkeys(found))


def learner(name: str) -> Learner:
    """Return the entry of a name, ours or another package's.

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
    """Return the names of all learners, ours first; nothing is loaded.

    >>> names()[:3]
    ('network', 'structure', 'rules')
    """
    return (*LEARNERS, *(name for name in plugins("learners") if name not in LEARNERS))


def _problem(name: str, part: Any) -> str | None:
    if not isinstance(part, Learner):
        return f"it leads to a {type(part).__name__}, not to a masquerade.learn.Learner"
    return None if part.name == name else f"it calls itself {part.name!r}"


def _late(name: str) -> Callable[..., Any]:
    """Return the learner of a name, which is loaded when it is called."""

    def learnt(source: Tally, **options: Any) -> Any:
        return getattr(learn, name)(source, **options)

    return learnt


def _network(
    source: Tally,
    *,
    structure: Any = None,
    order: Any = None,
    max_parents: int = 3,
    score: str = "bic",
    correction: Any = "likelihood",
    **options: Any,
) -> Any:
    if structure is None:
        with suppress(_Asked):  # what is wrong with the rest is said before anything is asked
            learn.bayesian_network(_Rehearsal(source.schema), dict.fromkeys(order, ()), **options)
        structure = learn.structure(
            source, order, max_parents=max_parents, score=score, correction=correction
        )
    return learn.bayesian_network(source, structure, **options)


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

    asked = Cached(source) if resample else source
    found = learn.structure(asked, **options)
    if not resample:
        return found
    drawn = learn.resampled_network(asked, samples=resample, progress=progress, **options)
    return found.with_frequencies(drawn.frequency)


def _asked_by_network(options: Options, names: Collection[str]) -> bool:
    asked, structure = set(names), options.get("structure")
    if structure is not None:
        return not asked or any(asked <= {node, *parents} for node, parents in structure.items())
    return asked <= set(options.get("order") or ()) and _asked_by_structure(options, names)


def _asked_by_structure(options: Options, names: Collection[str]) -> bool:
    return len(set(names)) <= int(options.get("max_parents", 3)) + 1


_SCORE = Option("score", kinds.one_of("bic", "aic", "k2", "bdeu"), "bic", "What a structure is judged by.")
_CORRECTION = Option(
    "correction",
    kinds.CORRECTION,
    "likelihood",
    "How gains account for the noise: likelihood, design-effect, none, constant:C (C*), eta:E.",
)
_TARGET = Option("target", kinds.VARIABLE, None, "The variable to be predicted.")
_FEATURES = Option("features", kinds.VARIABLES, None, "What it is predicted from. None: all other variables.")
_MAX_PARENTS = Option("max_parents", kinds.whole(0), 3, "Most parents of a node.")


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
                "Instead of a structure: variables, parents first; K2 looks for the parents of each.",
                "A,B,…",
            ),
            Option("max_parents", kinds.whole(0), 3, "With --order: most parents of a node."),
            replace(_SCORE, help="With --order: what a structure is judged by."),
            replace(_CORRECTION, help=f"With --order: {_CORRECTION.help[0].lower()}{_CORRECTION.help[1:]}"),
            Option("prior", kinds.NOT_NEGATIVE, 0.0, "Pseudo-count added to every cell (MAP)."),
            Option(
                "equivalent_size",
                kinds.NUMBER,
                None,
                "Records that a BDeu prior is worth, instead of --prior.",
            ),
            Option(
                "nonnegative",
                kinds.SWITCH,
                default=False,
                help="Set negative estimates to zero and rescale (biased).",
            ),
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
            Option("required", kinds.LINKS, (), "A link that must be there; repeat for more."),
            Option("forbidden", kinds.LINKS, (), "A link that must not; repeat for more."),
            Option("tabu", kinds.whole(0), 10, "Moves that climbing may go on without a gain."),
            Option("restarts", kinds.whole(0), 0, "Times that climbing starts again."),
            Option("seed", kinds.whole(0), 0, "Seed of the restarts and of the samples."),
            Option(
                "resample",
                kinds.whole(0),
                0,
                "Samples drawn anew from the reports: how often each link is found in them.",
            ),
        ),
        model=lambda: learn.LearnedStructure,
        limits=("order",),
        asks=_asked_by_structure,
        draw=lambda source, found: learn.bayesian_network(source, found).plot(),
        example="--out structure.json",
        in_steps=True,
    )
    yield Learner(
        "rules",
        "association rules",
        "Find association rules, with standard errors of supports and confidences.",
        _late("association_rules"),
        (
            Option("min_support", kinds.SHARE, 0.05, "Least share of records with both sides."),
            Option("min_confidence", kinds.SHARE, 0.6, "Least share of the left side's records."),
            Option("max_len", kinds.WHOLE, None, "Most items of a rule."),
            Option("lhs", kinds.ITEMS, None, "Only these items on the left; repeat for more."),
            Option("rhs", kinds.ITEMS, None, "Only these items on the right; repeat for more."),
            Option("items", kinds.ITEMS, None, "Only these items anywhere; repeat for more."),
            Option("level", kinds.LEVEL, 0.95, "Confidence level of the intervals."),
            Option("fdr", kinds.SHARE, None, "Most false discoveries, as a share of the rules found."),
            Option("max_rows", kinds.whole(1), 20, "Most rules shown.", for_summary=True, typed_as="rows"),
            Option(
                "by",
                kinds.one_of("lift", "confidence", "support", "leverage", "conviction"),
                "lift",
                "Which rules are shown first.",
                for_summary=True,
                typed_as="sort",
            ),
        ),
        model=lambda: learn.Rules,
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
                "What a split is chosen by: ID3's or C4.5's.",
            ),
            Option("max_depth", kinds.WHOLE, None, "Most questions on a way down."),
            Option("min_records", kinds.NUMBER, 1.0, "Least records of two branches of a split."),
            Option(
                "significance",
                kinds.SHARE,
                0.05,
                "Chance of a split where nothing depends on anything; 1: no test.",
            ),
            Option(
                "prune", kinds.NUMBER, None, "Cut back by pessimistic errors at this confidence (C4.5: 0.25)."
            ),
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
            Option("loss", kinds.one_of("pocket", "squares", "logistic"), "pocket", "What is made small."),
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
                "What becomes of negative counts.",
            ),
            Option("steps", kinds.WHOLE, 20_000, "Steps of the pocket algorithm."),
            Option("seed", kinds.whole(0), 0, "Seed of the pocket algorithm."),
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
        "Find clusters of records by variables that are numbers or bins, centres with standard errors.",
        _late("k_means"),
        (
            Option("k", kinds.whole(1), None, "How many clusters."),
            Option("names", kinds.VARIABLES, None, "Variables to cluster by. None: all."),
            Option("scores", kinds.SCORES, None, "Numbers of a variable's categories; repeat for more."),
            Option(
                "start", kinds.CENTRES, None, "A first centre, its numbers; repeat for more. None: chosen."
            ),
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
        "Count tables, each cell with its standard error.",
        _late("tables"),
        (Option("tables", kinds.TABLES, None, "The variables of a table; repeat for more."),),
        needs=(("tables",),),
        limits=("tables",),
        at_once=True,
        asks=lambda options, names: (
            not names or any(set(names) <= set(table) for table in options.get("tables", ()))
        ),
        command=False,  # `masquerade estimate` shows more of a table
    )


LEARNERS: Mapping[str, Learner] = {entry.name: entry for entry in _entries()}
