"""Only `crypto` touches ciphers and keys: what is dangerous lies behind one door."""

import pytest
from tests.architecture.modules import MODULES

BEHIND = {"cryptography", "coincurve", "rbcl", "gmpy2", "hmac"}
# still outside; a module leaves this list and never comes back
OUTSIDE = {
    "masquerade.protocols.aggregation.graph",
    "masquerade.protocols.aggregation.masks",
    "masquerade.protocols.aggregation.round_state",
    "masquerade.sources.projection_owner",
}


def touched(module):
    return {item.name.split(".")[0] for item in module.imports} & BEHIND


@pytest.mark.parametrize("module", [m for m in MODULES if m.part != "crypto"], ids=lambda module: module.name)
def test_only_crypto_touches_ciphers_and_keys(module):
    assert not touched(module) or module.name in OUTSIDE


def test_the_list_of_what_is_outside_only_shrinks():
    assert {module.name for module in MODULES if touched(module) and module.part != "crypto"} <= OUTSIDE
    assert {name for module in MODULES if module.part == "crypto" for name in touched(module)} == BEHIND
