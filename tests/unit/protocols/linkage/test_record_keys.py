"""Keys have one normal form; linking by a shared secret has a weak point, and names it."""

import hmac
import os
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.protocols.linkage.pseudonyms import keyed_pseudonyms, places_among
from masquerade.protocols.linkage.psi import Joiner, LinkingParty, keyed_guarantee
from masquerade.protocols.linkage.record_keys import KeyColumn, normal_form
from masquerade.protocols.wire.session import LocalTransport

SECRET, SESSION = os.urandom(32), os.urandom(16)
KEYS = {
    "clinic": [f"Patient {i}" for i in range(40)],
    "registry": [f"  PATIENT   {i}" for i in range(39, 9, -1)],
    "school": [f"patient {i}" for i in range(0, 60, 3)],
}


def tags(keys, secret=SECRET, session=SESSION):
    return [bytes(row) for row in keyed_pseudonyms(keys, secret, session)]


def test_pseudonyms_are_what_they_are_said_to_be():
    for tag, key in zip(tags(["Ann", ("bob", 1970)]), ("ann", ("bob", 1970)), strict=True):
        assert tag == hmac.digest(SECRET, SESSION + normal_form(key), "sha256")[:16]
    assert keyed_pseudonyms([], SECRET, SESSION).shape == (0, 16)


def test_it_finds_what_private_linking_finds():
    private = {name: LinkingParty(name, keys) for name, keys in KEYS.items()}
    Joiner(tuple(KEYS), LocalTransport({n: p.receive for n, p in private.items()})).link()
    keyed = {name: tags(keys) for name, keys in KEYS.items()}
    common = set.intersection(*map(set, keyed.values()))
    for name, party in private.items():
        assert sorted(party.rows) == [row for row, tag in enumerate(keyed[name]) if tag in common]


def test_another_session_or_secret_gives_other_pseudonyms():
    keys = KEYS["clinic"]
    for other in (tags(keys, session=bytes(16)), tags(keys, secret=bytes(32))):
        assert not set(tags(keys)) & set(other)


def test_the_joiner_is_no_party_and_the_guarantee_says_why():
    with pytest.raises(InputError, match="with the secret it could try keys"):
        keyed_guarantee(("clinic", "school"), "clinic")
    guarantee = keyed_guarantee(tuple(KEYS), "miner")
    assert set(guarantee.excluded_coalitions) == {("miner", party) for party in KEYS}
    assert any("miner does not receive the linking secret" in text for text in guarantee.assumptions)
    assert {item.role: item.gamma for item in guarantee.disclosures}["miner"] == 1


def test_whoever_has_the_secret_and_the_pseudonyms_could_open_them():
    """The weak point, as the guarantee names it: secret and pseudonyms together show who is in a set."""
    seen = set(tags(KEYS["registry"]))
    guesses = [f"patient {i}" for i in range(100)]
    opened = {guess for guess, tag in zip(guesses, tags(guesses), strict=True) if tag in seen}
    assert opened == {f"patient {i}" for i in range(10, 40)}


def test_what_cannot_be_linked_is_refused():
    for secret in (b"", b"password", bytes(31)):
        with pytest.raises(InputError, match="32 random bytes"):
            keyed_pseudonyms(["x"], secret, SESSION)
    with pytest.raises(InputError, match="16 bytes"):
        keyed_pseudonyms(["x"], SECRET, b"")
    with pytest.raises(InputError, match="share their key with another record"):
        keyed_pseudonyms(["Ann", "ann "], SECRET, SESSION)
    with pytest.raises(InputError, match="At most 1 keys"):
        keyed_pseudonyms(["a", "b"], SECRET, SESSION, most=1)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=6), st.text(st.characters(max_codepoint=127), max_size=12)), max_size=8
    )
)
def test_keys_of_a_column_have_the_normal_form_of_each(texts):
    for kind in (pa.string(), pa.large_string()):
        column = KeyColumn(pa.array(["left out", *texts], kind)[1:])
        try:
            expected = [normal_form(text) for text in texts]
        except InputError as error:
            with pytest.raises(InputError, match=re.escape(str(error))):
                column.forms(0, len(texts))
            continue
        assert list(column.forms(0, len(texts)).rows()) == expected
        assert list(column.forms(0, len(texts), lead=0).rows()) == [form[2:] for form in expected]


def test_whole_numbers_in_a_column_stand_for_their_digits_and_other_values_are_no_keys():
    numbers = [0, -5, 2**62, 17]
    found = KeyColumn(pa.array(numbers, pa.int64())).forms(1, 4)
    assert list(found.rows()) == [normal_form(number) for number in numbers[1:]]
    for wrong in (
        pa.array([1.5]),
        pa.array([True]),
        pa.array(["a", None]),
        pa.array([" "]),
        pa.array(["x" * 1023]),
    ):
        with pytest.raises(InputError):
            KeyColumn(wrong).forms(0, 2)


def test_places_among_pseudonyms_also_where_their_beginnings_agree():
    generator = np.random.default_rng()
    tags = np.unique(generator.integers(0, 3, (60, 16), dtype=np.uint8), axis=0)
    tags[:20, :8] = 7
    tags = generator.permutation(np.unique(tags, axis=0))
    wanted = np.concatenate([tags[::3], tags[:5] ^ np.uint8(128)])
    listed = [bytes(row) for row in tags]
    expected = [listed.index(bytes(row)) if bytes(row) in listed else -1 for row in wanted]
    assert places_among(tags, wanted).tolist() == expected
    assert places_among(tags[:0], wanted).tolist() == [-1] * len(wanted)
