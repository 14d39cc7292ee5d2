"""Owners without a dealer learn what owners with one learn."""

from importlib.util import find_spec

import pytest

import masquerade as mq
from masquerade.core.errors import InputError, RoundAborted
from masquerade.simulation import hidden_structure, mpyc_parties

NETWORK = mq.data.network("asia")
NAMES = tuple(NETWORK.schema)[:4]
SCHEMA = mq.Schema([NETWORK.schema[name] for name in NAMES])
CODES = {name: NETWORK.sample_codes(60, 3)[name] for name in NAMES}
OWNERS = {"north": NAMES[:1], "south": NAMES[1:3], "registry": NAMES[3:]}


@pytest.mark.skipif(find_spec("mpyc") is None, reason="MPyC is not installed")
def test_hidden_structure_is_equal_with_and_without_a_dealer():
    with_dealer = hidden_structure(CODES, SCHEMA, OWNERS, NAMES, max_parents=1)
    without = hidden_structure(CODES, SCHEMA, OWNERS, NAMES, max_parents=1, engine="mpyc")
    assert without.structure == with_dealer.structure
    assert without.cost.sent > 0 == without.cost.dealt
    assert without.guarantee.colluders == 1
    assert {item.role for item in without.guarantee.disclosures} == set(OWNERS)


def test_two_owners_need_a_dealer():
    owners = {"north": NAMES[:2], "south": NAMES[2:]}
    with pytest.raises(InputError, match="needs 3 owners"):
        hidden_structure(CODES, SCHEMA, owners, NAMES, engine="mpyc")


@pytest.mark.skipif(find_spec("mpyc") is None, reason="MPyC is not installed")
def test_a_party_without_a_result_ends_the_run():
    with pytest.raises(RoundAborted, match="without a result"):
        mpyc_parties._run_parties([b"{}"] * 3)
