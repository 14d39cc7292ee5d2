"""Does a source of counts keep its promises? Checks for authors of a `Tally`, of this package or another.

`check_tally(source, records, policy)` is for sources whose answers are a function of the records: values and
both kinds of standard errors must be those of a slow second implementation, digit by digit.
`check_tally(source, truth=clear)` is for sources that add randomness of their own: answers must be near the
truth for the errors that they claim. Everything else is asked of both: shapes, slices, margins, refusals,
tables that are values.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
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

MOST_CELLS = 2048  # of tables that default questions ask for
MOST_FITTED = 16  # cells of tables that models are fitted to, those of variables in conditions included
ALPHA = 1e-6  # false alarm of the comparison with the truth, over all cells of all questions
RELATIVE, ABSOLUTE = 1e-9, 1e-7  # differences that are rounding
DEALT = 0.02  # of variances that are estimated from other samples of the same records


@dataclass
class Subject:
    """A source under test: what to ask it, what it must answer, and how often it spoke to others.

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
        """Tell whether the same question always has the same answer."""
        return self.oracle is not None or self.truth is None

    @property
    def dealt(self) -> bool:
        """Tell whether records were dealt blocks of variables."""
        return self.oracle is not None and self.oracle.dealt

    @cached_property
    def widest(self) -> Query:
        """The unconditioned question about most cells."""
        plain = [query for query in self.queries if not query.where]
        return max(plain, key=lambda query: prod(self.source.schema.shape(query.by)), default=Query())

    def fitted(self, query: Query) -> bool:
        """Tell whether a table is small enough to fit models to; a condition is fitted with what it cuts."""
        return bool(query.by) and prod(self.source.schema.shape(query.names)) <= self.most_fitted

    def allowed(self, *queries: Query) -> bool:
        """Tell whether the source would answer all of these."""
        return not self.source.check(queries)


Check = Callable[[Subject], Iterator[str]]


def is_a_tally(subject: Subject) -> Iterator[str]:
    """Check that it has the four names, and that its guarantee speaks of its variables."""
    source: object = subject.source
    if not isinstance(source, Tally):
        yield "it lacks one of the names schema, guarantee, check, answer"
        return
    named = {name for item in source.guarantee.disclosures for name in item.variables}
    whole = source.source if isinstance(source, Selected) else source  # a part reveals what the whole does
    if not named or not named <= set(whole.schema):
        yield f"its guarantee is about {sorted(named)}, its schema about {list(source.schema)}"


def no_question_gets_no_answer(subject: Subject) -> Iterator[str]:
    """Check that an empty batch costs nothing."""
    if subject.source.answer([]) != [] or subject.source.check([]) != []:
        yield "answer([]) and check([]) must be []"


def answers_have_the_shape_of_their_questions(subject: Subject) -> Iterator[str]:
    """Axes are those asked for, in that order, with their categories; the number of records is one number."""
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
    """Check that a question has the same answer alone and in a batch."""
    for query, table in subject.answers.items() if subject.steady else ():
        (alone,) = subject.source.answer([query])
        yield from differs(f"{query} asked alone", alone.values, table.values)


def answers_equal_the_slow_implementation(subject: Subject) -> Iterator[str]:
    """Values, both kinds of standard errors and both covariances are right to the last digits."""
    if subject.oracle is None:
        return
    for query, table in subject.answers.items():
        wanted = subject.oracle.expected(query)
        yield from differs(f"{query}: values", table.values.ravel(), wanted.values)
        for kind, matrix in zip(KINDS, (wanted.population, wanted.given_records), strict=True):
            found = table.covariance.diagonal(kind).ravel()
            yield from differs(f"{query}: variances, {kind}", found, np.diag(matrix))
            yield from differs(f"{query}: covariance, {kind}", table.covariance.dense(kind=kind), matrix)


