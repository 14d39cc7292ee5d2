"""Small elections for the tests: users with keys, sums of keys, ballots and their proofs."""

from masquerade.crypto.proofs import (
    Ballot,
    BallotKeys,
    Context,
    Transcript,
    knows_bit,
    knows_one_hot,
    mask,
    one_hot,
    prove,
    valid_bit,
)


def context(number=0, **changed):
    fields = {
        "protocol": "frequency",
        "session": b"session",
        "roster": b"roster hash",
        "query": b"query",
        "user": b"user %d" % number,
        "role": "voter",
    }
    return Context(**(fields | changed))


def transcript(number=0, **changed):
    return Transcript(context(number, **changed))


def cast(bit, keys, X, Y):
    """Return a masked bit beside all keys."""
    own = [X.group.multiply_generator(key) for key in keys]
    return Ballot(X, Y, *own, *mask(bit, keys, X, Y))


def election(group, bits):
    """Return each user's keys and ballot."""
    keys = [BallotKeys(group.random_secret(), group.random_secret()) for _ in bits]
    X = group.sum_points(group.multiply_generator(pair.x) for pair in keys)
    Y = group.sum_points(group.multiply_generator(pair.y) for pair in keys)
    return keys, [cast(bit, pair, X, Y) for bit, pair in zip(bits, keys, strict=True)]


def proved_bits(group, bits):
    """Return statements and proofs of one count."""
    keys, ballots = election(group, bits)
    statements = [valid_bit(ballot) for ballot in ballots]
    proofs = [
        prove(statement, knows_bit(bit, pair), transcript(user))
        for user, (statement, bit, pair) in enumerate(zip(statements, bits, keys, strict=True))
    ]
    return statements, proofs


def proved_one_hot(group, bits):
    """Return the statement and proof of one user whose bits are for as many counts."""
    counts = [election(group, [bit, 0]) for bit in bits]
    keys, ballots = [pairs[0] for pairs, _ in counts], [cast_[0] for _, cast_ in counts]
    statement = one_hot(ballots)
    return statement, prove(statement, knows_one_hot(bits, keys), transcript())
