"""Averages of structures: frequent links, in their frequent direction, without a cycle."""

import pytest

from masquerade.core.errors import InputError
from masquerade.learn.averaged_network import averaged
from masquerade.learn.graph import ancestral_order, links

CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
FORK = {"a": ("b",), "b": (), "c": ("b",)}


def test_averages_keep_frequent_links_in_their_frequent_direction():
    mean = averaged([CHAIN, CHAIN, FORK, {"a": (), "b": (), "c": ("a",)}])
    assert mean.structure == CHAIN
    assert mean.frequency == {("a", "b"): 0.5, ("a", "c"): 0.25, ("b", "a"): 0.25, ("b", "c"): 0.75}
    assert "* b → c  0.750" in mean.summary()
    assert averaged([CHAIN, FORK], threshold=0.99).structure == CHAIN  # a tie: from the earlier node


def test_averages_have_no_cycle():
    """Every structure is acyclic, the three most frequent directions are not."""
    turned = [
        {"a": (), "b": ("a",), "c": ("b",)},
        {"a": ("c",), "b": (), "c": ("b",)},
        {"a": ("c",), "b": ("a",), "c": ()},
    ]
    mean = averaged(turned)
    assert set(ancestral_order(mean.structure)) == set(CHAIN)
    assert len(links(mean.structure)) == 3
    with pytest.raises(InputError, match="at least one"):
        averaged([])
    with pytest.raises(InputError, match="same nodes"):
        averaged([CHAIN, {"a": ()}])
    with pytest.raises(InputError, match="threshold"):
        averaged([CHAIN], threshold=1.0)
