"""Two parties without a helper: exact counts by Paillier's encryption, for semi-honest sides."""

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto import paillier
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.paillier import PaillierKey
from masquerade.protocols.vertical.paillier_products import (
    MOST_ROWS,
    Ciphertexts,
    EncryptionRequest,
    KeyOwner,
    PaillierModulus,
    PaillierProducts,
    Plaintexts,
    SessionOpening,
)
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.products import RevealedVerticalCounts

SCHEMA = mq.Schema({"a": [0, 1], "b": ["r", "g", "b"], "c": [0, 1]})
OWNERS = {"x": ["a"], "y": ["b", "c"]}
N = 12
CODES = {name: np.random.default_rng(8).integers(0, len(SCHEMA[name]), N) for name in SCHEMA}


@pytest.fixture(scope="module")
def key():
    return PaillierKey()


def own(party, codes=CODES):
    return {name: codes[name] for name in OWNERS[party]}


def products(key, owner=None, **options):
    owner = owner or KeyOwner("x", own("x"), schema=SCHEMA, owners=OWNERS, key=key, **options)
    return PaillierProducts("y", own("y"), LocalTransport({"x": owner.receive}), schema=SCHEMA, owners=OWNERS)


def table(names):
    found = np.zeros(SCHEMA.shape(names))
    np.add.at(found, tuple(CODES[name] for name in names), 1)
    return found if names else np.array(N)


def test_encryption_adds_and_is_fresh(key):
    public = key.public
    first, again = key.encrypt(1), key.encrypt(1)
    assert first != again
    assert key.decrypt(first) == key.decrypt(again) == key.decrypt(public.encrypt(1)) == 1
    assert key.decrypt(public.product([first, again, public.encrypt(public.n - 2)])) == 0
    assert public.decode(public.encode([first, again])) == [first, again]
    for bad in (b"\0", bytes(2 * public.size), b"\xff" * (2 * public.size)):
        with pytest.raises(DecodingError):
            public.decode(bad)


@pytest.mark.parametrize("plain", [False, True], ids=["as installed", "without gmpy2"])
def test_encryption_by_remainders_is_paillier_s_own(plain, monkeypatch):
    """Small primes: every ciphertext of the key's owner is (1+n)^m r^n for some r."""
    if plain:
        monkeypatch.setattr(paillier, "mpz", int)
        monkeypatch.setattr(paillier, "powmod", pow)
    key = PaillierKey._of_primes(11, 13)
    n = 143
    powers = {pow(r, n, n * n) for r in range(1, n) if r % 11 and r % 13}
    seen = set()
    for _ in range(1000):
        for m in (0, 1, 77):
            c = key.encrypt(m)
            blind = c * pow(1 + m * n, -1, n * n) % (n * n)
            assert blind in powers
            assert key.decrypt(c) == m
            seen.add(blind)
    assert seen == powers  # 120 of them, 3,000 draws: one is missed with probability 2e-9


def test_counts_equal_the_clear_ones(key):
    source = RevealedVerticalCounts(products(key))
    queries = [
        mq.Query(by=("a", "b")),
        mq.Query(by=("c", "b", "a")),
        mq.Query(by="a"),
        mq.Query(by=("b", "c")),
        mq.Query(),
    ]
    for query, found in zip(queries, source.answer(queries), strict=True):
        assert np.array_equal(found.values, table(query.by))
    (slice_,) = source.answer([mq.Query(by="a", where={"b": "g"})])
    assert np.array_equal(slice_.values, table(("a", "b"))[:, 1])
    assert source.guarantee.adversaries == {"x": "semi-honest", "y": "semi-honest"}
    assert any("powers of two" in text for text in source.guarantee.assumptions)


def test_a_column_is_encrypted_once_and_the_owner_sees_masked_sums_alone(key):
    owner = KeyOwner("x", own("x"), schema=SCHEMA, owners=OWNERS, key=key)
    seen = []

    def receive(message):
        reply = owner.receive(message)
        seen.append((message, reply))
        return reply

    source = RevealedVerticalCounts(
        products(key, owner=type("Owner", (), {"receive": staticmethod(receive)}))
    )
    source.answer([mq.Query(by=("a", "b"))])
    source.answer([mq.Query(by=("a", "c"))])
    assert len([1 for message, _ in seen if tag_of(message) == EncryptionRequest.TAG]) == 1
    masked = [
        Plaintexts.decode(reply).values for message, reply in seen if tag_of(message) == Ciphertexts.TAG
    ]
    size = key.public.size
    for values in masked:
        for at in range(0, len(values), size):
            assert int.from_bytes(values[at : at + size], "big") > 2**2900  # uniform below n: 2^-170


def test_an_owner_who_encrypts_powers_of_two_is_noticed_by_the_sum(key):
    owner = KeyOwner("x", own("x"), schema=SCHEMA, owners=OWNERS, key=key)
    owner._encrypted["a",] = key.public.encode(key.encrypt(2**row) for row in range(N))
    source = RevealedVerticalCounts(products(key, owner))
    with pytest.raises(RoundAborted, match="did not encrypt zeros and ones") as caught:
        source.answer([mq.Query(by=("a", "c"))])
    assert caught.value.culprits == ("x",)


