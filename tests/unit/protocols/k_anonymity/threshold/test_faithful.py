"""The talk's form: shares in the exponent, and who may not collude."""

from collections import Counter
from dataclasses import replace

import pytest

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, ProofRejected, SealBroken, SharesInconsistent
from masquerade.crypto.group import interpolate_points, lagrange
from masquerade.crypto.proofs import Knows, prove
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.crypto.symmetric import unseal
from masquerade.protocols.k_anonymity.threshold.faithful import (
    DealtMiner,
    DealtSubmission,
    DealtUser,
    PolynomialDealer,
    PrivateDeal,
    PublicDeal,
)

SIZE = 24


def world(k, users):
    dealer = PolynomialDealer("spring", k=k, users=users, sensitive_size=SIZE)
    return dealer.dealing(), [DealtUser(dealer.dealing(), dealer.deal(i + 1)) for i in range(users)], dealer


def submitted(k, rows):
    dealing, users, _ = world(k, len(rows))
    return dealing, [user.submit(*row) for user, row in zip(users, rows, strict=True)]


def opened(dealing, submissions):
    miner = DealtMiner(dealing)
    for one in submissions:
        miner.take(one)
    return miner.open_classes()


@pytest.mark.parametrize("k", [2, 3, 4])
def test_exactly_the_classes_with_k_rows_open(k):
    rows = [(b"zip%d" % size, b"ill %d.%d" % (size, i)) for size in range(1, 6) for i in range(size)]
    dealing, submissions = submitted(k, rows)
    found = opened(dealing, submissions[::-1])
    assert Counter(found.rows) == Counter(row for row in rows if int(row[0][3:]) >= k)
    assert found.faults == ()


def test_sensitive_values_do_not_leave_readable_and_lengths_tell_nothing():
    rows = [(b"zip", b"SECRET" + b"!" * i) for i in range(5)]
    _, submissions = submitted(3, rows)
    assert all(b"SECRET" not in one and b"zip" in one for one in submissions)
    assert len({len(one) for one in submissions}) == 1


def test_a_bad_point_is_named_and_harms_nobody():
    rows = [(b"zip", b"ill %d" % i) for i in range(4)]
    dealing, submissions = submitted(3, rows)
    one = DealtSubmission.decode(submissions[1])
    other = DealtSubmission.decode(submissions[2])
    forgeries = [
        DealtSubmission(one.index, one.quasi, other.point, one.proof, one.sealed),
        DealtSubmission(one.index, b"zap", one.point, one.proof, one.sealed),
        DealtSubmission(4, one.quasi, one.point, one.proof, one.sealed),
    ]
    miner = DealtMiner(dealing)
    for forgery in forgeries:
        with pytest.raises(ProofRejected, match=f"user {forgery.index}"):
            miner.take(forgery.encode())
    for i in (0, 2, 3):
        miner.take(submissions[i])
        miner.take(submissions[i])  # repeated: the same row
    assert Counter(miner.open_classes().rows) == Counter(rows[i] for i in (0, 2, 3))


def resealed(dealing, deal, submission, sealed):
    """Return the submission of a user who proves a sealed part of its own choice."""
    public, one, secret = (
        PublicDeal.decode(dealing),
        DealtSubmission.decode(submission),
        PrivateDeal.decode(deal),
    )
    statement = public.statement(one.index, one.point, public.base(one.quasi))
    bound = public.transcript(one.index, one.quasi, sealed)
    proof = prove(statement, [Knows((group.secret(secret.submitted),))], bound)
    return DealtSubmission(one.index, one.quasi, one.point, proof, sealed).encode()


def test_a_broken_seal_is_named_and_does_not_count_towards_k():
    rows = [(b"zip", b"ill %d" % i) for i in range(4)]
    dealing, users, dealer = world(3, len(rows))
    submissions = [user.submit(*row) for user, row in zip(users, rows, strict=True)]
    broken = DealtSubmission.decode(submissions[1]).sealed[:-1] + b"?"
    submissions[1] = resealed(dealing, dealer.deal(2), submissions[1], broken)
    found = opened(dealing, submissions)
    assert found.faults == ((2, "its sealed part does not open"),)
    assert Counter(found.rows) == Counter(rows[i] for i in (0, 2, 3))
    assert opened(dealing, submissions[:3]).rows == ()


