"""Only `crypto` touches ciphers and keys: what is dangerous lies behind one door."""

from tests.architecture.modules import MODULES, for_each

BEHIND = {"cryptography", "coincurve", "rbcl", "gmpy2", "hmac"}


def touched(module):
    return {item.name.split(".")[0] for item in module.imports} & BEHIND


@for_each([m for m in MODULES if m.part != "crypto"])
def test_only_crypto_touches_ciphers_and_keys(module):
    assert not touched(module)


def test_the_walk_sees_what_crypto_touches():
    assert {name for module in MODULES if module.part == "crypto" for name in touched(module)} == BEHIND
