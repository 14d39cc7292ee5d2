"""Conformance checks for sources of counts: for authors of a `Tally`, in this package or another.

`check_tally(source, records, policy)` is for sources whose answers are a function of the records: values and
both types of standard errors must equal those of a slow second implementation. `check_tally(source,
truth=clear)` is for sources that add their own randomness: answers must be near the truth, given the errors
that they claim. All other checks apply to both: shapes, slices, margins, refusals, immutable tables.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from math import prod
from statistics import NormalDist
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.covariance import KINDS
from masquerade.core.errors import QueryRefused, Refusal, SchemaError
from masquerade.core.evidence import PROJECTIONS
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, Tally
from masquerade.sources.oracle import Oracle

__all__ = ["CHECKS", "Oracle", "Subject", "check_tally"]

MOST_CELLS = 2048  # cells of a table in the default queries
MOST_FITTED = 16  # cells of a table to which models are fitted, counting variables in conditions
ALPHA = 1e-6  # false alarm rate of the comparison with the truth, over all cells of all queries
RELATIVE, ABSOLUTE = 1e-9, 1e-7  # smaller differences are rounding
DEALT = 0.02  # relative difference of variances estimated from different samples of the same records


@dataclass
class Subject:
    """A source under test, its queries and the expected answers.

    Parameters
    ----------
    source : Tally
        The source.
    queries : tuple of Query
        Queries, answered in one batch.
    oracle : Oracle, optional
        Slow second implementation, for exact answers.
    truth : Tally, optional
        Source of the clear records, for a source that adds its own randomness.
    messages : callable, optional
        Returns the number of messages that the source has sent so far.
    most_fitted : int, default 16
        Largest table, in cells, to which models are fitted.
    answers : dict, optional
        Answers by query, filled in on construction.

    Examples
    --------
    >>> from masquerade.testing import Subject
    >>> subject = Subject(mq.tally(mq.data.students()), (mq.Query(by="pills"),))
    >>> subject.answers[mq.Query(by="pills")].values.tolist()
    [474.0, 126.0]
    """

    source: Tally
    queries: tuple[Query, ...]
    oracle: Oracle | None = None
    truth: Tally | None = None
    messages: Callable[[], int] | None = None
    most_fitted: int = MOST_FITTED
    answers: dict[Query, CountTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers |= zip(self.queries, self.source.answer(self.queries), strict=True)

    @property
    def steady(self) -> bool:
        """Return True if the same query always has the same answer."""
        return self.oracle is not None or self.truth is None

    @property
    def dealt(self) -> bool:
        """Return True if each record reports only some blocks of variables."""
        return self.oracle is not None and self.oracle.dealt

    @cached_property
    def widest(self) -> Query:
        """The unconditioned query with the most cells."""
        plain = [query for query in self.queries if not query.where]
        return max(plain, key=lambda query: prod(self.source.schema.shape(query.by)), default=Query())

    def fitted(self, query: Query) -> bool:
        """Return True if a table, with the variables of its condition, is small enough to fit models to."""
        return bool(query.by) and prod(self.source.schema.shape(query.names)) <= self.most_fitted

    @staticmethod
    def largest(queries: Iterable[Query]) -> list[Query]:
        """Return the queries with the most variables: one without and one with a condition."""
        listed = list(queries)
        plain = max((q for q in listed if not q.where), key=lambda q: len(q.by), default=None)
        conditioned = max((q for q in listed if q.where), key=lambda q: len(q.names), default=None)
        return [query for query in (plain, conditioned) if query is not None]

    def allowed(self, *queries: Query) -> bool:
        """Return True if the source would answer all of these queries."""
        return not self.source.check(queries)


Check = Callable[[Subject], Iterator[str]]


def is_a_tally(subject: Subject) -> Iterator[str]:
    """Check that the source has the four names of a `Tally`, and a guarantee about its variables."""
    source: object = subject.source
    if not isinstance(source, Tally):
        yield "it lacks one of the names schema, guarantee, check, answer"
        return
    named = {name for item in source.guarantee.disclosures for name in item.variables}
    # a selection reveals as much as its source
    revealing = source.source if isinstance(source, Selected) else source
    if not named or not named <= set(revealing.schema):
        yield f"its guarantee is about {sorted(named)}, its schema about {list(source.schema)}"


def no_question_gets_no_answer(subject: Subject) -> Iterator[str]:
    """Check that an empty batch gets an empty answer."""
    if subject.source.answer([]) != [] or subject.source.check([]) != []:
        yield "answer([]) and check([]) must be []"


def answers_have_the_shape_of_their_questions(subject: Subject) -> Iterator[str]:
    """Check that axes and categories are those of the query, in order, and that answers agree on `n`."""
    schema = subject.source.schema
    for query, table in subject.answers.items():
        if table.names != query.by or table.axes != tuple(schema[name] for name in query.by):
            yield f"{query}: the axes are {table.names}"
        elif table.values.shape != schema.shape(query.by) or not np.all(np.isfinite(table.values)):
            yield f"{query}: the values have the shape {table.values.shape} or are not finite"
    if len({table.n for table in subject.answers.values()}) > 1:
        yield "answers to one batch are about different numbers of records"
    if subject.oracle is not None and any(table.n != subject.oracle.n for table in subject.answers.values()):
        yield f"answers must be about {subject.oracle.n} records"


def a_batch_is_answered_like_single_questions(subject: Subject) -> Iterator[str]:
    """Check that a query has the same answer alone and in a batch."""
    for query, table in subject.answers.items() if subject.steady else ():
        (alone,) = subject.source.answer([query])
        yield from differs(f"{query} asked alone", alone.values, table.values)


def answers_equal_the_slow_implementation(subject: Subject) -> Iterator[str]:
    """Check values, both types of standard errors and both covariances against the oracle, up to rounding."""
    if subject.oracle is None:
        return
    for query, table in subject.answers.items():
        expected = subject.oracle.expected(query)
        yield from differs(f"{query}: values", table.values.ravel(), expected.values)
        for kind, matrix in zip(KINDS, (expected.population, expected.given_records), strict=True):
            actual = table.covariance.diagonal(kind).ravel()
            yield from differs(f"{query}: variances, {kind}", actual, np.diag(matrix))
            yield from differs(f"{query}: covariance, {kind}", table.covariance.dense(kind=kind), matrix)


def answers_are_near_the_truth(subject: Subject) -> Iterator[str]:
    """Check that estimates are within their claimed error of the truth; the false alarm rate is 1e-6."""
    if subject.truth is None:
        return
    cells = sum(table.values.size for table in subject.answers.values())
    bound = NormalDist().inv_cdf(1 - ALPHA / (2 * cells))
    for (query, table), true in zip(
        subject.answers.items(), subject.truth.answer(subject.queries), strict=True
    ):
        gap = np.abs(table.values - true.values)
        if np.any(gap > bound * table.stderr("given_records") + 1e-6):
            yield f"{query}: further from the truth than {bound:.1f} standard errors"


def conditions_are_slices(subject: Subject) -> Iterator[str]:
    """Check that the answer to a conditioned query is a slice of the larger table, including its errors."""
    for query in subject.queries if subject.steady else ():
        unconditioned = Query(by=query.names)
        if not query.where or not subject.allowed(unconditioned):
            continue
        (larger,) = subject.source.answer([unconditioned])
        yield from same_table(f"{query}", larger.select(dict(query.where)), subject.answers[query])


def margins_are_answers(subject: Subject) -> Iterator[str]:
    """Check that a margin equals the answer to the smaller query, with axes in the order of `by`."""
    by = subject.widest.by
    smaller = tuple(reversed(by[:2]))
    if not subject.steady or len(by) < 2 or not subject.allowed(Query(by=smaller)):
        return
    (answer,) = subject.source.answer([Query(by=smaller)])
    margin, dealt = subject.answers[subject.widest].marginal(smaller), subject.dealt
    yield from same_table(f"margin {smaller}", margin, answer, dealt=dealt)


def covariances_agree_with_themselves(subject: Subject) -> Iterator[str]:
    """Check that diagonal, blocks, quadratic forms and dense matrix agree, for both types of covariance."""
    for query, table in subject.answers.items():
        covariance, cells = table.covariance, table.values.size
        for kind in KINDS:
            dense = covariance.dense(max(cells, 1), kind=kind)
            title = f"{query}: {kind}"
            yield from differs(f"{title} diagonal", covariance.diagonal(kind).ravel(), np.diag(dense))
            weights = np.linspace(-1, 1, cells).reshape(table.values.shape)
            expected = weights.ravel() @ dense @ weights.ravel()
            scale = max(float(np.abs(dense).max(initial=0.0)), 1.0)
            yield from differs(
                f"{title} quadratic", covariance.quadratic(weights, kind) / scale, expected / scale
            )
            yield from differs(f"{title} whole block", covariance.within(range(len(query.by)), kind), dense)
            if query.by:
                yield from _blocks(title, table, dense, kind)


def _blocks(title: str, table: CountTable, dense: Floats, kind: Any) -> Iterator[str]:
    axis = len(table.axes) - 1
    size = table.values.shape[axis]
    blocks = table.covariance.within([table.names[axis]], kind).reshape(-1, size, size)
    for place, block in enumerate(blocks):
        cut = slice(place * size, (place + 1) * size)
        yield from differs(f"{title} block {place} by {table.names[axis]!r}", block, dense[cut, cut])


def totals_are_known(subject: Subject) -> Iterator[str]:
    """Check that the total of an unconditioned table is exact where every record counts once."""
    if subject.oracle is None:
        return
    table = subject.answers[subject.widest]
    yield from differs("the total", table.total, float(table.n))
    spread = table.covariance.quadratic(np.ones(table.values.shape))
    yield from differs("the variance of the total", spread / max(table.n, 1), 0.0)


def nonnegative_is_a_step_of_its_own(subject: Subject) -> Iterator[str]:
    """Check that projections are nonnegative, keep the total, are marked, and do not change the table."""
    for query, table in subject.answers.items():
        before = table.values.copy()
        for method in PROJECTIONS:
            made = table.nonnegative(method)
            if made.adjusted != method or table.adjusted is not None or np.any(made.values < 0):
                yield f"{query}: nonnegative({method!r}) is not marked, or negative"
            if method != "mle" and not query.where:
                yield from differs(
                    f"{query}: total by {method!r}",
                    made.total / max(table.n, 1),
                    table.total / max(table.n, 1),
                )
        yield from differs(f"{query}: values after projecting", table.values, before)


def evidence_fits(subject: Subject) -> Iterator[str]:
    """Check that no table is likelier than the most likely one, and that smaller models fit no better."""
    for query in subject.largest(query for query in subject.answers if subject.fitted(query)):
        table = subject.answers[query]
        if not np.any(table.values > 0):
            continue
        likely = [table.deviance(np.maximum(table.nonnegative(method).values, 0)) for method in PROJECTIONS]
        if not query.where and likely[0] > min(likely[1:]) + 1e-3 * max(1.0, abs(likely[0])):
            yield f"{query}: the most likely table has the deviance {likely[0]:.6g}, others have less"
        models: list[list[Sequence[str]]] = [[query.by], [[name] for name in query.by], []]
        fits = [table.fit(model) for model in models]
        for larger, smaller in pairwise(fits):
            if smaller.deviance < larger.deviance - 1e-3 * max(1.0, larger.deviance):
                yield f"{query}: a smaller model has the deviance {smaller.deviance:.6g}, below a larger one"
        if fits[0].df < 0 or fits[-1].df - fits[0].df != table.values.size - 1:
            yield f"{query}: degrees of freedom {[fit.df for fit in fits]}"


def tables_are_values(subject: Subject) -> Iterator[str]:
    """Check that tables are immutable, can be pickled, and send no messages to answer later questions."""
    spoken = 0 if subject.messages is None else subject.messages()
    largest = subject.largest(subject.answers)
    for query, table in subject.answers.items():
        try:
            table.values[...] = 0
        except ValueError:
            pass
        else:
            yield f"{query}: its values can be overwritten"
        again: CountTable = pickle.loads(pickle.dumps(table))  # noqa: S301  (made here)
        asked = ASKED if query in largest else {"values": ASKED["values"]}  # fits take a long time
        for title, ask in (asked | FITTED if query in largest and subject.fitted(query) else asked).items():
            yield from differs(f"{query}: {title} after pickling", ask(again), ask(table))
    if subject.messages is not None and subject.messages() != spoken:
        yield f"{subject.messages() - spoken} messages were sent after the answers had been given"


ASKED: dict[str, Callable[[CountTable], Any]] = {
    "values": lambda table: table.values,
    "intervals": lambda table: table.conf_int(),
    "nonnegative": lambda table: table.nonnegative("mle").values,
    "a margin": lambda table: table.marginal(table.names[:1]).nonnegative("mle").values,
}
FITTED: dict[str, Callable[[CountTable], Any]] = {
    "a fit": lambda table: table.fit([[name] for name in table.names]).expected,
}


def unknown_names_are_errors(subject: Subject) -> Iterator[str]:
    """Check that unknown variables and categories raise `SchemaError`, in `check` and in `answer`."""
    name = next(iter(subject.source.schema))
    nobody = "no such variable"
    for ask in (subject.source.check, subject.source.answer):
        for query in (Query(by=nobody), Query(where={name: "no such category"})):
            try:
                ask([query])
            except SchemaError:
                continue
            yield f"{query} is not refused with a SchemaError"


def checking_is_pure_and_answers_refuse_what_it_refuses(subject: Subject) -> Iterator[str]:
    """Check that `check` is repeatable and sends nothing, and that one refused query refuses the batch."""
    spoken = 0 if subject.messages is None else subject.messages()
    pairs = [Query(by=names) for names in combinations(subject.source.schema, 3)][:20]
    first = [codes(subject.source.check([query])) for query in pairs]
    if first != [codes(subject.source.check([query])) for query in pairs] or subject.source.check(
        subject.queries
    ):
        yield "check() does not return the same twice"
    if subject.messages is not None and subject.messages() != spoken:
        yield "check() sent messages"
    refused = [query for query, reasons in zip(pairs, first, strict=True) if reasons]
    if refused:
        try:
            subject.source.answer([*subject.queries[:1], refused[0]])
        except QueryRefused:
            return
        yield f"{refused[0]} is answered though check() refuses it"


CHECKS: tuple[Check, ...] = (
    is_a_tally,
    no_question_gets_no_answer,
    answers_have_the_shape_of_their_questions,
    a_batch_is_answered_like_single_questions,
    answers_equal_the_slow_implementation,
    answers_are_near_the_truth,
    conditions_are_slices,
    margins_are_answers,
    covariances_agree_with_themselves,
    totals_are_known,
    nonnegative_is_a_step_of_its_own,
    evidence_fits,
    tables_are_values,
    unknown_names_are_errors,
    checking_is_pure_and_answers_refuse_what_it_refuses,
)


def check_tally(
    source: Tally,
    records: Any = None,
    policy: Policy | None = None,
    *,
    truth: Any = None,
    queries: Sequence[Query] | None = None,
    messages: Callable[[], int] | None = None,
) -> None:
    """Check that a source of counts keeps the promises of a `Tally`.

    Parameters
    ----------
    source : Tally
        The source.
    records : DataFrame or list of DataFrame, optional
        The pandas frame that the source counts, disguised under `policy` or clear. A list contains
        independent samples, whose tables are added up.
    policy : Policy, optional
        Policy of the records. Without it, the records are clear.
    truth : DataFrame, optional
        The clear records, for a source that adds its own randomness.
    queries : sequence of Query, optional
        Queries to use instead of the default choice.
    messages : callable, optional
        Returns the number of messages that the source has sent so far, to check that none is sent after an
        answer.

    Returns
    -------
    None
        If all checks pass.

    Raises
    ------
    AssertionError
        Lists every promise that the source breaks.

    Examples
    --------
    >>> from masquerade.testing import check_tally
    >>> students = mq.data.students()[["exams", "pills"]]
    >>> check_tally(mq.tally(students), students)
    """
    schema = source.schema
    sample_policy = Policy.clear(schema) if policy is None else policy
    oracle = None
    if records is not None:
        oracle = Oracle(records if isinstance(records, (list, tuple)) else [records], sample_policy)
    clear = None
    if truth is not None:
        from masquerade.sources.tally import tally  # noqa: PLC0415  (loads frames and engines)

        clear = tally(truth, schema=schema)
    chosen = tuple(some_queries(source) if queries is None else queries)
    subject = Subject(source, chosen, oracle, clear, messages)
    problems = [
        f"{check.__name__.replace('_', ' ')}: {problem}" for check in CHECKS for problem in check(subject)
    ]
    if problems:
        raise AssertionError(
            f"{type(source).__name__} is not a proper source of counts:\n- " + "\n- ".join(problems)
        )


def some_queries(source: Tally) -> list[Query]:
    """Return queries of every shape that the source allows: margins, pairs, a triple, conditions."""
    schema: Schema = source.schema
    names = list(schema)[:6]
    first, last = names[0], names[-1]
    label = schema[first].categories[0]
    candidates = [
        Query(),
        *(Query(by=name) for name in names),
        *(Query(by=pair) for pair in list(pairwise(names))[:4]),
        Query(by=names[-3:][::-1]),
        Query(where={first: label}),
        *([Query(by=last, where={first: label})] if last != first else []),
        *(
            [Query(by=names[2:4], where={first: label, names[1]: schema[names[1]].categories[-1]})]
            if len(names) > 2
            else []
        ),
    ]
    fitting = [query for query in candidates if prod(schema.shape(query.names)) <= MOST_CELLS]
    allowed = [query for query in dict.fromkeys(fitting) if not source.check([query])]
    if not any(query.by for query in allowed):
        raise AssertionError(f"{type(source).__name__} refuses every query about a variable.")
    return allowed


def codes(refusals: Sequence[Refusal]) -> list[str]:
    """Return the codes of refusals."""
    return [refusal.code for refusal in refusals]


def differs(title: str, actual: Any, expected: Any) -> Iterator[str]:
    """Yield a message if two arrays differ by more than rounding.

    Parameters
    ----------
    title : str
        Start of the message.
    actual : array_like
        Actual values.
    expected : array_like
        Expected values.

    Yields
    ------
    str
        The difference.
    """
    ours, theirs = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    if ours.shape != theirs.shape:
        yield f"{title}: the shape is {ours.shape}, must be {theirs.shape}"
    elif not np.allclose(ours, theirs, rtol=RELATIVE, atol=ABSOLUTE):
        yield f"{title}: off by up to {np.abs(ours - theirs).max():.3g}"


def same_table(title: str, ours: CountTable, theirs: CountTable, *, dealt: bool = False) -> Iterator[str]:
    """Yield the differences of two tables in values or variances.

    Parameters
    ----------
    title : str
        Start of the messages.
    ours, theirs : CountTable
        Tables to compare.
    dealt : bool, default False
        True if each record reports only some blocks of variables. Another table then uses other records, and
        estimated variances may differ by O(1/n).

    Yields
    ------
    str
        A difference.
    """
    yield from differs(f"{title}: values", ours.values, theirs.values)
    for kind in KINDS:
        actual, expected = (table.covariance.diagonal(kind) for table in (ours, theirs))
        rtol = max(DEALT, 3 / max(ours.n, 1) ** 0.5)
        near = dealt and actual.shape == expected.shape and np.allclose(actual, expected, rtol=rtol)
        yield from () if near else differs(f"{title}: variances, {kind}", actual, expected)
