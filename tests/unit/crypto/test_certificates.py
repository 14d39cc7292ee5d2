"""Certificates of a test deployment: valid under strict rules, private keys private, rotation in one step."""

import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store

from masquerade.core.errors import FileError, InputError
from masquerade.crypto import certificates
from masquerade.services.common.peers import der_fingerprint


@pytest.fixture
def folder(tmp_path):
    certificates.init(tmp_path / "tls", name="an authority")
    return tmp_path / "tls"


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_an_authority_signs_what_strict_verifiers_accept(folder):
    pair = certificates.issue(folder, "hospital", hosts=("hospital.example", "127.0.0.1"), days=30)
    authority, leaf = read(folder / "ca.pem"), read(pair.certificate)
    builder = PolicyBuilder().store(Store([authority])).time(datetime.now(UTC))
    assert builder.build_server_verifier(x509.DNSName("hospital.example")).verify(leaf, []) == [
        leaf,
        authority,
    ]
    assert builder.build_client_verifier().verify(leaf, []).chain == [leaf, authority]
    assert isinstance(leaf.public_key().curve, ec.SECP256R1)
    assert leaf.not_valid_after_utc <= datetime.now(UTC) + timedelta(days=30)


def test_keys_are_for_their_owner_alone(folder):
    pair = certificates.issue(folder, "hospital")
    for key in (folder / "ca.key", pair.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert b"PRIVATE KEY" not in (key.with_suffix(".pem")).read_bytes()


def test_nothing_is_overwritten(folder):
    pair = certificates.issue(folder, "hospital")
    before = pair.key.read_bytes()
    with pytest.raises(FileError, match="never overwritten"):
        certificates.issue(folder, "hospital")
    with pytest.raises(FileError, match="never overwritten"):
        certificates.init(folder, name="again")
    assert pair.key.read_bytes() == before


def test_a_rotation_replaces_both_and_names_both_fingerprints(folder):
    first = certificates.issue(folder, "hospital", hosts=("hospital.example",), days=30)
    old = read(first.certificate)
    second = certificates.rotate(folder, "hospital")
    new = read(second.certificate)
    assert second.old_fingerprint == first.fingerprint != second.fingerprint
    assert second.fingerprint == certificates.fingerprint(second.certificate)
    assert new.public_key() != old.public_key()
    names = [each.extensions.get_extension_for_class(x509.SubjectAlternativeName) for each in (old, new)]
    assert names[0] == names[1]
    spans = [each.not_valid_after_utc - each.not_valid_before_utc for each in (old, new)]
    assert spans[0] == spans[1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(second.certificate, second.key)  # they are a pair
    assert stat.S_IMODE(second.key.stat().st_mode) == 0o600
    assert (
        len([path for path in (folder / ".hospital").iterdir() if not path.is_symlink()]) == 1
    )  # no old key


def test_a_rotation_cut_short_leaves_a_pair(folder, monkeypatch):
    first = certificates.issue(folder, "hospital")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(FileError, match="cannot be written"):
        certificates.rotate(folder, "hospital")
    monkeypatch.undo()
    assert certificates.fingerprint(first.certificate) == first.fingerprint
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(first.certificate, first.key)
    assert certificates.rotate(folder, "hospital").old_fingerprint == first.fingerprint


def test_a_fingerprint_is_that_of_the_binary_form(folder):
    path = folder / "ca.pem"
    der = ssl.PEM_cert_to_DER_cert(path.read_text())
    expected = "sha256:" + read(path).fingerprint(hashes.SHA256()).hex()
    assert certificates.fingerprint(path) == expected
    assert certificates.fingerprint(str(path)) == expected
    assert certificates.fingerprint(path.read_text()) == expected
    assert certificates.fingerprint(path.read_bytes()) == expected
    assert der_fingerprint(der) == expected


@pytest.mark.parametrize("name", ["ca", "../up", "", ".hidden", "a b", "x" * 80])
def test_names_that_are_no_file_names_are_refused(folder, name):
    with pytest.raises(InputError, match="named by letters"):
        certificates.issue(folder, name)


def test_what_is_wrong_is_said(folder, tmp_path):
    with pytest.raises(FileError, match="Make an authority first"):
        certificates.issue(tmp_path, "hospital")
    with pytest.raises(InputError, match="at least one host"):
        certificates.issue(folder, "hospital", hosts=())
    with pytest.raises(InputError, match="in ASCII"):
        certificates.issue(folder, "hospital", hosts=("bücher",))
    with pytest.raises(InputError, match="for 1 to 3650 days"):
        certificates.issue(folder, "hospital", days=0)
    with pytest.raises(FileError, match="was not issued here"):
        certificates.rotate(folder, "hospital")
    with pytest.raises(FileError, match="is not a certificate"):
        certificates.fingerprint(folder / "ca.key")
    assert not (folder / "hospital.pem").exists()
