"""Closed forms against matrices and published figures: second moments, blocks, splits, shuffled counts."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import masquerade as mq
from masquerade.channels.block_designs import subset_second_moment
from masquerade.disguising.seeded import simulate_codes
from masquerade.plan.central import central_epsilon
from masquerade.plan.expected_errors import expected_errors
from masquerade.plan.split import best_split
from masquerade.plan.variance import BlockDeal, axis_moments, best_moment
from masquerade.sources.records import Records


def product_variance(axes):
    """Return the summed and the largest variance of a table's cells for one record, axes disguised apart."""
    second, first = np.ones(()), np.ones(())
    for axis in axes:
        second = np.multiply.outer(second, axis.cells)
        first = np.multiply.outer(first, axis.shares)
    variance = second - first**2
    return variance.sum(), variance.max()


def even(sizes):
    return {name: np.full(size, 1 / size) for name, size in sizes.items()}


@pytest.mark.parametrize("categories", [2, 3, 7])
@pytest.mark.parametrize("gamma", [1.2, 3.0, 20.0])
def test_the_moment_of_a_symmetric_channel_is_the_same_under_any_truth(categories, gamma):
    channel = mq.channels.for_gamma(categories, gamma)
    closed = ((gamma + categories - 2) ** 2 + categories - 1) / (gamma - 1) ** 2
    for truth in np.random.default_rng(1).dirichlet(np.ones(categories), size=3):
        assert axis_moments(channel, truth).total == pytest.approx(closed)
    assert subset_second_moment(categories, gamma, 1) == pytest.approx(closed)


def test_the_best_moment_is_that_of_the_best_subsets():
    for categories, gamma in ((6, math.e), (8, math.exp(0.5)), (20, 2.0)):
        values = [subset_second_moment(categories, gamma, size) for size in range(1, categories)]
        assert best_moment(categories, gamma) == min(values)
    channel = mq.channels.subset_selection(6, gamma="27/10")
    truth = np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.05])
    assert axis_moments(channel, truth).total == pytest.approx(best_moment(6, 2.7))


def test_variables_apart_multiply():
    channels = [mq.channels.for_gamma(3, 4), mq.channels.binary("0.1", "0.3")]
    shares = [np.array([0.5, 0.3, 0.2]), np.array([0.7, 0.3])]
    total, worst = product_variance([axis_moments(c, s) for c, s in zip(channels, shares, strict=True)])
    both = np.kron(channels[0].matrix, channels[1].matrix)
    inverse, truth = np.linalg.inv(both), np.kron(*shares)
    variance = (truth @ both) @ inverse**2 - truth**2
    assert total == pytest.approx(variance.sum())
    assert worst == pytest.approx(variance.max())


def test_a_table_inside_a_joint_channel():
    deal = BlockDeal({"a": 2, "b": 3, "c": 4}, 3, 5.0)
    shares = {"a": np.array([0.3, 0.7]), "b": np.array([0.2, 0.3, 0.5]), "c": np.full(4, 0.25)}
    squares = float((shares["a"] ** 2).sum() * (shares["b"] ** 2).sum())
    assert deal.variance(("a", "b"), shares) + squares == pytest.approx(41.0)


@pytest.mark.parametrize(
    ("variables", "epsilon", "optimum"),
    [
        (3, 0.5, 219.370),
        (3, 1, 49.162),
        (4, 0.5, 698.083),
        (4, 1, 155.754),
        (4, 2, 37.003),
        (4, 3, 15.598),
    ],
)
def test_class_response_reaches_the_global_optimum_for_all_pairs(variables, epsilon, optimum):
    """The optimum over all channels with this ε, by the convex problem reduced to its symmetry group."""
    sizes = {f"x{i}": 2 for i in range(variables)}
    pairs = math.comb(variables, 2)
    found = [
        pairs * BlockDeal(sizes, k, math.exp(epsilon), cells).variance(("x0", "x1"), even(sizes)) + pairs / 4
        for k in range(1, variables + 1)
        for cells in np.linspace(0.01, 1, 199)
        if k < variables or cells == 1
    ]
    assert min(found) == pytest.approx(optimum, rel=2e-4)


def test_blocks_of_several_sizes_agree_with_their_map():
    """Against the inverse of the whole dealt channel, weighted as Gauss and Markov would at even truths."""
    sizes = {"a": 2, "b": 3, "c": 2}
    deal = BlockDeal(sizes, 2, 4.0)
    table, gamma = ("a", "b"), 4.0
    parts = []
    for block in combinations(sizes, 2):
        classes = math.prod(sizes[name] for name in block)
        channel = mq.channels.for_gamma(classes, 4).matrix / 3
        keep = [name for name in block if name in table]
        rows = []
        for a in range(2):
            for b in range(3):
                row = np.zeros(classes)
                for c in range(2):
                    code = np.ravel_multi_index(
                        [{"a": a, "b": b, "c": c}[name] for name in block], [sizes[name] for name in block]
                    )
                    row += channel[code] / 2
                rows.append(row)
        parts.append((keep, np.array(rows)))
    whole = np.hstack([part for _, part in parts])
    assert gamma == 4.0
    information = (whole / (np.full(6, 1 / 6) @ whole)) @ whole.T
    total = np.trace(np.linalg.inv(information)) - 1 / 6
    assert deal.variance(table, even(sizes)) == pytest.approx(total, rel=1e-9)


