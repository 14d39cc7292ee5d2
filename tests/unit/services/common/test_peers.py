"""Tokens, identities and who a caller is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.keys import new_token, token_digest, token_matches
from masquerade.services.common.peers import Peer, by_name, der_fingerprint, normalize_fingerprint, recognise
from masquerade.services.common.problems import NotAdmitted

ALICE = Peer(
    "alice", fingerprints=(der_fingerprint(b"A"), der_fingerprint(b"A2")), token_digest=token_digest("a")
)
BOB = Peer("bob", fingerprints=(der_fingerprint(b"B"),))
CAROL = Peer("carol", token_digest=token_digest("c"), token="what we show to carol")  # noqa: S106
PEERS = (ALICE, BOB, CAROL)


@pytest.mark.parametrize(
    ("certificate", "bearer", "peer"),
    [(b"A", None, ALICE), (b"A2", None, ALICE), (b"B", None, BOB), (None, "c", CAROL), (b"A", "a", ALICE)],
)
def test_a_peer_is_known_by_what_is_pinned_for_it(certificate, bearer, peer):
    assert recognise(PEERS, certificate, bearer) is peer


@pytest.mark.parametrize(
    ("certificate", "bearer"),
    [
        (None, None),
        (b"C", None),  # even if the authority signed it
        (None, ""),
        (None, "d"),
        (None, CAROL.token_digest),  # the digest is not a token
        (b"C", "c"),  # a good token does not save an unknown certificate
        (b"A", "d"),  # nor a good certificate a wrong token
        (b"B", "a"),  # two peers' credentials
        (b"", None),
    ],
)
def test_nobody_else_is_admitted(certificate, bearer):
    with pytest.raises(NotAdmitted):
        recognise(PEERS, certificate, bearer)
    with pytest.raises(NotAdmitted):
        recognise((), certificate, bearer)


@given(st.text())
def test_no_text_is_a_token_by_accident(text):
    assert not token_matches(text, token_digest(new_token()))
    assert not token_matches(text, "")
    assert token_matches(text, token_digest(text))


def test_tokens_are_long_and_never_the_same():
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) == 43 for token in made)


def test_what_peers_share_is_refused():
    with pytest.raises(InputError, match="the name 'bob'"):
        by_name([BOB, BOB])
    with pytest.raises(InputError, match="the fingerprint 'sha256:"):
        by_name([BOB, Peer("eve", fingerprints=BOB.fingerprints)])
    with pytest.raises(InputError, match="the token digest"):
        by_name([CAROL, Peer("eve", token_digest=CAROL.token_digest)])


def test_a_token_is_not_shown_by_accident():
    assert "what we show" not in repr(CAROL)


def test_fingerprints_are_written_one_way():
    mark = der_fingerprint(b"A")
    digits = mark.removeprefix("sha256:").upper()
    colons = ":".join(digits[i : i + 2] for i in range(0, 64, 2))
    assert (
        normalize_fingerprint(digits)
        == normalize_fingerprint(colons)
        == normalize_fingerprint(f" SHA256:{colons}\n")
        == mark
    )
    assert Peer("a", fingerprints=(colons,)).fingerprints == (mark,)
    for wrong in ("", "sha256:", "sha256:" + "g" * 64, "sha1:" + "a" * 40):
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            normalize_fingerprint(wrong)
