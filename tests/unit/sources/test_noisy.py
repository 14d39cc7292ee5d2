"""Counts with noise: the budget, the ledger over kills and copies, consistency, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import masquerade as mq
from masquerade.channels.noise.disjoint_queries import group_disjoint
from masquerade.channels.noise.sampler import NoiseSampler
from masquerade.core.errors import InputError, QueryRefused
from masquerade.sources.noise.contrasts import ContrastCovariance, NoisyTable, TableFusion
from masquerade.sources.noise.spent_tables import SPENT, SpentTables
from masquerade.sources.noise.table_cost import tables_to_ask
from masquerade.testing import check_tally

STUDENTS = mq.data.students()
PAIRS = [mq.Query(by=pair) for pair in combinations(STUDENTS.columns, 2)]


def noisy(tables=20, epsilon=1.0, **options):
    return mq.Noisy(mq.tally(STUDENTS), epsilon=epsilon, tables=tables, **options)


def values_of(source, queries):
    return [table.values for table in source.answer(queries)]


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_noisy_keeps_the_promises_of_a_tally(epsilon):
    """False-alarm rate 1e-6 a run, for Gaussian errors."""
    check_tally(noisy(60, epsilon), truth=STUDENTS)


def test_budget_ends_and_what_is_known_stays_free():
    source = noisy(3)
    first = values_of(source, PAIRS[:3])
    assert (source.tables_spent, source.tables_left) == (3, 0)
    [refusal] = source.check([PAIRS[3]])
    assert refusal.code == "budget_spent"
    assert "take 1 table, and 0 of 3 are left" in refusal.reason
    with pytest.raises(QueryRefused):
        source.answer([PAIRS[0], PAIRS[3]])
    again = values_of(source, PAIRS[:3])
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    margins = [mq.Query(), mq.Query(by="pills"), mq.Query(by="pills", where={"exams": "few"})]
    assert source.check(margins) == []
    assert source.answer(margins)[0].values == 600
    assert source.tables_spent == 3


def test_table_46_of_45_is_refused():
    frame = pd.DataFrame({f"v{i}": np.arange(64) >> i % 6 & 1 for i in range(11)})
    source = mq.Noisy(mq.tally(frame), epsilon=1, tables=45)
    pairs = [mq.Query(by=pair) for pair in combinations(frame.columns, 2)]
    source.answer(pairs[:45])
    with pytest.raises(QueryRefused, match="0 of 45 are left"):
        source.answer(pairs[45:46])


def test_batches_are_answered_whole_or_not_at_all():
    source = noisy(2)
    with pytest.raises(QueryRefused, match="take 3 tables"):
        source.answer(PAIRS[:3])
    assert source.tables_spent == 0


def test_further_draws_are_spent_and_averaged():
    """Cells of five draws have a fifth of the variance; they are stored and survive with the ledger."""
    ledger = mq.people.MemoryLedger()
    source = noisy(8, ledger=ledger)
    [before] = source.answer(PAIRS[:1])
    source.ask_again(PAIRS[:1], times=4)
    [after] = source.answer(PAIRS[:1])
    assert (source.tables_spent, source.tables_left) == (5, 3)
    kinds = [table.covariance.diagonal("given_records") for table in (before, after)]
    assert np.allclose(kinds[0], 5 * kinds[1])
    assert not np.array_equal(before.values, after.values)
    [again] = noisy(8, ledger=ledger).answer(PAIRS[:1])
    assert np.array_equal(again.values, after.values)
    with pytest.raises(QueryRefused, match="take 4 tables, and 3 of 8 are left"):
        source.ask_again(PAIRS[:2], times=2)
    assert source.tables_spent == 5
    with pytest.raises(InputError, match="without conditions"):
        source.ask_again([mq.Query(by="pills", where={"exams": "few"})])


def test_errors_of_further_draws_hold():
    """300 sources; the gaps of a cell of three draws have the stated variance, false-alarm rate 1e-6."""
    [exact] = mq.tally(STUDENTS).answer(PAIRS[:1])
    gaps = []
    for _ in range(300):
        source = noisy(3)
        source.answer(PAIRS[:1])
        source.ask_again(PAIRS[:1], times=2)
        [table] = source.answer(PAIRS[:1])
        gaps.append((table.values - exact.values).ravel()[0])
    ratio = np.square(gaps).sum() / table.covariance.diagonal("given_records").ravel()[0]
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 300)
    assert low < ratio < high


def test_disjoint_conditions_share_a_table():
    level = [
        mq.Query(by="sleep", where={"exams": "few", "year": 1}),
        mq.Query(by="sleep", where={"exams": "few", "year": 2}),
        mq.Query(by="sleep", where={"exams": "many", "pills": "no"}),
    ]
    assert len(group_disjoint(level)) == 1
    source = noisy(1)
    tables = source.answer(level)
    assert source.tables_spent == 1
    assert [table.values.shape for table in tables] == [(2,)] * 3
    assert source.cost([*level, mq.Query(by="pills", where={"exams": "few"})]) == 1
    overlapping = [mq.Query(by="sleep", where={"exams": "few"}), mq.Query(by="sleep", where={"year": 1})]
    assert noisy().cost(overlapping) == 2


def test_a_condition_becomes_its_joint_table():
    schema = mq.tally(STUDENTS).schema
    asked = tables_to_ask([mq.Query(by="pills", where={"exams": "few"})], [], [], schema)
    assert asked == [[mq.Query(by=("exams", "pills"))]]
    source = noisy(1)
    few, many = values_of(source, [mq.Query(by="pills", where={"exams": label}) for label in ("few", "many")])
    assert source.tables_spent == 1
    [whole] = values_of(source, [mq.Query(by="pills")])
    assert np.allclose(few + many, whole)


def test_a_larger_table_of_the_batch_covers_smaller_ones():
    assert noisy().cost([mq.Query(by="pills"), mq.Query(by=("pills", "exams")), mq.Query(by="exams")]) == 1


def test_cost_depends_on_queries_alone():
    other = mq.Noisy(mq.tally(STUDENTS.sample(200, random_state=1)), epsilon=1, tables=20)
    assert noisy().cost(PAIRS) == other.cost(PAIRS) == 6


def test_consistent_tables_are_generalised_least_squares():
    """The closed form against dense least squares over all tables, values and covariance."""
    schema = mq.Schema({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1], "d": [0, 1, 2]})
    rng = np.random.default_rng(1)
    tables = [
        NoisyTable(names, rng.integers(0, 90, schema.shape(names)), variance)
        for names, variance in ((("a", "b"), 9.0), (("b", "c", "d"), 4.0), (("a", "d"), 25.0), (("b",), 2.0))
    ]
    shape = schema.shape(tuple(schema))
    cells = int(np.prod(shape))
    rows, seen, weights = [], [], []
    for table in tables:
        axes = [list(schema).index(name) for name in table.names]
        index = np.indices(shape).reshape(len(shape), -1)[axes]
        flat = np.ravel_multi_index(index, table.cells.shape)
        rows.append((np.arange(table.cells.size)[:, None] == flat).astype(float))
        seen.append(table.cells.ravel())
        weights.append(np.full(table.cells.size, 1 / table.variance))
    X, y, w = np.vstack(rows), np.concatenate(seen), np.concatenate(weights)
    n = 500
    # the total is known: x = n/cells + Z·t with Z orthogonal to ones
    Z = np.linalg.svd(np.eye(cells) - 1 / cells)[0][:, : cells - 1]
    normal = np.linalg.pinv(Z.T @ (X.T * w) @ X @ Z)
    x = n / cells + Z @ normal @ (Z.T @ (X.T * w) @ (y - X @ np.full(cells, n / cells)))
    fusion = TableFusion(schema, n, tables)
    for names in (("a", "b"), ("b", "d"), ("b", "c", "d"), ("c",)):
        axes = tuple(i for i, name in enumerate(schema) if name not in names)
        sums = np.eye(cells).reshape(cells, *shape).sum(axis=tuple(a + 1 for a in axes)).reshape(cells, -1).T
        assert np.allclose(fusion.values(names).ravel(), sums @ x)
        dense = sums @ Z @ normal @ Z.T @ sums.T
        assert np.allclose(fusion.covariance(names).dense(), dense)


def test_contrast_covariance_is_closed_under_margins_and_slices():
    whole = ContrastCovariance(
        (2, 3, 2), (((), 0.0), ((0,), 2.0), ((0, 1), 3.0), ((0, 1, 2), 5.0), ((2,), 1.0))
    )
    dense = whole.dense().reshape(2, 3, 2, 2, 3, 2)
    assert np.allclose(
        whole.reduce([2, 0], {}).dense(), dense.sum(axis=(1, 4)).transpose(1, 0, 3, 2).reshape(4, 4)
    )
    assert np.allclose(whole.reduce([1], {0: 1}).dense(), dense[1, :, :, 1].sum(axis=(1, 3)))
    weights = np.arange(24.0).reshape(2, 2, 3, 2)
    flat = weights.reshape(2, -1)
    assert np.allclose(whole.between(weights, weights), flat @ whole.dense() @ flat.T)
    assert np.allclose(whole.within([1])[1, 0], dense[1, :, 0, 1, :, 0])


def test_all_pairs_shrink_the_noise_by_the_closed_form():
    names = [f"v{i}" for i in range(10)]
    schema = mq.Schema({name: ["no", "yes"] for name in names})
    fusion = TableFusion(schema, 1000, [NoisyTable(pair, None, 1.0) for pair in combinations(names, 2)])
    factor = (1 - 1 / 2) ** 2 + 2 * (1 - 1 / 2) / (2 * 9)
    assert fusion.covariance(("v0", "v1")).diagonal().ravel() == pytest.approx(np.full(4, factor))


def test_negative_counts_reach_the_evidence_unclamped():
    frame = pd.DataFrame({"rare": ["no"] * 500 + ["yes"], "x": ["a", "b", "c"] * 167})
    drawn = [
        mq.Noisy(mq.tally(frame), epsilon=1, tables=2).answer([mq.Query(by=("rare", "x"))])[0].values[1].min()
        for _ in range(60)
    ]
    assert min(drawn) < 0  # fails by chance with probability below 1e-18


def test_stages_have_their_own_noise_and_end():
    source = noisy([(2, 0.8), (3, 0.2)])
    source.answer(PAIRS[:1])
    with pytest.raises(QueryRefused, match="next_stage"):
        source.answer(PAIRS[1:3])
    source.next_stage()
    assert (source.tables_spent, source.tables_left) == (2, 3)
    first, second = source.terms.stages
    [table] = source.answer([mq.Query(by=("year", "sleep"))])
    assert second.variance > first.variance
    # no other table contains this pair: its highest contrast has the noise of the second stage
    interaction = table.covariance.quadratic(np.outer([1, -1, 0], [1, -1]), "given_records")
    assert interaction == pytest.approx(4 * float(second.variance))
    with pytest.raises(InputError, match="no further stage"):
        source.next_stage()


@pytest.mark.parametrize("ledger", ["file", "folder"])
def test_a_ledger_outlives_the_process(tmp_path, ledger):
    def opened():
        return mq.people.FileLedger(tmp_path / "l") if ledger == "file" else mq.NoiseLedger(tmp_path / "f")

    first = opened()
    before = values_of(noisy(4, ledger=first), PAIRS[:2])
    first.close()
    second = opened()
    source = noisy(4, ledger=second)
    assert source.tables_spent == 2
    assert all(np.array_equal(a, b) for a, b in zip(before, values_of(source, PAIRS[:2]), strict=True))
    assert source.tables_spent == 2
    source.answer(PAIRS[2:4])
    with pytest.raises(QueryRefused):
        source.answer(PAIRS[4:5])
    second.close()


def test_a_ledger_has_one_promise_and_one_set_of_records():
    ledger = mq.people.MemoryLedger()
    noisy(4, ledger=ledger)
    with pytest.raises(InputError, match=r"promises epsilon = 1.0\. Use the same terms"):
        noisy(4, epsilon=2, ledger=ledger)
    with pytest.raises(InputError, match="another number of records"):
        mq.Noisy(mq.tally(STUDENTS[:-1]), epsilon=1, tables=4, ledger=ledger)
    with pytest.raises(InputError, match="other variables"):
        mq.Noisy(mq.tally(STUDENTS[["exams", "pills"]]), epsilon=1, tables=4, ledger=ledger)


def test_fresh_noise_for_every_spent_table():
    """Noise fixed by the question would cancel between two sets of records."""
    question = [mq.Query(by=("exams", "pills"))]
    drawn = {tuple(values_of(noisy(40), question)[0].ravel()) for _ in range(4)}
    assert len(drawn) == 4  # 12 cells with a standard deviation of 38: equal by chance below 1e-9


KILLED = """
import os, signal, sys
import masquerade as mq
from masquerade.sources.noise import noisy, spent_tables
when, folder = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if when == "before the claim":
    spent_tables.SpentTables.spend = die