def test_nobody_on_the_way_can_replace_a_sealed_part_and_put_the_blame_on_its_user():
    rows = [(b"zip", b"ill %d" % i) for i in range(4)]
    dealing, submissions = submitted(2, rows)
    one = DealtSubmission.decode(submissions[0])
    miner = DealtMiner(dealing)
    with pytest.raises(ProofRejected, match="for user 1 has no valid proof"):
        miner.take(replace(one, sealed=bytes(len(one.sealed))).encode())
    for submission in submissions:
        miner.take(submission)
    with pytest.raises(ProofRejected):  # not even after the user's own: no second row is laid to its name
        miner.take(replace(one, sealed=bytes(len(one.sealed))).encode())
    found = miner.open_classes()
    assert Counter(found.rows) == Counter(rows)
    assert found.faults == ()


def test_users_check_what_they_were_dealt():
    dealing, _, dealer = world(3, 5)
    deal = PrivateDeal.decode(dealer.deal(2))
    for wrong in ((2, deal.own + 1, deal.submitted), (3, deal.own, deal.submitted), (9, 1, 1)):
        with pytest.raises(SharesInconsistent):
            DealtUser(dealing, PrivateDeal(*wrong).encode())


def test_one_row_a_user():
    dealing, users, dealer = world(2, 2)
    first = users[0].submit(b"zip", b"polio")
    assert users[0].submit(b"zip", b"polio") == first
    with pytest.raises(InputError, match="one row"):
        users[0].submit(b"zip", b"stroke")
    with pytest.raises(InputError, match="at most 24 bytes"):
        users[1].submit(b"zip", b"?" * 25)
    miner = DealtMiner(dealing)
    miner.take(first)
    second = DealtUser(dealing, dealer.deal(1)).submit(b"zip", b"stroke")
    with pytest.raises(InputError, match="a different row"):
        miner.take(second)


def test_submissions_of_another_epoch_are_refused():
    dealing, _, _ = world(2, 2)
    _, submissions = submitted(2, [(b"zip", b"polio")] * 2)
    with pytest.raises(ProofRejected):
        DealtMiner(dealing).take(submissions[0])
    one = DealtSubmission.decode(submissions[0])
    short = DealtSubmission(1, one.quasi, one.point, one.proof[:-1], one.sealed)
    with pytest.raises(DecodingError, match="wrong length"):
        DealtMiner(dealing).take(short.encode())


def test_colluders_lower_k_by_two_each_for_every_class():
    """The documented leak: two values of f a user are two points for any quasi-identifier."""
    k = 5
    dealing, users, dealer = world(k, 6)
    public = PublicDeal.decode(dealing)
    taken = [DealtSubmission.decode(users[i].submit(b"small", b"stroke")) for i in range(k - 2)]
    mallory = PrivateDeal.decode(dealer.deal(6))  # of no class that matters
    base = public.base(b"small")
    xs = [public.users + one.index for one in taken] + [6, public.users + 6]
    points = [one.point for one in taken]
    points += [group.multiply_public(base, mallory.own), group.multiply_public(base, mallory.submitted)]
    key = public.key(1, interpolate_points(xs, points, 1, group))
    assert b"stroke" in unseal(key, taken[0].sealed, b"small")
    short = public.key(1, interpolate_points(xs[1:], points[1:], 1, group))  # one point fewer
    with pytest.raises(SealBroken):
        unseal(short, taken[0].sealed, b"small")


@pytest.mark.parametrize("k", [2, 3, 5, 6])
def test_half_of_k_colluders_recover_the_polynomial(k):
    dealing, _, dealer = world(k, k + 1)
    public = PublicDeal.decode(dealing)
    deals = [PrivateDeal.decode(dealer.deal(i + 1)) for i in range(-(-k // 2))]
    shares = {d.index: d.own for d in deals} | {public.users + d.index: d.submitted for d in deals}
    weights = lagrange(tuple(shares)[:k], 0, group)
    constant = sum(w * share for w, share in zip(weights, shares.values(), strict=False)) % group.order
    assert group.multiply_generator(group.secret(constant)) == public.commitments[0]


def test_limits():
    with pytest.raises(InputError, match="'k'"):
        PolynomialDealer("spring", k=1, users=5, sensitive_size=8)
    with pytest.raises(InputError, match="users"):
        PolynomialDealer("spring", k=3, users=2, sensitive_size=8)
    _, _, dealer = world(2, 2)
    with pytest.raises(InputError, match="numbered"):
        dealer.deal(3)