def answers_are_near_the_truth(subject: Subject) -> Iterator[str]:
    """No estimate is further from the true counts than its claimed error allows, but once in a million."""
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
    """Check that a conditioned answer is a slice of the larger table, errors included."""
    for query in subject.queries if subject.steady else ():
        whole = Query(by=query.names)
        if not query.where or not subject.allowed(whole):
            continue
        (larger,) = subject.source.answer([whole])
        yield from same_table(f"{query}", larger.select(dict(query.where)), subject.answers[query])


def margins_are_answers(subject: Subject) -> Iterator[str]:
    """Check that a margin is the answer to the smaller question, and the order of `by` that of the axes."""
    by = subject.widest.by
    smaller = tuple(reversed(by[:2]))
    if not subject.steady or len(by) < 2 or not subject.allowed(Query(by=smaller)):
        return
    (asked,) = subject.source.answer([Query(by=smaller)])
    margin, dealt = subject.answers[subject.widest].marginal(smaller), subject.dealt
    yield from same_table(f"margin {smaller}", margin, asked, dealt=dealt)


def covariances_agree_with_themselves(subject: Subject) -> Iterator[str]:
    """Diagonal, blocks, quadratic forms and the dense matrix are of one covariance, for both kinds."""
    for query, table in subject.answers.items():
        covariance, cells = table.covariance, table.values.size
        for kind in KINDS:
            dense = covariance.dense(max(cells, 1), kind=kind)
            title = f"{query}: {kind}"
            yield from differs(f"{title} diagonal", covariance.diagonal(kind).ravel(), np.diag(dense))
            weights = np.linspace(-1, 1, cells).reshape(table.values.shape)
            wanted = weights.ravel() @ dense @ weights.ravel()
            scale = max(float(np.abs(dense).max(initial=0.0)), 1.0)
            yield from differs(
                f"{title} quadratic", covariance.quadratic(weights, kind) / scale, wanted / scale
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
    """Where every record counts one, the total of an unconditioned table is exact."""
    if subject.oracle is None:
        return
    table = subject.answers[subject.widest]
    yield from differs("the total", table.total, float(table.n))
    spread = table.covariance.quadratic(np.ones(table.values.shape))
    yield from differs("the variance of the total", spread / max(table.n, 1), 0.0)


def nonnegative_is_a_step_of_its_own(subject: Subject) -> Iterator[str]:
    """Projections have no negative count, keep the total, say what they are, and leave the table alone."""
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
    """Check that no table is likelier than the most likely, and that smaller models fit no better."""
    fitting = [query for query in subject.answers if subject.fitted(query)]
    plain = max((q for q in fitting if not q.where), key=lambda q: len(q.by), default=None)
    conditioned = max((q for q in fitting if q.where), key=lambda q: len(q.names), default=None)
    for query in filter(None, (plain, conditioned)):
        table = subject.answers[query]
        if not np.any(table.values > 0):
            continue
        likely = [table.deviance(np.maximum(table.nonnegative(method).values, 0)) for method in PROJECTIONS]
        if not query.where and likely[0] > min(likely[1:]) + 1e-3 * max(1.0, abs(likely[0])):
            yield f"{query}: the most likely table has the deviance {likely[0]:.6g}, others less"
        models: list[list[Sequence[str]]] = [[query.by], [[name] for name in query.by], []]
        fits = [table.fit(model) for model in models]
        for larger, smaller in pairwise(fits):
            if smaller.deviance < larger.deviance - 1e-3 * max(1.0, larger.deviance):
                yield f"{query}: a smaller model has the deviance {smaller.deviance:.6g}, below a larger one"
        if fits[0].df < 0 or fits[-1].df - fits[0].df != table.values.size - 1:
            yield f"{query}: degrees of freedom {[fit.df for fit in fits]}"


def tables_are_values(subject: Subject) -> Iterator[str]:
    """Tables cannot be changed, pickle, and answer everything without a message to anybody."""
    spoken = 0 if subject.messages is None else subject.messages()
    for query, table in subject.answers.items():
        try:
            table.values[...] = 0
        except ValueError:
            pass
        else:
            yield f"{query}: its values can be overwritten"
        again: CountTable = pickle.loads(pickle.dumps(table))  # noqa: S301  (made here)
        for title, ask in (ASKED | FITTED if subject.fitted(query) else ASKED).items():
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
    """Variables and categories that do not exist are `SchemaError`s, whoever is asked."""
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
    """`check` says the same twice and asks nobody; a batch with one refused question is refused whole."""
    spoken = 0 if subject.messages is None else subject.messages()
    pairs = [Query(by=names) for names in combinations(subject.source.schema, 3)][:20]
    first = [codes(subject.source.check([query])) for query in pairs]
    if first != [codes(subject.source.check([query])) for query in pairs] or subject.source.check(
        subject.queries
    ):
        yield "check() does not say the same twice"
    if subject.messages is not None and subject.messages() != spoken:
        yield "check() sent messages"
    refused = [query for query, found in zip(pairs, first, strict=True) if found]
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
    """Raise an `AssertionError` that lists every promise a source breaks.

    `records` is the pandas frame that the source answers about, disguised under `policy` (or clear), or a
    list of frames of independent samples whose tables add. `truth` are the clear records, for a source that
    adds randomness of its own. `queries` are asked instead of a choice of our own; `messages` returns how
    many messages the source has sent so far, so that none may be sent after an answer.

    >>> from masquerade.testing import check_tally
    >>> students = mq.data.students()[["exams", "pills"]]
    >>> check_tally(mq.tally(students), students)
    """
    schema = source.schema
    known = Policy.clear(schema) if policy is None else policy
    oracle = None
    if records is not None:
        oracle = Oracle(records if isinstance(records, (list, tuple)) else [records], known)
    clear = None
    if truth is not None:
        from masquerade.sources.tally import tally  # noqa: PLC0415  (loads frames and engines)

        clear = tally(truth, schema=schema)
    asked = tuple(some_queries(source) if queries is None else queries)
    subject = Subject(source, asked, oracle, clear, messages)
    problems = [
        f"{check.__name__.replace('_', ' ')}: {problem}" for check in CHECKS for problem in check(subject)
    ]
    if problems:
        raise AssertionError(
            f"{type(source).__name__} is no proper source of counts:\n- " + "\n- ".join(problems)
        )


def some_queries(source: Tally) -> list[Query]:
    """Return questions of every shape that the source allows: margins, pairs, a triple, conditions."""
    schema: Schema = source.schema
    names = list(schema)[:6]
    first, last = names[0], names[-1]
    label = schema[first].categories[0]
    wanted = [
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
    fitting = [query for query in wanted if prod(schema.shape(query.names)) <= MOST_CELLS]
    allowed = [query for query in dict.fromkeys(fitting) if not source.check([query])]
    if not any(query.by for query in allowed):
        raise AssertionError(f"{type(source).__name__} refuses every question about a variable.")
    return allowed


def codes(refusals: Sequence[Refusal]) -> list[str]:
    """Return why questions are refused, as codes."""
    return [refusal.code for refusal in refusals]


def differs(title: str, found: Any, wanted: Any) -> Iterator[str]:
    """Yield a sentence if two arrays differ by more than rounding."""
    ours, theirs = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    if ours.shape != theirs.shape:
        yield f"{title}: the shape is {ours.shape}, must be {theirs.shape}"
    elif not np.allclose(ours, theirs, rtol=RELATIVE, atol=ABSOLUTE):
        yield f"{title}: off by up to {np.abs(ours - theirs).max():.3g}"


def same_table(title: str, ours: CountTable, theirs: CountTable, *, dealt: bool = False) -> Iterator[str]:
    """Yield where two tables differ in values or errors.

    Records that were dealt blocks fall into other samples for another table: their variances are estimates
    that differ by O(1/n).
    """
    yield from differs(f"{title}: values", ours.values, theirs.values)
    for kind in KINDS:
        found, wanted = (table.covariance.diagonal(kind) for table in (ours, theirs))
        rtol = max(DEALT, 3 / max(ours.n, 1) ** 0.5)
        near = dealt and found.shape == wanted.shape and np.allclose(found, wanted, rtol=rtol)
        yield from () if near else differs(f"{title}: variances, {kind}", found, wanted)
