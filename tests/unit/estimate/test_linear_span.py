"""The exact span of answered cells, against fractions; and bounds that non-negative counts leave."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, NotConverged
from masquerade.kernels.field61 import PRIME
from masquerade.sources.control.cell_bounds import CellBounds, CellInterval
from masquerade.sources.control.cell_space import CellSpace
from masquerade.sources.control.linear_span import LinearSpan


def rank_of(rows) -> int:
    """Gauss with fractions."""
    rows, rank = [[Fraction(int(x)) for x in row] for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][column] / rows[rank][column]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank


def sparse(row):
    return {place: int(value) for place, value in enumerate(row)}


def only(*codes):
    return frozenset(codes)


def test_rank_and_membership_are_those_of_fractions():
    rng = np.random.default_rng()
    for _ in range(60):
        width = int(rng.integers(1, 9))
        rows, span, added = [], LinearSpan(), 0
        for row in rng.integers(-3, 4, (int(rng.integers(1, 10)), width)):
            rows.append(row)
            other = span.copy()
            added += span.add(sparse(row))
            assert span.rank == added == rank_of(rows)
            assert other.rank in (added, added - 1)  # a copy stays as it was
        for target in rng.integers(-2, 3, (5, width)):
            assert span.contains(sparse(target)) == (rank_of([*rows, target]) == rank_of(rows))
    assert LinearSpan().contains({})
    assert not LinearSpan().contains({"x": 1})
    assert LinearSpan().contains({"x": PRIME})


def test_all_cells_of_tables_of_up_to_three_of_ten_binaries_in_under_a_second():
    schema = mq.Schema({f"v{place}": [0, 1] for place in range(10)})
    space = CellSpace(schema)
    cells = [
        cell for size in (1, 2, 3) for names in combinations(schema, size) for cell in space.cells(names)
    ]
    seconds = []
    for _ in range(3):  # the first compiles
        span, started = LinearSpan(), time.process_time()
        for cell in cells:
            span.add(space.vector(cell))
        seconds.append(time.process_time() - started)
    assert (len(cells), span.rank) == (1160, 1 + 10 + 45 + 120)
    assert min(seconds) < 1
    assert not any(span.contains(space.vector(cell)) for cell in space.cells(schema.names))
    # what follows: all 1,160 again, complements, and the sum over a variable
    assert span.contains(space.vector({"v0": only(1), "v9": only(0)}))
    assert not span.contains(space.vector({name: only(0) for name in ("v0", "v1", "v2", "v3")}))


@pytest.mark.parametrize("impossible", [(), ({"a": 1, "b": 2},), ({"a": 0, "c": 1}, {"b": 0, "c": 0})])
def test_cells_in_monomials_are_what_they_are_over_atoms(impossible):
    """Ranks over atoms that can occur, by fractions, and in the sparse basis agree for random selections."""
    schema = mq.Schema({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1], "d": [0, 1]})
    space, rng = CellSpace(schema, impossible), np.random.default_rng()
    atoms = [
        dict(zip(schema, codes, strict=True))
        for codes in product(range(2), range(3), range(2), range(2))
        if not any(
            all(dict(zip(schema, codes, strict=True))[name] == code for name, code in cell.items())
            for cell in impossible
        )
    ]
    for _ in range(8):
        span, rows = LinearSpan(), []
        for _ in range(10):
            selection = {
                name: frozenset(
                    rng.choice(len(schema[name]), int(rng.integers(1, 3)), replace=False).tolist()
                )
                for name in schema
                if rng.random() < 0.5
            }
            rows.append([all(atom[name] in codes for name, codes in selection.items()) for atom in atoms])
            assert space.possible(selection) == any(rows[-1])
            span.add(space.vector(selection))
            assert span.rank == rank_of(rows)
        for place in rng.choice(len(atoms), 4, replace=False):
            unit = [i == place for i in range(len(atoms))]
            cell = {name: only(code) for name, code in atoms[place].items()}
            assert span.contains(space.vector(cell)) == (rank_of([*rows, unit]) == rank_of(rows))


def test_a_question_spans_its_cells():
    schema = mq.Schema({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]})
    space = CellSpace(schema, ({"a": 1, "b": 2},))
    for query in (mq.Query(by=("a", "b")), mq.Query(by="b", where={"a": 1}), mq.Query(where={"c": 0})):
        cells, asked = LinearSpan(), LinearSpan()
        where = {name: only(code) for name, code in query.where}
        for cell in space.cells(query.by):
            cells.add(space.vector({**where, **cell}))
        for vector in space.query_vectors(query):
            asked.add(vector)
            assert cells.contains(vector)
        assert asked.rank == cells.rank
    assert list(space.query_vectors(mq.Query(by="c", where={"a": 1, "b": 2}))) == []


def test_three_unions_of_two_determine_each_of_three():
    """|A∪B| + |A∪C| − |B∪C| = 2|A| for disjoint sets: arithmetic modulo two would not see it."""
    space = CellSpace(mq.Schema({"a": [0, 1], "b": [0, 1, 2, 3]}))
    sets = [{"a": only(1), "b": only(code)} for code in range(3)]
    span = LinearSpan()
    for pair in list(combinations(sets, 2))[:2]:
        span.add(space.union(pair))
    assert not any(span.contains(space.vector(one)) for one in sets)
    span.add(space.union(sets[1:]))
    assert all(span.contains(space.vector(one)) for one in sets)
    assert span.contains(space.union(sets))
    overlapping = [{"a": only(1)}, {"b": only(2)}]
    both = space.vector({"a": only(1), "b": only(2)})
    parts = [space.vector(one) for one in overlapping]
    names = set().union(*parts, both)
    sums = {it: sum(p.get(it, 0) for p in parts) - both.get(it, 0) for it in names}
    assert space.union(overlapping) == {it: value for it, value in sums.items() if value}


def test_impossible_cells_that_connect_too_much_are_refused():
    schema = mq.Schema({f"v{place}": list(range(5)) for place in range(6)})
    chain = [{f"v{place}": 0, f"v{place + 1}": 0} for place in range(5)]
    with pytest.raises(InputError, match=r"connect v0, .* with 15,625 combinations"):
        CellSpace(schema, chain)


class TestBounds:
    def test_two_margins_leave_frechets_interval(self):
        rng = np.random.default_rng()
        for _ in range(5):
            counts = rng.integers(0, 9, (2, 3))
            rows = [np.arange(6) // 3 == row for row in range(2)]
            columns = [np.arange(6) % 3 == column for column in range(3)]
            known = [*rows, *columns]
            bounds = CellBounds(known, [float(counts.ravel()[it].sum()) for it in known])
            n = counts.sum()
            for row, column in product(range(2), range(3)):
                r, c = counts[row].sum(), counts[:, column].sum()
                expected = CellInterval(max(0, r + c - n), min(r, c))
                assert bounds.interval(rows[row] & columns[column]) == expected

    def test_brute_force_over_whole_tables(self):
        """All 2×2×2 tables with the three two-way margins of one table."""
        counts = np.array([2, 0, 1, 3, 1, 2, 0, 1])
        codes = np.indices((2, 2, 2)).reshape(3, -1)
        known = [
            (codes[i] == x) & (codes[j] == y)
            for i, j in combinations(range(3), 2)
            for x, y in product((0, 1), repeat=2)
        ]
        sums = [counts[it].sum() for it in known]
        signs = (-1) ** codes.sum(axis=0)  # the only direction that keeps all of them
        tables = [counts + step * signs for step in range(-9, 10) if (counts + step * signs).min() >= 0]
        bounds = CellBounds(known, [float(it) for it in sums])
        for atom in range(8):
            values = [table[atom] for table in tables]
            assert bounds.interval(np.arange(8) == atom) == CellInterval(min(values), max(values))
        assert bounds.interval(known[0]).width == 0

    def test_what_cannot_be_is_said(self):
        with pytest.raises(InputError, match="at least one known set"):
            CellBounds([], [])
        with pytest.raises(InputError, match=r"at most 10,000 atoms"):
            CellBounds([np.ones(10_001, dtype=bool)], [1.0])
        with pytest.raises(NotConverged):
            CellBounds([np.ones(2, dtype=bool)], [-1.0]).interval(np.array([True, False]))
