"""Decision trees from any source of counts: ID3 and C4.5's gain ratio, with significance tests of splits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from masquerade.core.answered_tally import ModelMissing, missing_answers_of, people_who_answered
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, ratio_errors
from masquerade.core.links.deviance_test import LinkTest, link_tests
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.learn.classifiers._information_gain import clip_counts, information_gain, split_information
from masquerade.learn.classifiers.prediction_rows import chosen_features
from masquerade.learn.classifiers.tree_model import CRITERIA, Criterion, DecisionNode, DecisionTree, TreeSplit

MOST_TESTED_CELLS = 4096
ROUNDING = 1e-9


def decision_tree(
    source: Tally,
    target: str,
    features: Sequence[str] | None = None,
    criterion: Criterion = "gain",
    *,
    max_depth: int | None = None,
    min_records: float = 1.0,
    significance: float | None = 0.05,
    prune: float | None = None,
    missing: ModelMissing = "answered",
) -> DecisionTree:
    """Learn a decision tree; each split is by one feature, with one branch per category.

    Class probabilities come from the branch's own counts with negatives set to zero, and their standard
    errors from the delta method for N̂_k/N̂. A branch with too few estimated records becomes a leaf marked
    `borrowed`, which has the classes of its parent. A `MasqueradeWarning` gives the number of leaves whose
    estimate is not positive.

    Parameters
    ----------
    source : Tally
        Source of counts.
    target : str
        Variable to predict.
    features : sequence of str, optional
        Variables to predict from. Without it, all other variables.
    criterion : {"gain", "gain_ratio"}
        Criterion of a split.
    max_depth : int, optional
        Most splits on a path. Without it, no limit.
    min_records : float, default 1.0
        Minimum number of records in at least two branches of a split.
    significance : float or None, default 0.05
        Level of the test of a split. If the target depends on no feature, a node is split with at most this
        probability, however noisy the records. None turns the test off.
    prune : float, optional
        Confidence at which the tree is pruned by pessimistic errors (C4.5 uses 0.25): see
        `DecisionTree.prune`.
    missing : {"answered", "category"}, default "answered"
        Count people who answered, or count missing answers as categories.

    Returns
    -------
    DecisionTree
        The tree.

    Raises
    ------
    InputError
        If an option is not valid, the source has no records, or a table is too large for the test.
    QueryRefused
        If the source refuses a query.

    Notes
    -----
    Formula: at every node the feature with the largest information gain H(target) − Σ_v P(v)·H(target | v)
    (``gain``), or with the largest gain/H(feature) among those of at least average gain (``gain_ratio``),
    from conditioned counts N̂(feature, target | path) with negatives set to zero and rescaled (clip). A split
    must pass the test of links on the reports (see `masquerade.core.links.deviance_test`), with Bonferroni's
    correction for the features tried at the node.
    Reference: Quinlan (1986, 1993); Ma (2006), chapter 7.
    Cost: one batch per level, with a two-way query per open node and remaining feature. Conditions are
    weights inside the source, so tables do not grow with depth.
    Error: gains within 1e-9·n of each other are ties, won by the first feature in the schema.

    Examples
    --------
    >>> print(mq.learn.decision_tree(mq.tally(mq.data.students()), "sleep").to_text())
    n = 600
    <BLANKLINE>
    node) condition, records ± stderr, sleep, P(bad, good) ± stderr
          * leaf   ~ fewer than five standard errors of records   ! too few records: parent's classes
    <BLANKLINE>
    0) root  600 ± 0  good  (0.337 ± 0.019  0.663 ± 0.019)
      1) pills=no  474 ± 10  good  (0.249 ± 0.020  0.751 ± 0.020) *
      2) pills=yes  126 ± 10  bad  (0.667 ± 0.042  0.333 ± 0.042) *
    ± takes the splits as given: it does not cover the choice of splits from the same records
    """
    source = people_who_answered(source, missing)
    check_options(criterion, max_depth, min_records, significance, prune)
    schema = source.schema
    chosen_names = chosen_features(schema, target, features)
    names = tuple(name for name in schema if name in chosen_names)
    if significance is not None:
        check_sizes(schema, schema[target], names)
    rules = SplitRules(criterion, float(min_records), significance)
    root = OpenNode(0, (), names if max_depth != 0 else ())
    overall, *tables = source.answer([Query(by=target), *level_queries([root], target)])
    if not overall.total > ROUNDING * overall.n:
        raise InputError("A tree needs records, but the source has none.")
    nodes = [node_of(overall.values, overall.covariance.within((0,)), (-1, -1, 0))]
    open_nodes = [root] if tables and is_mixed(nodes[0]) else []
    while open_nodes:
        open_nodes = split_level(schema, nodes, open_nodes, tables, rules)
        if not open_nodes or nodes[-1].depth == max_depth:
            break
        tables = source.answer(level_queries(open_nodes, target))
    empty = sum(node.borrowed and node.records <= 0 for node in nodes)
    if empty:
        warnings.warn(
            f"{empty} of {len(nodes)} nodes have no records by estimate and use their parent's classes "
            "(marked 'borrowed').",
            MasqueradeWarning,
            stacklevel=2,
        )
    tree = DecisionTree(
        schema[target],
        tuple(schema[name] for name in names),
        tuple(nodes),
        overall.n,
        criterion,
        significance,
        missing_answers_of(source),
    )
    return tree if prune is None else tree.prune(prune)


@dataclass(frozen=True, slots=True)
class SplitRules:
    """Conditions on a split."""

    criterion: Criterion
    min_records: float
    significance: float | None


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A node that may still be split: its index, the conditions that lead to it, the remaining features."""

    place: int
    path: tuple[tuple[str, Category], ...]
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SplitCandidate:
    """A feature that could split a node."""

    feature: str
    table: CountTable
    gain: float
    split_information: float

    @property
    def ratio(self) -> float:
        """Return the gain ratio."""
        return self.gain / self.split_information if self.split_information > 0 else 0.0


