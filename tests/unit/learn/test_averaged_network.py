"""Averages of structures: frequent links, in their frequent direction, without a cycle."""

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks.averaged_network import ResampledTally, average_structures, resampled_network
from masquerade.learn.networks.graph import ancestral_order, links
from masquerade.sources.records import Records

CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
FORK = {"a": ("b",), "b": (), "c": ("b",)}


def test_averages_keep_frequent_links_in_their_frequent_direction():
    mean = average_structures([CHAIN, CHAIN, FORK, {"a": (), "b": (), "c": ("a",)}])
    assert mean.structure == CHAIN
    assert mean.frequency == {("a", "b"): 0.5, ("a", "c"): 0.25, ("b", "a"): 0.25, ("b", "c"): 0.75}
    assert "* b → c  0.750" in mean.summary()
    assert (
        average_structures([CHAIN, FORK], threshold=0.99).structure == CHAIN
    )  # a tie: from the earlier node


def test_averages_have_no_cycle():
    """Every structure is acyclic, the three most frequent directions are not."""
    turned = [
        {"a": (), "b": ("a",), "c": ("b",)},
        {"a": ("c",), "b": (), "c": ("b",)},
        {"a": ("c",), "b": ("a",), "c": ()},
    ]
    mean = average_structures(turned)
    assert set(ancestral_order(mean.structure)) == set(CHAIN)
    assert len(links(mean.structure)) == 3
    with pytest.raises(InputError, match="at least one"):
        average_structures([])
    with pytest.raises(InputError, match="same nodes"):
        average_structures([CHAIN, {"a": ()}])
    with pytest.raises(InputError, match="threshold"):
        average_structures([CHAIN], threshold=1.0)


def chain_of_three(n=4000, p="0.1"):
    """Return a, b, c with a strong link a → b and none to c, disguised."""
    generator = np.random.default_rng(1)
    a, c = generator.integers(0, 2, n), generator.integers(0, 2, n)
    b = np.where(generator.random(n) < 0.8, a, 1 - a)
    channels = {name: mq.channels.symmetric(2, p) for name in "abc"}
    policy = mq.Policy.build({name: [0, 1] for name in "abc"}, channels)
    codes = {name: column.astype(np.uint8) for name, column in zip("abc", (a, b, c), strict=True)}
    return Records(simulate_codes(codes, policy, generator), policy)


def test_links_that_chance_does_not_touch_are_in_all_samples():
    done = []
    found = resampled_network(
        chain_of_three(),
        ["a", "b", "c"],
        samples=20,
        progress=lambda i, n: done.append((i, n)),
        max_parents=1,
    )
    assert found.frequency["a", "b"] == 1.0
    assert max(found.frequency.get(link, 0.0) for link in (("a", "c"), ("b", "c"))) < 0.5
    assert found.structure == {"a": (), "b": ("a",), "c": ()}
    assert done == [(i + 1, 20) for i in range(20)]
    assert resampled_network(chain_of_three(), samples=3, seed=5).frequency == (
        resampled_network(chain_of_three(), samples=3, seed=5).frequency
    )


def test_every_question_is_asked_once_and_tables_stay_what_they_are():
    class Asked(Records):
        times = 0

        def answer(self, queries):
            Asked.times += 1
            return super().answer(queries)

    plain = chain_of_three()
    source = Asked(plain.codes, plain.policy)
    resampled_network(source, ["a", "b", "c"], samples=4, max_parents=1)
    assert Asked.times == 1
    query = mq.Query(by=("a", "b"))
    first, again, other = (ResampledTally(plain, seed).answer([query])[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)
    assert first.total == pytest.approx(4000)
    assert first.fit(["a", "b"]).deviance > 100


def test_values_with_a_covariance_are_drawn_by_the_normal_distribution():
    weights = np.random.default_rng(2).choice([1.0, 3.0], 4000)
    plain = chain_of_three()
    source = Records(plain.codes, plain.policy, weights)
    (table,) = source.answer([mq.Query(by=("a", "b"))])
    samples = [ResampledTally(source, seed).answer([mq.Query(by=("a", "b"))])[0] for seed in range(300)]
    drawn = np.array([sample.values for sample in samples])
    ratio = drawn.var(axis=0, ddof=1) / table.covariance.diagonal()
    assert 0.5 < ratio.min() <= ratio.max() < 2


def test_no_sample_is_refused():
    with pytest.raises(InputError, match="'samples'"):
        resampled_network(chain_of_three(100), samples=0)
