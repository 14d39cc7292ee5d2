"""Draws are exactly rational: every word's report is known in advance, and draw() gives that report."""

import copy
import dataclasses
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from masquerade.crypto.symmetric import Keystream
from masquerade.kernels.draw import UNDECIDED, draw, draw_table, report_of_word

LAST_WORD = (1 << 64) - 1


def table_of(rows, reports=None):
    width = max(len(row) for row in rows)
    weights = np.array([row + [0] * (width - len(row)) for row in rows], dtype=np.int64)
    outcomes = np.tile(np.arange(width), (len(rows), 1))
    return draw_table(outcomes, weights, reports or width)


def words_of(values):
    return np.array(values, dtype=np.uint64)


def report(table, row, value):
    return int(report_of_word(np.array([row], dtype=np.int32), words_of([value]), table)[0])


class Replay:
    """A byte source that hands out what it was given, then complains."""

    def __init__(self, data):
        self.data, self.position = np.frombuffer(data, dtype=np.uint8), 0

    def __call__(self, n):
        taken = self.data[self.position : self.position + n].copy()
        assert taken.size == n, "more bytes were asked for than the words need"
        self.position += n
        return taken


def seeded(seed):
    generator = np.random.default_rng(seed)
    return lambda n: generator.integers(0, 256, n, dtype=np.uint8)


weight_rows = st.lists(st.integers(1, 1 << 16), min_size=1, max_size=16)


@given(weight_rows)
@settings(max_examples=25, deadline=None)
def test_every_draw_of_the_total_hits_each_outcome_exactly_its_weight(weights):
    table, total = table_of([weights]), sum(weights)
    q = (1 << 64) // total
    starts = np.arange(total, dtype=np.uint64) * np.uint64(q % (1 << 64))
    rows = np.zeros(total, dtype=np.uint8)
    for words in (starts, starts + np.uint64(q - 1)):
        hits = report_of_word(rows, words, table)
        assert np.bincount(hits, minlength=len(weights)).tolist() == weights
    if total * q <= LAST_WORD:
        assert report(table, 0, total * q) == -1
        assert report(table, 0, LAST_WORD) == -1


