"""What those come to who do not follow the program: no more than is said, or an end for everybody."""

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.statistical.checks import ALPHA
from tests.unit.protocols.mpc.programs import Watched, own

from masquerade.core.errors import InputError, MasqueradeError
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.protocols.mpc.dealer_engine import FEW_COMPARED, HelpedEngine
from masquerade.protocols.mpc.engine import run
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.guarantee import clusters_guarantee, structure_guarantee, tree_guarantee
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.protocols.mpc.structure import Search, parents
from masquerade.protocols.mpc.tree import Growth, tree

TWO, THREE = ("a", "b"), ("a", "b", "c")
SIZES = {"u": 2, "v": 3, "w": 2, "x": 2}
HOLDER = {"u": "a", "v": "b", "w": "a", "x": "b"}
ORDER = ("u", "v", "w", "x")


def columns_of(party, seed, n=60):
    """Return a party's part of records in which everything depends on what was before it."""
    generator = np.random.default_rng(seed)
    codes = {}
    for name in ORDER:
        before = sum(codes.values(), np.zeros(n, dtype=int))
        codes[name] = (before + (generator.random(n) < 0.2)) % SIZES[name]
    return HiddenColumns(SIZES, HOLDER, {x: codes[x] for x in ORDER if HOLDER[x] == party}, n)


def search_by(watched, search, seed=1):
    """Run a search by two parties."""
    score = ScoreTables.of("k2", 60)
    return watched.run(lambda engine: parents(engine, columns_of(engine.name, seed), search, score))


