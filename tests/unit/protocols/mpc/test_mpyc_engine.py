"""Three parties of MPyC, processes of their own, find what owners with a helper and the clear search find."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from benchmarks.hidden_engines import MAX_PARENTS, by_helper, by_mpyc, task

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.protocols.mpc import HelpedEngine, MpycEngine, run_alone
from masquerade.sources.records import Records

RECORDS = 40


@pytest.mark.skipif(find_spec("mpyc") is None, reason="MPyC is not installed")
def test_both_engines_find_the_structure_of_the_clear_records():
    codes, schema, order, _ = task(RECORDS)
    source = Records(codes, mq.Policy.clear(schema))
    clear = mq.learn.structure(source, order, max_parents=MAX_PARENTS, score="k2").structure
    due = {name: set(given) for name, given in clear.items()}
    assert any(due.values())
    for found in (by_mpyc(RECORDS), by_helper(RECORDS)):
        assert {name: set(given) for name, given in found["parents"].items()} == due
        assert found["bytes_sent_by_a_party"] > 0


def test_fewer_than_three_parties_have_no_privacy_and_are_refused():
    with pytest.raises(InputError, match="a single party"):
        MpycEngine(SimpleNamespace(parties=[0, 1], pid=0), ("a", "b"))
    with pytest.raises(InputError, match="MPyC runs 1 parties"):
        MpycEngine(SimpleNamespace(parties=[0], pid=0), ("a", "b", "c"))


def test_an_engine_without_a_network_is_not_run_to_its_end():
    engine = HelpedEngine("a", ("a", "b"), lambda _purpose, _number: bytes(32), 1)
    with pytest.raises(InputError, match="must be relayed"):
        run_alone(engine.open(engine.constant([1])))