@given(st.lists(st.integers(1, 1 << 59), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_interval_ends_of_large_totals(weights):
    table = table_of([weights])
    q, cumulated = (1 << 64) // sum(weights), 0
    for outcome, weight in enumerate(weights):
        assert report(table, 0, cumulated * q) == outcome
        cumulated += weight
        last = int(table.last[0, outcome])
        assert last == cumulated * q - 1
        assert report(table, 0, last) == outcome
        after = outcome + 1 if outcome + 1 < len(weights) else -1
        assert last == LAST_WORD or report(table, 0, last + 1) == after


@pytest.mark.parametrize("total", [1, 2, 256, 1 << 20, 1 << 62])
def test_a_power_of_two_rejects_no_word(total):
    weights = [total // 2, total - total // 2] if total > 1 else [1]
    table = table_of([weights])
    assert int(table.last[0, -1]) == LAST_WORD
    assert report(table, 0, LAST_WORD) == len(weights) - 1


def test_one_in_two_to_the_62():
    table = table_of([[1, (1 << 62) - 1], [(1 << 62) - 1, 1]])
    assert [report(table, 0, word) for word in (0, 3, 4)] == [0, 0, 1]
    assert [report(table, 1, LAST_WORD - d) for d in (0, 3, 4)] == [1, 1, 0]
    assert (draw(np.zeros(1000, dtype=np.uint8), table, seeded(1)) == 1).all()


@given(st.lists(weight_rows, min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_byte_table_agrees_with_both_ends_of_each_byte(rows):
    table = table_of(rows)
    lowest = np.arange(256, dtype=np.uint64) << np.uint64(56)
    for row in range(len(rows) if table.first.size else 0):
        codes = np.full(256, row, dtype=np.uint8)
        low = report_of_word(codes, lowest, table)
        high = report_of_word(codes, lowest + np.uint64((1 << 56) - 1), table)
        expected = np.where((low == high) & (high >= 0), high, UNDECIDED)
        assert (table.first[row] == expected).all()


def test_words_are_found_without_the_table_of_starts():
    generator = np.random.default_rng(4)
    table = table_of(generator.integers(1, 100, (5, 60)).tolist())
    plain = dataclasses.replace(table, start=np.empty((0, 257), dtype=np.int32))
    codes = generator.integers(0, 5, 10_000, dtype=np.uint8)
    words = np.frombuffer(generator.bytes(80_000), dtype=np.uint64)
    expected = [np.searchsorted(table.last[row], word) for row, word in zip(codes, words, strict=True)]
    assert (report_of_word(codes, words, plain) == expected).all()
    assert (report_of_word(codes, words, table) == expected).all()
    many = table_of([[1, 2]] * 5000)
    assert many.start.size == 0
    assert report(many, 4999, LAST_WORD // 2) == 1


def test_draw_replays_decided_undecided_and_rejected_words():
    table = table_of([[6, 1, 1, 1, 1], [1, 6, 1, 1, 1]])
    cut = int(table.last[0, 0])
    words = [
        [cut],  # undecided by its byte, the last word of outcome 0
        [0],  # decided at once
        [cut + 1],  # undecided, the first word of outcome 1
        [LAST_WORD, LAST_WORD - 1, int(table.last[0, 4])],  # rejected twice
        [LAST_WORD, 1 << 63],  # rejected once
    ]
    tops = bytes(word[0] >> 56 for word in words)
    tails = [word[0] for word in words if table.first[0, word[0] >> 56] == UNDECIDED]
    assert len(tails) == 4
    rest = [(tail << 8) & LAST_WORD for tail in tails]
    redrawn = [words[3][1], words[4][1], words[3][2]]
    source = Replay(tops + words_of(rest + redrawn).tobytes())
    drawn = draw(np.zeros(5, dtype=np.uint8), table, source)
    assert drawn.tolist() == [0, 0, 1, 4, report(table, 0, 1 << 63)]
    assert source.position == source.data.size


def test_draw_takes_whole_words_where_bytes_decide_too_little():
    table = table_of([[1] * 300])
    assert table.first.size == 0
    values = [0, LAST_WORD, 1 << 63, 12345678901234567890]
    source = Replay(words_of([*values, 1 << 40]).tobytes())
    drawn = draw(np.zeros(4, dtype=np.uint16), table, source)
    expected = [report(table, 0, value) for value in values]
    assert expected[1] == -1
    assert drawn.tolist() == [expected[0], report(table, 0, 1 << 40), *expected[2:]]
    assert drawn.dtype == np.uint16


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize(
    "rows", [[[6, 1, 1, 1, 1]] * 2 + [[1, 2, 3, 4, 5]], [[3] * 40, [1] * 40, [7, 1] * 20]]
)
def test_frequencies_pass_a_chi_square_with_false_alarm_one_in_a_million(dtype, rows):
    n, table = 300_000, table_of(rows)
    codes = (np.arange(n) % len(rows)).astype(dtype)
    drawn = draw(codes, table, seeded(7))
    for row, weights in enumerate(rows):
        seen = np.bincount(drawn[codes == row], minlength=len(weights))
        expected = seen.sum() * np.array(weights) / sum(weights)
        statistic = ((seen - expected) ** 2 / expected).sum()
        assert statistic < chi2.isf(1e-6, len(weights) - 1)


def test_several_threads_draw_from_one_keystream():
    n, weights = 1 << 21, [6, 1, 1, 1, 1]
    drawn = draw(np.zeros(n, dtype=np.uint8), table_of([weights]), Keystream())
    expected = n * np.array(weights) / 10
    statistic = ((np.bincount(drawn, minlength=5) - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(1e-9, 4)


def test_outcomes_may_be_any_reports_and_padding_may_stand_anywhere():
    table = draw_table(np.array([[9, 70_000, 4], [1, 2, 3]]), np.array([[0, 1, 1], [5, 0, 0]]), 70_001)
    assert table.support.tolist() == [2, 1]
    assert [report(table, 0, word) for word in (0, LAST_WORD)] == [70_000, 4]
    assert [report(table, 1, word) for word in (0, LAST_WORD)] == [1, -1 if (1 << 64) % 5 else 1]
    drawn = draw(np.array([0, 1] * 50, dtype=np.uint8), table, seeded(3))
    assert drawn.dtype == np.uint32
    assert set(drawn.tolist()) == {1, 4, 70_000}


def test_one_category_and_no_rows():
    table = table_of([[1]])
    assert draw(np.zeros(10, dtype=np.uint8), table, seeded(1)).tolist() == [0] * 10
    empty = draw(np.empty(0, dtype=np.uint8), table, seeded(1))
    assert empty.size == 0
    assert empty.dtype == np.uint8


@pytest.mark.parametrize(
    "codes", [np.array([0, 2], np.uint8), np.array([-1, 0], np.int32), np.zeros((2, 2), np.uint8)]
)
def test_codes_outside_the_table_are_refused(codes):
    table = table_of([[1, 2], [2, 1]])
    with pytest.raises(ValueError, match="code"):
        draw(codes, table, seeded(1))
    with pytest.raises(ValueError, match="code"):
        report_of_word(codes, np.zeros(codes.shape, dtype=np.uint64), table)


@pytest.mark.parametrize(
    ("outcomes", "weights", "complaint"),
    [
        ([[0, 1]], [[1, -1]], "negative"),
        ([[0, 1]], [[0, 0]], "from 1 to 2"),
        ([[0, 1]], [[1 << 62, 1]], "from 1 to 2"),
        ([[0, 1, 1, 1]], [[(1 << 62)] * 4], "more than 2"),
        ([[0, 2]], [[1, 1]], "outside"),
        ([[0]], [[1, 1]], "both be K by S"),
    ],
)
def test_impossible_tables_are_refused(outcomes, weights, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_table(np.array(outcomes), np.array(weights, dtype=np.int64), 2)


def test_words_and_codes_must_match():
    with pytest.raises(ValueError, match="as many words"):
        report_of_word(np.zeros(2, dtype=np.uint8), words_of([1]), table_of([[1]]))


def test_a_keystream_never_repeats_itself():
    source = Keystream()
    first, second = source(64), source(64)
    assert first.tobytes() != second.tobytes()
    assert source(0).size == 0
    long = source((1 << 20) + 5)
    assert long[: 1 << 19].tobytes() != long[1 << 19 : 1 << 20].tobytes()
    assert Keystream()(64).tobytes() != Keystream()(64).tobytes()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_keystream_cannot_be_duplicated(duplicate):
    with pytest.raises(TypeError, match="handed out twice"):
        duplicate(Keystream())


def test_a_forked_child_gets_a_key_of_its_own(monkeypatch):
    source = Keystream()
    source(16)
    key = source._cipher
    monkeypatch.setattr(os, "getpid", lambda: -1)
    source(16)
    assert source._cipher is not key


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_parent_and_forked_child_draw_different_bytes():
    source, receive, send = Keystream(), *os.pipe()
    child = os.fork()
    if child == 0:
        os.write(send, source(64).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receive, 64) != source(64).tobytes()
    os.close(receive)
    os.close(send)