def test_an_evaluator_who_weighs_by_powers_of_two_reads_the_column(key):
    """Why the guarantee says semi-honest, shown on the evaluator's side: no owner can notice."""
    owner = KeyOwner("x", own("x"), schema=SCHEMA, owners=OWNERS, key=key)
    evaluator = products(key, owner)
    (column,) = evaluator._request_columns(("a",))
    weighed = [pow(value, 2**row, key.public.n**2) for row, value in enumerate(column)]
    reply = owner.receive(
        Ciphertexts(evaluator.session, key.public.encode([key.public.product(weighed)])).encode()
    )
    bits = int.from_bytes(Plaintexts.decode(reply).values, "big")
    assert [bits >> row & 1 for row in range(N)] == CODES["a"].tolist()


def test_limits_and_terms(key):
    with pytest.raises(InputError, match="at least 3072 bits"):
        PaillierKey(2048)
    big = {"a": np.zeros(MOST_ROWS + 1, dtype=np.uint8)}
    with pytest.raises(InputError, match=r"at most 10,000 records"):
        KeyOwner("x", big, schema=SCHEMA, owners=OWNERS, key=key)
    with pytest.raises(InputError, match="exactly two parties"):
        KeyOwner("x", own("x"), schema=SCHEMA, owners={"x": ["a"], "y": ["b"], "z": ["c"]}, key=key)
    with pytest.raises(RoundAborted, match="terms of the session differ"):
        products(key, alignment=b"other")
    weak = KeyOwner("x", own("x"), schema=SCHEMA, owners=OWNERS, key=PaillierKey._of_primes(11, 13))
    with pytest.raises(RoundAborted, match="3072 bits or more and no small factor") as caught:
        products(key, weak)
    assert caught.value.culprits == ("x",)


def trapdoor():
    """Return a modulus p·q with p a divisor of q − 1: what is a p-th power modulo q does not hide."""
    p = 2**61 - 1
    q = 2 * p * (2**2950 + 175) + 1
    assert pow(3, q - 1, q) == 1 != pow(3, (q - 1) // p, q)
    return p, q


def test_behind_a_modulus_with_a_trapdoor_a_masked_product_tells_who_is_in_it():
    """The attack: each row's ciphertext has another exponent modulo q, which no re-randomisation hides."""
    p, q = trapdoor()
    public = paillier.PaillierPublic(p * q)
    assert public.n.bit_length() >= paillier.BITS  # the size alone is not suspicious
    rows = [pow(3, 2**row, q) for row in range(N)]
    chosen = [row for row in range(N) if CODES["c"][row]]  # the evaluator's secret column
    masked = public.product([public.encrypt(12345), *(rows[row] for row in chosen)])
    unmasked, step = pow(masked, (q - 1) // p, q), pow(3, (q - 1) // p, q)
    read = next(bits for bits in range(2**N) if pow(step, bits, q) == unmasked)
    assert [row for row in range(N) if read >> row & 1] == chosen


def test_a_modulus_with_a_trapdoor_is_refused(key):
    p, q = trapdoor()
    n, size = p * q, (p * q).bit_length() // 8 + 1

    class Attacker:
        def receive(self, message):
            session = SessionOpening.decode(message).session
            roots = (2).to_bytes(size, "big") * paillier.ROOTS
            return PaillierModulus(session, n.to_bytes(size, "big"), roots).encode()

    with pytest.raises(RoundAborted, match="not shown to be one to one") as caught:
        products(key, Attacker())
    assert caught.value.culprits == ("x",)
    assert not caught.value.spent


def test_the_proof_of_a_modulus_is_bound_and_whole(key):
    public, proof = key.public, key.prove(b"here")
    public.check(proof, b"here")
    last = proof[:-1] + bytes([proof[-1] ^ 1])
    for bad, binding in ((proof, b"there"), (last, b"here"), (proof[1:], b"here"), (b"", b"here")):
        with pytest.raises(DecodingError):
            public.check(bad, binding)
    with pytest.raises(DecodingError, match="no small factor"):
        paillier.PaillierPublic(6367 * public.n).check(proof, b"here")


def test_consent_sessions_and_damage(key):
    owner = KeyOwner("x", own("x"), schema=SCHEMA, owners=OWNERS, key=key, variables=[])
    with pytest.raises(InputError, match="No session"):
        owner.receive(EncryptionRequest(bytes(16), ("a",)).encode())
    evaluator = products(key, owner)
    with pytest.raises(QueryRefused, match="may not be counted"):
        RevealedVerticalCounts(evaluator).answer([mq.Query(by=("a", "b"))])
    for message, words in (
        (EncryptionRequest(evaluator.session, ("a",)), "may not be counted"),
        (EncryptionRequest(evaluator.session, ("b",)), "not variables of this party"),
        (EncryptionRequest(bytes(16), ("a",)), "another session"),
        (Ciphertexts(bytes(16), b""), "another session"),
    ):
        with pytest.raises(InputError, match=words):
            owner.receive(message.encode())
    with pytest.raises(DecodingError):
        owner.receive(Ciphertexts(evaluator.session, b"short").encode())
    with pytest.raises(InputError, match="one session"):
        owner.receive(SessionOpening(bytes(16), owner.agreement).encode())
