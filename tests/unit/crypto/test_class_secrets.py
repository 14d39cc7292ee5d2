"""What follows from a secret, one by one and in bulk; nothing follows from another."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.crypto.class_secrets import (
    as_bytes,
    key_of,
    secret_of,
    secrets_of,
    share_of,
    shares_at,
    tag_of,
)
from masquerade.kernels.field61 import PRIME


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=4),
    st.integers(2, 9),
    st.integers(1, PRIME - 1),
)
def test_bulk_and_single_derivations_agree(outputs, k, x):
    secrets = secrets_of(outputs)
    assert as_bytes(secrets) == [secret_of(output) for output in outputs]
    xs = np.full(len(outputs), x, dtype=np.uint64)
    shares = shares_at(secrets, k, xs, np.arange(len(outputs)))
    assert [tuple(row) for row in shares.tolist()] == [share_of(s, k, x) for s in as_bytes(secrets)]


def test_labels_keep_derivations_apart():
    secret = secret_of(bytes(64))
    derived = [tag_of(secret), key_of(secret)[:16], secret[:16]]
    assert len(set(derived)) == 3
    assert all(int.from_bytes(secret[at : at + 8], "little") < PRIME for at in (0, 8, 16))
    assert tag_of(secret) != tag_of(secret_of(bytes(63) + b"\x01"))