def test_what_no_block_holds_is_infinitely_uncertain():
    sizes = dict.fromkeys("abcd", 2)
    assert BlockDeal(sizes, 2, 3.0).variance(("a", "b", "c"), even(sizes)) == math.inf
    assert BlockDeal(sizes, 1, 3.0).variance(("a", "b"), even(sizes)) == math.inf


def test_a_split_gives_more_to_what_needs_more():
    pairs = list(combinations(range(5), 2))
    found = best_split((2, 2, 2, 5, 10), pairs, 2.0, symmetric=True)
    assert found == pytest.approx([0.257, 0.257, 0.257, 0.500, 0.729], abs=6e-4)
    bayes = best_split((2,) * 6, [(0, other) for other in range(1, 6)], 3.0)
    assert bayes == pytest.approx([1.188, *[0.362] * 5], abs=6e-4)
    assert best_split((2, 3, 4), [(0, 2)], 1.0)[1] == 0  # nobody asks for it


def test_a_split_is_an_optimum():
    rng = np.random.default_rng(3)
    sizes, tables = (2, 3, 8, 2), [(0, 1), (1, 2), (2, 3), (0, 1, 2)]

    def total(epsilons):
        moments = [best_moment(size, math.exp(e)) for size, e in zip(sizes, epsilons, strict=True)]
        return sum(math.prod(moments[i] for i in table) for table in tables)

    best = best_split(sizes, tables, 2.5)
    assert best.sum() == pytest.approx(2.5)
    for _ in range(50):
        other = np.maximum(best + rng.normal(0, 0.05, 4), 0.01)
        assert total(best) <= total(other * 2.5 / other.sum()) * (1 + 1e-9)


def test_published_counts_of_shuffled_reports():
    found = [central_epsilon(1.0, n, 1e-6, 2) for n in (10**3, 10**4, 10**5)]
    assert found == pytest.approx([0.149, 0.043, 0.0124], rel=0.01)
    assert central_epsilon(4.0, 10**5, 1e-6, 2) == pytest.approx(0.118, rel=0.01)
    assert central_epsilon(1.0, 1, 1e-6) == pytest.approx(1.0, abs=1e-5)


def test_the_bound_on_published_counts_holds_exactly_for_one_question():
    """Others all answer no: the exact distribution of the count of reports tells no more than claimed."""
    epsilon, n = 1.0, 1000
    p = 1 / (1 + math.exp(epsilon))
    others = stats.binom.pmf(np.arange(n + 1), n - 1, p)
    shifted = np.append(0.0, others[:-1])
    yes, no = (1 - p) * shifted + p * others, p * shifted + (1 - p) * others
    claimed = central_epsilon(epsilon, n, 1e-6, 2)
    for first, second in ((yes, no), (no, yes)):
        assert np.maximum(first - math.exp(claimed) * second, 0).sum() <= 1e-6


@pytest.mark.parametrize("sizes", [[4] * 6, [2, 3, 4, 5, 2, 3]], ids=["equal blocks", "mixed sizes"])
def test_the_largest_error_of_a_dealt_variable_is_the_one_that_its_reports_have(sizes):
    """The errors of 200,000 reports vary by less than 2% around the expected ones."""
    levels = {f"q{place}": [str(number) for number in range(size)] for place, size in enumerate(sizes)}
    shares = {
        name: np.array([0.7, *[0.3 / (size - 1)] * (size - 1)])
        for name, size in zip(levels, sizes, strict=True)
    }
    n = 200_000
    policy = mq.plan(levels, privacy=19.0, n=n).policy
    generator = np.random.default_rng(5)
    codes = {name: generator.choice(len(own), size=n, p=own) for name, own in shares.items()}
    source = Records(simulate_codes(codes, policy, np.random.default_rng(6)), policy)
    for name, own in shares.items():
        (expected,) = expected_errors(policy, [(name,)], shares)
        table = source.answer([mq.Query(by=(name,))])[0]
        errors = table.stderr() / n
        assert math.sqrt(expected.worst / n) == pytest.approx(errors.max(), rel=0.02)
        assert math.sqrt(expected.variance / n) == pytest.approx(math.sqrt((errors**2).mean()), rel=0.02)
        if len(own) > 2:
            assert expected.worst > 1.2 * expected.variance