@pytest.mark.parametrize("scores", [(9, 5, 7, 8), (9, 5, 8, 7)], ids=["fourth", "third"])
def test_an_owner_that_adds_to_its_shares_reads_only_the_bits_that_open(scores):
    """Who came in second stands in the tournament; a false share can carry it into what opens.

    Both rows have the same winner. Without a limit the opened numbers would be 3,000 and 2,000.
    """
    watched = Watched(TWO)
    honest, steps = watched.engines["a"].select, []

    def lying(bit, first, second):
        steps.append(bit)
        bit = bit.copy()
        if len(steps) == 2:  # the last match: 1,000 times what lies between both
            bit[len(bit) // 2 :] += np.uint64(1000)
        return honest(bit, first, second)

    watched.engines["a"].select = lying

    def program(engine):
        rows = yield from own(engine, "b", np.array(scores))
        _, place = yield from engine.largest(rows, (1, 4))
        return (yield from engine.open(place, [2]))

    [found] = watched.run(program)
    assert len(steps) == 2
    assert 0 <= found < 4
    assert max(int(words.max()) for words in watched.shown[-2:]) < 4  # nor is more of any share shown


@pytest.mark.parametrize("hide_order", [False, True])
def test_no_more_bits_open_than_the_guarantee_says(monkeypatch, hide_order):
    opened = []
    plain = HelpedEngine.open

    def watched(engine, secret, bits):
        opened.append((engine.name, bits))
        return (yield from plain(engine, secret, bits))

    monkeypatch.setattr(HelpedEngine, "open", watched)
    search = Search.in_order(ORDER, 2, hide_order=hide_order)
    search_by(Watched(TWO, 60), search)
    bits = sum(sum(some) for name, some in opened if name == "a")
    # of 0, 1, 2 and 3 candidates; of sets of at most two of these
    assert search.bits_opened == (0 + 1 + 2 + 3 if hide_order else 1 + (2 + 1) + (2 + 2))
    assert 0 < bits <= search.bits_opened
    assert search.bits_told <= search.bits_opened
    text = " ".join(structure_guarantee(TWO, ORDER, search, helper="helper").assumptions)
    assert f"at most {search.bits_opened} bits" in text
    told = "only whether the computation ended" if hide_order else "turn into an answer to its own"
    assert told in text


def tree_of(engine):
    return (yield from tree(engine, columns_of(engine.name, 1), Growth("x", ("u", "v"), 2)))


def clusters_of(engine, plan):
    held = np.zeros((60, 2), dtype=np.int64)
    for name, codes in columns_of(engine.name, 1).codes.items():
        if name in "uv":
            held[:, "uv".index(name)] = codes
    return (yield from clusters(engine, held, plan))


@pytest.mark.parametrize("what", ["tree", "open steps", "hidden steps"])
def test_no_more_bits_open_of_a_tree_or_clusters_than_the_guarantee_says(monkeypatch, what):
    opened, plain = [], HelpedEngine.open

    def watched(engine, secret, bits):
        opened.append((engine.name, bits))
        return (yield from plain(engine, secret, bits))

    monkeypatch.setattr(HelpedEngine, "open", watched)
    if what == "tree":
        Watched(TWO, 60).run(tree_of)
        told = tree_guarantee(TWO, SIZES, Growth("x", ("u", "v"), 2), helper="helper")
        due = 2 + 3 * 1 + 9 * 1  # which of two or none, of one or none in three branches, nine classes
    else:
        start = np.array([[0.0, 0.0], [1.0, 2.0]])
        plan = Lloyd(60, 2, (1, 2), start, least=2, steps=2, hide_steps=what == "hidden steps")
        Watched(TWO, 60).run(lambda engine: clusters_of(engine, plan))
        told = clusters_guarantee(TWO, ("u", "v"), plan, helper="helper")
        once = 2 * (6 + 7) + 2 * 6  # sums of 60 and of 120 at most, and sizes, of two clusters
        due = once + 2 * (2 * 64 + 1) if plan.hide_steps else 2 * once
    assert 0 < sum(sum(some) for name, some in opened if name == "a") <= due
    assert f"at most {due} bits" in " ".join(told.assumptions)


def test_what_is_shown_has_the_same_sizes_whatever_the_records_where_the_order_is_hidden():
    search = Search.in_order(ORDER, 2, hide_order=True)
    seen, found = [], []
    for seed in (1, 2, 3):
        watched = Watched(TWO, 60)
        found.append(search_by(watched, search, seed))
        seen.append([(words.size, words.dtype) for words in watched.shown])
    assert seen[0] == seen[1] == seen[2]


class Steep:
    """A score whose differences have more bits than are compared."""

    def cells(self, _configurations, _categories):
        return np.arange(61, dtype=np.int64) << 52

    margins = cells

    def constant(self, _configurations, _categories):
        return 0


def test_numbers_that_would_wrap_around_unnoticed_are_refused():
    watched = Watched(TWO, 60)
    search = Search.in_order(ORDER, 1)
    with pytest.raises(InputError, match="too large to be compared on shares"):
        watched.run(lambda engine: parents(engine, columns_of(engine.name, 1), search, Steep()))

    def long_table(engine):
        lines = np.ones((1, 60), dtype=np.uint8)
        held = [engine.indicators(p, lines if p == engine.name else None, (1, 60)) for p in TWO]
        [count] = yield from engine.counts([tuple(held)])  # modulo 2^16
        return (yield from engine.lookup(count, np.zeros((1, 70_000), dtype=int), np.zeros(1, dtype=int)))

    with pytest.raises(InputError, match="cannot index tables of 70,000"):
        Watched(TWO, 60).run(long_table)


@pytest.mark.parametrize("flip", [False, True], ids=["these records", "their opposites"])
def test_indicators_shares_and_matrices_are_shown_uniform(flip):
    """Counts of a record and its opposite are chosen the same: nothing shown may tell them apart."""
    n = 6000
    lines = (np.arange(n)[None] % 2 == flip).astype(np.uint8)
    numbers = np.full((n, 1), 7 if flip else 11)

    def program(engine):
        held = {
            name: engine.indicators(name, lines if name == engine.name else None, (1, n)) for name in THREE
        }
        [crossed] = yield from engine.cross([(held["a"], held["c"])])
        [count] = yield from engine.counts([(crossed, held["b"])])
        x = yield from own(engine, "c", numbers)
        yield from engine.inner(x, x)
        return (yield from engine.open(count))

    watched = Watched(THREE, n)
    assert watched.run(program).tolist() == [[n // 2]]
    masked = [words for words in watched.shown if words.size >= n]
    assert len(masked) == 3 + 1 + 1 + 2  # of three owners, of the product, of a share, of a matrix
    for words in masked:
        for shift in (0, 8):
            some = (words >> np.array(shift, words.dtype)) & np.array(255, words.dtype)
            assert chisquare(np.bincount(some.astype(int), minlength=256)).pvalue > ALPHA / 32


@pytest.mark.parametrize(
    "kind", ["product", "lookup", "less", "signs", "mask", "counts", "share", "matrix", "crossed"]
)
@pytest.mark.parametrize("lie", ["shorter", "longer", "none"])
def test_a_helper_that_deals_another_length_ends_the_computation(kind, lie):
    """Whatever is dealt has the length that everybody knows; nothing is computed with another."""
    watched = Watched(THREE, 40)
    lines = np.ones((1, 40), dtype=np.uint8)
    changed = {"shorter": lambda data: data[:-1], "longer": lambda data: data + b"0", "none": lambda _: b""}

    class Lying:
        dealt = 0

        def deal(self, deal):
            due = watched.dealer.deal(deal)
            if deal.kind != kind or not any(due.values()):
                return due
            self.dealt += 1
            return {party: changed[lie](data) if data else data for party, data in due.items()}

    def program(engine):
        x = yield from own(engine, "a", np.arange(40))
        y = yield from own(engine, "c", np.arange(40))
        yield from engine.product(x, y)
        yield from engine.less(x, y, bits=20)
        many = np.arange(FEW_COMPARED + 1) % 40
        yield from engine.less(x[many], y[many], bits=20)
        yield from engine.lookup(x, np.arange(40)[None], np.zeros(40, dtype=int))
        yield from engine.inner(x[:, None], y[:, None])
        held = {
            name: engine.indicators(name, lines if name == engine.name else None, (1, 40)) for name in THREE
        }
        [crossed] = yield from engine.cross([(held["a"], held["c"])])
        yield from engine.counts([(crossed, held["b"])])
        return (yield from engine.open(x))

    helper = Lying()
    with pytest.raises(MasqueradeError):
        run({name: program(engine) for name, engine in watched.engines.items()}, helper)
    assert helper.dealt == 1
