"""Every engine does the same exactly, and counts what it took: with a helper, on MPyC, and on SPU."""

import os
from importlib.util import find_spec

import numpy as np
import pytest
from benchmarks.hidden_engines import by_spu, mpyc_parties, spu_parties, task
from tests.unit.protocols.mpc.conformance import PARTIES, Task, learnt, short
from tests.unit.protocols.mpc.programs import Watched

import masquerade as mq
from masquerade.core.errors import RoundAborted
from masquerade.protocols.mpc import run_alone
from masquerade.sources.records import Records


def assert_exact(found, due):
    assert set(found) == set(due)
    for name, numbers in due.items():
        assert np.array_equal(found[name], numbers), name


def test_owners_and_a_helper_do_everything_exactly():
    given, watched = Task(narrow=False), Watched(PARTIES)
    assert_exact(watched.run(given.program), given.due())
    first = Watched(PARTIES)
    first.run(short)
    assert first.cost.rounds == 2  # what one of the first two knows is shared without a message


@pytest.mark.skipif(find_spec("mpyc") is None, reason="MPyC is not installed")
def test_three_parties_of_mpyc_do_everything_exactly():
    told = mpyc_parties("tests.unit.protocols.mpc.conformance")
    due = Task(narrow=True).due()
    for party in told:
        assert_exact(party["found"], due)
        first, whole = party["costs"]
        assert first["rounds"] in {2, 3}  # whoever shares waits for nobody
        assert 0 < first["sent"] < whole["sent"]
        assert whole["rounds"] > 3
    assert max(party["costs"][0]["rounds"] for party in told) == 3


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mpyc") is None, reason="MPyC is not installed")
def test_three_parties_of_mpyc_learn_what_owners_with_a_helper_learn():
    told = mpyc_parties("tests.unit.protocols.mpc.conformance", "--learnt")
    assert told == [Watched(PARTIES).run(learnt)] * 3


@pytest.mark.slow
@pytest.mark.skipif("MASQUERADE_SPU_PYTHON" not in os.environ, reason="no environment with SPU is named")
class TestSpu:
    def test_three_parties_do_everything_exactly(self):
        given = Task(narrow=False)

        def work(engine):
            run_alone(short(engine))
            first = engine.cost
            return first, run_alone(given.program(engine)), engine.cost

        for first, found, whole in spu_parties(PARTIES, work):
            assert first.rounds == 3
            assert_exact(found, given.due())
            assert 0 < first.sent < whole.sent
            assert whole.rounds > 3

    def test_three_parties_learn_what_owners_with_a_helper_learn(self):
        told = spu_parties(PARTIES, lambda engine: run_alone(learnt(engine)))
        assert told == [Watched(PARTIES).run(learnt)] * 3

    def test_a_party_that_has_gone_ends_it_for_all(self):
        def work(engine):
            run_alone(short(engine))  # all have met
            if engine.name == "c":
                engine.close()
            with pytest.raises(RoundAborted, match="SPU gave up"):
                run_alone(short(engine))
            return engine.name

        assert spu_parties(PARTIES, work, seconds=60) == list(PARTIES)

    def test_the_parents_are_those_of_clear_records(self):
        codes, schema, order, _ = task(40)
        clear = mq.learn.structure(
            Records(codes, mq.Policy.clear(schema)), order, max_parents=2, score="k2"
        ).structure
        found = by_spu(40)["parents"]
        assert any(found.values())
        assert {x: set(given) for x, given in found.items()} == {x: set(given) for x, given in clear.items()}