if when == "before the noise":
    noisy.Noisy._open_cells = die
if when == "before the answer is stored":
    spent_tables.SpentTables.store = die
if when == "before the answer is sent":
    noisy.NoisyTally._table = die
ledger = mq.NoiseLedger(folder)
source = mq.Noisy(mq.tally(mq.data.students()), epsilon=1, tables=2, ledger=ledger)
source.answer([mq.Query(by=("exams", "pills"))])
"""


@pytest.mark.parametrize(
    ("when", "spent", "stored"),
    [
        pytest.param("before the claim", 0, False, marks=pytest.mark.slow),
        ("before the noise", 1, False),
        pytest.param("before the answer is stored", 1, False, marks=pytest.mark.slow),
        ("before the answer is sent", 1, True),
    ],
)
def test_killed_processes_never_draw_twice(tmp_path, when, spent, stored, monkeypatch):
    died = subprocess.run(  # noqa: S603  (this interpreter)
        [sys.executable, "-c", KILLED, when, str(tmp_path / "budget")], check=False
    )
    assert died.returncode == -signal.SIGKILL
    with mq.NoiseLedger(tmp_path / "budget") as ledger:
        source = noisy(2, ledger=ledger)
        assert not ledger.doubted
        assert source.tables_spent == spent
        draws = []
        draw = NoiseSampler.draw
        monkeypatch.setattr(
            NoiseSampler, "draw", lambda self, shape: draws.append(shape) or draw(self, shape)
        )
        [table] = source.answer([mq.Query(by=("exams", "pills"))])
        assert bool(draws) is not stored
        assert source.tables_spent == spent + (0 if stored else 1)
        assert np.array_equal(source.answer([mq.Query(by=("exams", "pills"))])[0].values, table.values)


def test_an_answer_cannot_be_stored_twice():
    ledger = mq.people.MemoryLedger()
    source = noisy(4, ledger=ledger)
    source.answer(PAIRS[:1])
    budget = SpentTables(ledger, source.terms, source.schema, source.n)
    with pytest.raises(mq.MasqueradeError):
        budget.store(0, [np.zeros((2, 2), dtype=np.int64)])


def test_concurrent_processes_share_one_budget(tmp_path):
    """Six threads with their own ledgers on one file ask eight times what it has."""
    answers, refused = [], []

    def ask(number):
        ledger = mq.people.FileLedger(tmp_path / "shared")
        source = noisy(3, ledger=ledger)
        for query in np.roll(np.array(PAIRS, dtype=object), number):
            try:
                answers.append((query, source.answer([query])[0].values.sum()))
            except QueryRefused:
                refused.append(query)
        ledger.close()

    noisy(3, ledger=mq.people.FileLedger(tmp_path / "shared"))
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = mq.people.FileLedger(tmp_path / "shared")
    assert noisy(3, ledger=ledger).tables_spent == 3
    assert refused
    spent = [json.loads(value) for value in ledger.values(SPENT)]
    assert sum(entry["tables"] for entry in spent) == 3
    # who asks for a table that another is just drawing pays for a draw of its own: fewer tables, never more
    different = len({json.dumps(entry["asked"]) for entry in spent})
    assert 1 <= len({query.id for query, _ in answers}) == different <= 3


def test_a_fork_does_not_spend_from_memory():
    source = noisy(3)
    child = os.fork()
    if child == 0:
        try:
            source.answer(PAIRS[:1])
        except mq.MasqueradeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_rules_that_read_exact_counts_are_refused():
    rules = mq.Rules(data_dependent=mq.DataDependentRules(least_people=5))
    with pytest.raises(InputError, match="refusals read the exact counts"):
        mq.Noisy(mq.Controlled(mq.tally(STUDENTS), rules), epsilon=1, tables=3)
    with pytest.raises(InputError, match="refusals read the exact counts"):
        mq.Noisy(mq.Cached(mq.Controlled(mq.tally(STUDENTS), rules)), epsilon=1, tables=3)
    with pytest.raises(InputError, match="exact counts"):
        mq.Controlled(noisy(3), rules)
    simulatable = mq.Controlled(mq.tally(STUDENTS), mq.Rules(protect=[["pills", "exams"]]))
    source = mq.Noisy(simulatable, epsilon=1, tables=3)
    assert [it.code for it in source.check([mq.Query(by=("exams", "pills"))])] == ["determined"]
    assert source.answer([mq.Query(by="pills")])[0].n == 600


def test_weights_and_disguised_records_are_refused():
    frame = STUDENTS.assign(w=np.linspace(0.5, 1.5, len(STUDENTS)))
    with pytest.raises(InputError, match="survey weights"):
        mq.Noisy(mq.tally(frame, weights="w"), epsilon=1, tables=3)
    policy = mq.data.students_policy()
    with pytest.raises(InputError, match="disguised"):
        mq.Noisy(mq.tally(mq.simulate(STUDENTS, policy, seed=1), policy), epsilon=1, tables=3)


def test_too_large_tables_are_refused_before_they_are_spent():
    frame = pd.DataFrame({f"v{i}": [0, 1] for i in range(12)})
    source = mq.Noisy(mq.tally(frame), epsilon=1, tables=3)
    [refusal] = source.check([mq.Query(by=list(frame.columns))])
    assert refusal.code == "too_many_cells"
    assert source.tables_spent == 0


def test_guarantee_states_epsilon_and_delta():
    guarantee = noisy(45).guarantee
    [item] = guarantee.disclosures
    assert (item.gamma, item.epsilon, item.delta) == (None, 1.0, 1e-6)
    assert "learns 45 tables of counts with noise" in guarantee.summary()
    assert "ε = 1.00 (δ = 1e-06) a record" in guarantee.summary()
    assert guarantee.to_dict()["disclosures"][0]["noise_epsilon"] == 1.0
    assert guarantee.combine(guarantee).disclosures[0].epsilon == 2.0
    assert guarantee.combine_disjoint(guarantee).disclosures[0].epsilon == 1.0
    assert "noise_epsilon" not in mq.tally(STUDENTS).guarantee.to_dict()["disclosures"][0]


@pytest.mark.parametrize(
    ("learn", "tables"),
    [
        (lambda source: mq.learn.naive_bayes(source, "pills"), 3),
        (lambda source: mq.learn.decision_tree(source, "pills", max_depth=2), 12),
        (lambda source: mq.learn.structure(source, list(source.schema), max_parents=1), 9),
        (lambda source: mq.learn.bayesian_network(source, {"exams": (), "pills": ("exams",)}), 2),
        (lambda source: mq.stats.shares(source, "pills", by="exams"), 1),
        (lambda source: mq.stats.odds_ratio(source, "pills", "exams"), 1),
        (lambda source: mq.stats.logistic(source, "pills ~ exams + sleep"), 1),
    ],
)
def test_learners_and_statistics_run_unchanged(learn, tables):
    source = noisy(tables)
    assert learn(source).summary()
    assert 0 < source.tables_spent <= tables
