"""The audit of noise on counts: it accepts honest noise, and finds each planted fault.

False-alarm rate 1e-6 for each finding of an audit.
"""

import numpy as np
import pytest

import masquerade as mq
from masquerade.channels.noise.redraws import RedrawTerms
from masquerade.core.errors import InputError
from masquerade.sources.noise.noisy import Noisy

FIRST = mq.data.students()
SECOND = FIRST.copy()
SECOND.loc[0] = {"exams": "many", "year": 3, "pills": "yes", "sleep": "bad"}
SETS = (mq.tally(FIRST), mq.tally(SECOND, schema=mq.tally(FIRST).schema))
QUERIES = [mq.Query(by=pair) for pair in (("exams", "pills"), ("year", "sleep"))]
COUNTS = [[table.values for table in source.answer(QUERIES)] for source in SETS]
TERMS = mq.NoiseTerms(3, 2)
RUNS = 600


def audit(kind, runs=RUNS, terms=TERMS):
    def make(truth):
        return kind(SETS[truth], epsilon=3, tables=2)

    return mq.audit.audit_noise(make, QUERIES, *COUNTS, terms, runs=runs)


def test_record_differs_in_every_table():
    assert all(np.abs(a - b).sum() == 2 for a, b in zip(*COUNTS, strict=True))


def test_honest_noise_is_accepted_and_bracketed():
    result = audit(Noisy)
    assert not result.contradicted, result.summary()
    assert 0.1 < result.lower <= result.claimed
    assert "nothing contradicts the claim" in result.summary()


class HalfNoise(Noisy):
    """Adds half of the noise that it claims."""

    def _open_cells(self, prepared, queries, stage):
        noisy = super()._open_cells(prepared, queries, stage)
        return [cells + (table - cells) // 2 for cells, table in zip(prepared, noisy, strict=True)]


class ReusedNoise(Noisy):
    """Takes its noise from the question, so that it is always the same."""

    def _open_cells(self, prepared, queries, stage):
        rng = np.random.default_rng(len(queries))
        scale = float(stage.variance) ** 0.5
        return [cells + np.rint(rng.normal(0, scale, cells.shape)).astype(np.int64) for cells in prepared]


class FloatNoise:
    """Adds normal floating-point noise."""

    def __init__(self, source, epsilon, tables):
        self.source, self.schema, self.guarantee = source, source.schema, source.guarantee
        self.scale = mq.NoiseTerms(epsilon, tables).deviation

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        return self.source.answer(queries)

    def drawn_cells(self, queries):
        rng = np.random.default_rng()
        return [t.values + rng.normal(0, self.scale, t.values.shape) for t in self.source.answer(queries)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (HalfNoise, "variance of the noise"),
        (ReusedNoise, "runs repeat their noise"),
        (FloatNoise, "not an integer"),
    ],
)
def test_planted_faults_are_found(kind, text):
    result = audit(kind, runs=300)
    assert result.contradicted
    assert any(text in problem for problem in result.problems), result.summary()


def test_far_too_little_noise_shows_in_epsilon():
    """Noise for ε = 8 under a claim of ε = 1: the attacker's ε is above the claim."""

    def make(truth):
        return Noisy(SETS[truth], epsilon=8, tables=2)

    result = mq.audit.audit_noise(make, QUERIES, *COUNTS, mq.NoiseTerms(1, 2), runs=RUNS)
    assert result.lower > 1
    assert any("above the claimed 1" in problem for problem in result.problems)


def test_redrawn_votes_are_not_audited_as_added_noise():
    with pytest.raises(InputError, match="redrawn"):
        audit(Noisy, terms=RedrawTerms(3, 2, contributors=500, cells=2))


def test_audits_need_runs_and_a_difference():
    with pytest.raises(InputError, match="at least 100 runs"):
        audit(Noisy, runs=10)
    with pytest.raises(InputError, match="same counts"):
        mq.audit.audit_noise(lambda _: None, QUERIES, COUNTS[0], COUNTS[0], TERMS)
