"""Every draw of a channel, one by one: the sampler gives its rational rows exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import masquerade as mq
from masquerade.kernels.draw import UNDECIDED, report_of_word

c = mq.channels
CHANNELS = {
    "identity": c.identity(3),
    "binary": c.binary("0.1", "0.25"),
    "symmetric": c.symmetric(5, "0.4"),
    "ternary": c.ternary("0.15", "0.1"),
    "grouped": c.within_groups([[0, 2], [1, 3, 4]], [c.binary("0.2"), c.symmetric(3, "0.3")]),
    "matrix": c.matrix([["1/3", "1/7", "11/21", "0"], ["0.001", "0.999", "0", "0"], ["0", "0", "0", "1"]]),
    "flip": c.flip([2, 2, 2], ["0.7", "0.9"], groups=[[0, 2], [1]]),
    "warner": c.warner("0.8"),
    "unrelated question": c.unrelated_question("0.7", "1/6"),
    "forced response": c.forced_response("1/6", "1/12"),
    "crosswise": c.crosswise("1/4"),
    "kuk": c.kuk("0.8", "0.3", cards=3),
    "for_gamma": c.for_gamma(7, 19),
    "invariant": c.invariant(["0.2", "0.3", "0.5"], c.symmetric(3, "0.3")),
    "additive uniform": c.additive([0, 10, 20, 30], "uniform", 15),
    "composition": c.binary("0.1").then(c.binary("0.2")),
    "large": c.for_gamma(50, "12.5"),
}
LARGE = {
    "for_epsilon": c.for_epsilon(4, 1),
    "additive gaussian": c.additive([0, 10, 20, 30], "gaussian", 10),
    "62 bits": c.matrix([[Fraction(1, 2**62), 1 - Fraction(1, 2**62)], ["1/2", "1/2"]]),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_enumerating_all_draws_gives_the_rows(name):
    channel = CHANNELS[name]
    for truth in range(channel.truths):
        total = int(channel.denominators[truth])
        assert total <= 2**20
        q = 2**64 // total
        draws = np.arange(total, dtype=np.uint64) * np.uint64(q % 2**64)
        codes = np.full(total, truth, dtype=np.int32)
        for words in (draws, draws + np.uint64(q - 1)):
            reports = report_of_word(codes, words, channel.draw_table)
            hits = np.bincount(reports, minlength=channel.reports)
            assert {m: Fraction(int(n), total) for m, n in enumerate(hits) if n} == channel.row(truth)


@pytest.mark.parametrize("name", LARGE)
def test_interval_boundaries_give_the_rows_where_draws_are_too_many(name):
    channel = LARGE[name]
    table = channel.draw_table
    for truth in range(channel.truths):
        q = 2**64 // int(channel.denominators[truth])
        start, found = 0, {}
        for place in range(int(table.support[truth])):
            end = int(table.last[truth, place])
            report = int(table.outcomes[truth, place])
            ends = np.array([start, end], dtype=np.uint64)
            assert report_of_word(np.full(2, truth), ends, table).tolist() == [report, report]
            found[report] = Fraction(end + 1 - start, q * int(channel.denominators[truth]))
            start = end + 1
        assert found == channel.row(truth)
        if start < 2**64:
            rejected = np.array([start, 2**64 - 1], dtype=np.uint64)
            assert report_of_word(np.full(2, truth), rejected, table).tolist() == [-1, -1]


@pytest.mark.parametrize("name", [*CHANNELS, *LARGE])
def test_a_top_byte_decides_only_what_all_its_words_agree_on(name):
    table = (CHANNELS | LARGE)[name].draw_table
    for truth in range(len(table.first)):
        low = np.arange(256, dtype=np.uint64) << np.uint64(56)
        both = [report_of_word(np.full(256, truth), low + np.uint64(w), table) for w in (0, 2**56 - 1)]
        decided = table.first[truth] != UNDECIDED
        assert np.all(both[0][decided] == table.first[truth][decided])
        assert np.all(both[1][decided] == table.first[truth][decided])
