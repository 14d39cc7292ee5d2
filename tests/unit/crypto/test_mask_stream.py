"""Masks follow from their key alone, number after number."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from masquerade.crypto.mask_stream import MaskStream, mask_words

KEY = bytes(range(32))


def test_masks_are_aes_in_counter_mode():
    stream = Cipher(algorithms.AES256(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(80))
    assert mask_words(KEY, 10).astype("<u8").tobytes() == stream
    assert MaskStream(KEY).numbers(40, "<u2").astype("<u2").tobytes() == stream


def test_a_stream_goes_on_where_it_was():
    stream = MaskStream(KEY)
    parts = [stream.numbers(n) for n in (3, 0, 4)]
    assert np.array_equal(np.concatenate(parts), mask_words(KEY, 7))
    assert not set(mask_words(KEY, 7).tolist()) & set(mask_words(bytes(32), 7).tolist())