def level_queries(open_nodes: Sequence[OpenNode], target: str) -> list[Query]:
    """Return the queries of a level: feature × target under the conditions of every open node."""
    return [Query(by=(name, target), where=node.path) for node in open_nodes for name in node.candidates]


def split_level(
    schema: Schema,
    nodes: list[DecisionNode],
    open_nodes: Sequence[OpenNode],
    tables: Sequence[CountTable],
    rules: SplitRules,
) -> list[OpenNode]:
    """Split open nodes where a split is found, append branches to `nodes`, and return the open branches."""
    answers = zip(tables, scores(tables, rules), strict=True)
    following: list[OpenNode] = []
    for node in open_nodes:
        scored = [(name, *next(answers)) for name in node.candidates]
        possible = [SplitCandidate(name, table, *score) for name, table, score in scored if score[0] > 0]
        choice = choose(possible, nodes[node.place].records, rules)
        if choice is None:
            continue
        chosen, test = choice
        first = len(nodes)
        children = branches(chosen.table, nodes[node.place], node.place, rules)
        nodes += children
        places = tuple(range(first, len(nodes)))
        split = TreeSplit(chosen.feature, places, chosen.gain, chosen.ratio)
        if test is not None:
            split = replace(
                split, statistic=test.statistic, p_value=test.p_value, df=test.df, tried=len(possible)
            )
        nodes[node.place] = replace(nodes[node.place], split=split)
        left = tuple(name for name in node.candidates if name != chosen.feature)
        labels = schema[chosen.feature].categories
        following += [
            OpenNode(first + code, (*node.path, (chosen.feature, labels[code])), left)
            for code, child in enumerate(children)
            if left and not child.borrowed and is_mixed(child)
        ]
    return following


def scores(tables: Sequence[CountTable], rules: SplitRules) -> list[tuple[float, float]]:
    """Return gain and split information of every table; the gain is 0 where a split is not possible.

    Tables of one shape are processed together. A gain of less than 1e-9 of the records is rounding, and
    counts as 0.
    """
    result = [(0.0, 0.0)] * len(tables)
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for place, table in enumerate(tables):
        by_shape.setdefault(table.values.shape, []).append(place)
    for places in by_shape.values():
        values = np.stack([tables[place].values for place in places])
        dust = ROUNDING * tables[places[0]].n
        rows = values.sum(axis=-1)
        full = (has_records(rows, rules.min_records, dust)).sum(axis=-1) >= 2
        positive = clip_counts(values)
        gains = information_gain(positive)
        gains[~full | (gains * positive.sum(axis=(-2, -1)) <= dust)] = 0.0
        for place, gain, information in zip(
            places, gains.tolist(), split_information(positive).tolist(), strict=True
        ):
            result[place] = (gain, information)
    return result


def has_records(records: Floats, min_records: float, dust: float) -> Flags:
    """Return True for every branch with enough estimated records; `dust` is the rounding error of a count."""
    return (records > dust) & (records >= min_records - dust)


