"""Frozen vectors with fixed randomness: ``python -m tests.unit.crypto.make_vectors`` writes them anew.

They change only when a format changes on purpose; then the version inside the format changes too.
"""

import hashlib
import json
from pathlib import Path

from tests.unit.crypto.votes import cast

from masquerade.crypto.keys import AgreementKey, SigningKey, derive
from masquerade.crypto.proofs import (
    Ballot,
    BallotKeys,
    BranchRandomness,
    Context,
    Knows,
    Transcript,
    _prove_from_parts,
    branches_of,
    equal_logs,
    knows_bit,
    knows_one_hot,
    one_hot,
    possession,
    valid_bit,
)
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.symmetric import _seal_from_parts

FOLDER = Path(__file__).parents[2] / "vectors" / "crypto"
GROUPS = {group.name: group for group in (secp256k1, ristretto255)}
CONTEXT = {
    "protocol": "vectors",
    "session": b"session".hex(),
    "roster": b"roster".hex(),
    "query": b"query".hex(),
    "user": b"user".hex(),
    "role": "prover",
}
KEY = bytes(range(32))


def begin(context):
    """Return the transcript of a context as it stands in a file."""
    texts = {"protocol", "role"}
    return Transcript(Context(**{k: v if k in texts else bytes.fromhex(v) for k, v in context.items()}))


def fixed(group, *labels):
    """Return a secret that depends on its labels alone."""
    digest = hashlib.sha512("|".join(map(str, (group.name, *labels))).encode()).digest()
    return group.secret(int.from_bytes(digest, "big") % group.order)


def statement_of(group, kind, points):
    """Build a statement from decoded points: what a verifier does."""
    decoded = [group.decode(bytes.fromhex(point)) for point in points]
    if kind == "possession":
        return possession(*decoded)
    if kind == "equal logarithms":
        return equal_logs(list(zip(decoded[::2], decoded[1::2], strict=True)))
    ballots = [Ballot(*decoded[at : at + 6]) for at in range(0, len(decoded), 6)]
    return valid_bit(*ballots) if kind == "bit" else one_hot(ballots)


def proof(group, name, kind, points, knowledge):
    """Prove with randomness drawn from the vector's name."""
    encoded = [point.encode().hex() for point in points]
    statement = statement_of(group, kind, encoded)
    drawn = [
        [
            BranchRandomness(
                tuple(fixed(group, name, p, b, k) for k in range(linear.witnesses)),
                None if b == knows.branch else fixed(group, name, p, b, "challenge"),
            )
            for b, linear in enumerate(branches_of(part))
        ]
        for p, (part, knows) in enumerate(zip(statement, knowledge, strict=True))
    ]
    made = _prove_from_parts(statement, knowledge, begin(CONTEXT), drawn)
    return {
        "group": group.name,
        "name": name,
        "kind": kind,
        "context": CONTEXT,
        "points": encoded,
        "proof": made.hex(),
    }


def count(group, label, bits):
    """Return all users' keys and ballots of one count."""
    keys = [BallotKeys(fixed(group, label, u, "x"), fixed(group, label, u, "y")) for u in range(len(bits))]
    X = group.sum_points(group.multiply_generator(pair.x) for pair in keys)
    Y = group.sum_points(group.multiply_generator(pair.y) for pair in keys)
    return keys, [cast(bit, pair, X, Y) for bit, pair in zip(bits, keys, strict=True)]


def proofs():
    """Yield the valid proofs."""
    for group in GROUPS.values():
        x, B = fixed(group, "x"), group.multiply_generator(fixed(group, "base"))
        X, G = group.multiply_generator(x), group.generator
        yield proof(group, "possession", "possession", [X], [Knows((x,))])
        pairs = [X, G, group.multiply(B, x), B]
        yield proof(group, "equal logarithms", "equal logarithms", pairs, [Knows((x,))])
        for bit in (0, 1):
            keys, ballots = count(group, "bits", [bit, 1, 0])
            yield proof(group, f"bit {bit}", "bit", ballots[0], knows_bit(bit, keys[0]))
        counts = [count(group, f"count {l}", [int(l == 1), 0]) for l in range(3)]
        points = [point for _, ballots in counts for point in ballots[0]]
        yield proof(group, "one-hot", "one-hot", points, knows_one_hot([0, 1, 0], [k[0] for k, _ in counts]))


def spoiled(vector):
    """Yield proofs and statements that must fail, with the error they must fail by."""
    group, made = GROUPS[vector["group"]], bytes.fromhex(vector["proof"])
    q = group.order.to_bytes(32, group.byteorder)
    size = group.point_size

    def changed(name, error, **fields):
        return {
            "group": vector["group"],
            "of": vector["name"],
            "name": name,
            "error": error,
            "changed": fields,
        }

    yield changed("a byte less", "DecodingError", proof=made[:-1].hex())
    yield changed("a byte more", "DecodingError", proof=(made + b"\x00").hex())
    yield changed("a response equal to the order", "DecodingError", proof=(made[:-32] + q).hex())
    yield changed("a response of zero", "ProofRejected", proof=(made[:-32] + bytes(32)).hex())
    yield changed("a commitment of zeros", "ProofRejected", proof=(bytes(size) + made[size:]).hex())
    generator = group.generator.encode()
    yield changed("a commitment to something else", "ProofRejected", proof=(generator + made[size:]).hex())
    for field in CONTEXT:
        other = "other" if field in {"protocol", "role"} else b"other".hex()
        yield changed(f"another {field}", "ProofRejected", context=CONTEXT | {field: other})
    for at, point in enumerate(vector["points"]):
        moved = (group.decode(bytes.fromhex(point)) + group.generator).encode().hex()
        yield changed(f"point {at} moved", "ProofRejected", point={str(at): moved})
    invalid = {
        "zeros": "00" * size,
        "too short": vector["points"][0][:-2],
        "too long": vector["points"][0] + "00",
    }
    if group is secp256k1:
        invalid |= {f"prefix {p}": p + vector["points"][0][2:] for p in ("00", "04", "05", "06", "07", "82")}
    for name, point in invalid.items():
        yield changed(f"a point of {name}", "DecodingError", point={"0": point})


def others():
    """Return vectors of the other formats."""
    ann, bob = AgreementKey.from_seed(bytes(31)), AgreementKey.from_seed(bytes([1] * 31))
    signer = SigningKey.from_seed(KEY)
    return {
        "challenge": {
            name: group.encode_scalar(begin(CONTEXT).challenge(group)).hex() for name, group in GROUPS.items()
        },
        "derived": derive(KEY, "label", b"a", b"b").hex(),
        "agreed": ann.agree(bob.public, "label", b"context").hex(),
        "signed": signer.sign("label", b"a", b"b").hex(),
        "sealed": _seal_from_parts(KEY, b"message", b"context", bytes(range(12))).hex(),
        "independent point": secp256k1.independent_point(b"label").encode().hex(),
        "hashed point": ristretto255.hash_to_group(b"message", b"domain").encode().hex(),
    }


def everything():
    """Return the contents of every file by its name."""
    valid = list(proofs())
    return {
        "proofs.json": valid,
        "proofs_bad.json": [bad for vector in valid for bad in spoiled(vector)],
        "formats.json": others(),
    }


def main():
    """Write the files."""
    for name, contents in everything().items():
        text = json.dumps(contents, indent=1, ensure_ascii=False) + "\n"
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
