"""A search on SecretFlow's SPU, where an environment is named that has it, finds the clear structure."""

import os

import pytest
from benchmarks.hidden_engines import MAX_PARENTS, by_spu, task

import masquerade as mq
from masquerade.sources.records import Records

PEOPLE = 40


@pytest.mark.slow
@pytest.mark.skipif("MASQUERADE_SPU_PYTHON" not in os.environ, reason="no environment with SPU is named")
def test_spu_finds_the_parents_of_clear_records():
    codes, schema, order, _ = task(PEOPLE)
    source = Records(codes, mq.Policy.clear(schema))
    clear = mq.learn.structure(source, order, max_parents=MAX_PARENTS, score="k2").structure
    found = by_spu(PEOPLE)["parents"]
    assert {x: set(given) for x, given in found.items()} == {x: set(given) for x, given in clear.items()}