def choose(
    candidates: Sequence[SplitCandidate], records: float, rules: SplitRules
) -> tuple[SplitCandidate, LinkTest | None] | None:
    """Return the best significant split and its test, or None."""
    if not candidates:
        return None
    dust = ROUNDING * candidates[0].table.n / records
    for candidate in rank_candidates(candidates, rules.criterion, dust):
        if rules.significance is None:
            return candidate, None
        # with conditions on disguised variables, the likelihood would be of a much larger table
        alone = replace(candidate.table, evidence=candidate.table.evidence.restrict_to_table())
        least = (1 + ROUNDING) * rules.significance / len(candidates)
        (test,) = link_tests([alone], [(0, 1)], partial(np.random.default_rng, 0), matters=least)
        corrected = min(test.p_value * len(candidates), 1.0)
        if corrected <= rules.significance:
            return candidate, replace(test, p_value=corrected)
    return None


def rank_candidates(
    candidates: Sequence[SplitCandidate], criterion: Criterion, dust: float
) -> Iterator[SplitCandidate]:
    """Yield candidates, the best first; ties go to the first in the schema."""
    left = list(candidates)
    average = sum(candidate.gain for candidate in left) / len(left)
    while left:
        if criterion == "gain":
            pool, figures = left, [candidate.gain for candidate in left]
            slack = [dust] * len(left)
        else:  # Quinlan's guard: the ratio is meaningless for a feature that hardly splits
            pool = [candidate for candidate in left if candidate.gain >= average - dust] or left
            figures = [candidate.ratio for candidate in pool]
            slack = [dust / max(candidate.split_information, dust) for candidate in pool]
        best = max(figures)
        place = next(i for i, figure in enumerate(figures) if figure + slack[i] >= best)
        yield pool[place]
        left.remove(pool[place])


def branches(table: CountTable, parent: DecisionNode, place: int, rules: SplitRules) -> list[DecisionNode]:
    """Return the nodes below a split, in the order of the feature's categories."""
    rows = table.values.shape[0]
    blocks = table.covariance.within((1,))
    full = has_records(table.values.sum(axis=1), rules.min_records, ROUNDING * table.n)
    children = []
    for code in range(rows):
        child = node_of(table.values[code], blocks[code], (place, code, parent.depth + 1))
        if not full[code]:
            child = replace(child, probabilities=parent.probabilities, stderr=parent.stderr, borrowed=True)
        children.append(child)
    return children


def node_of(counts: Floats, covariance: Floats, where: tuple[int, int, int]) -> DecisionNode:
    """Return a leaf with class probabilities and their errors from its class counts.

    Formula: θ_k = N̂_k/N̂, errors by `ratio_errors`. If no count is positive, the distribution is uniform, to
    be replaced by the parent's.
    """
    records = float(counts.sum())
    variance = float(covariance.sum())
    positive = np.maximum(counts, 0.0)
    if records <= 0:
        share, error = np.full(counts.size, 1 / counts.size), np.zeros(counts.size)
    else:
        error = ratio_errors(counts / records, covariance, np.asarray(records)).stderr
        share = positive / positive.sum()
    return DecisionNode(
        *where, np.array(counts), records, max(variance, 0.0) ** 0.5, share, error, borrowed=False
    )


def is_mixed(node: DecisionNode) -> bool:
    """Return True if a node has more than one class, so that a split can help."""
    return float(node.probabilities.max()) < 1 - ROUNDING


def check_sizes(schema: Schema, target: Variable, names: Sequence[str]) -> None:
    """Raise InputError if a feature's table with the target is too large for the covariance of the test."""
    for name in names:
        cells = len(schema[name]) * len(target)
        if cells > MOST_TESTED_CELLS:
            raise InputError(
                f"Feature {name!r} with target {target.name!r} makes {cells:,} cells; the significance test "
                f"takes {MOST_TESTED_CELLS:,} at most. Omit it, merge categories, or pass "
                "significance=None."
            )


def check_options(
    criterion: str,
    max_depth: int | None,
    min_records: float,
    significance: float | None,
    prune: float | None,
) -> None:
    """Raise InputError if an option is not valid."""
    if criterion not in CRITERIA:
        raise InputError(
            f"The 'criterion' must be one of {', '.join(map(repr, CRITERIA))}. Got {criterion!r} instead."
        )
    if max_depth is not None and (max_depth < 0 or int(max_depth) != max_depth):
        raise InputError(f"The 'max_depth' must be a whole number, at least 0, or None. Got {max_depth}.")
    if not 0 <= min_records < np.inf:
        raise InputError(f"The 'min_records' must not be negative. Got {min_records} instead.")
    if significance is not None and not 0 < significance < 1:
        raise InputError(f"The 'significance' must be between 0 and 1, or None. Got {significance} instead.")
    if prune is not None and not 0 < prune <= 0.5:
        raise InputError(f"'prune' must be a confidence in (0, 0.5], or None. Got {prune} instead.")
