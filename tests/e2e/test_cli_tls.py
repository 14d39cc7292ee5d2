"""`masquerade tls` and `masquerade config check` from end to end: a deployment made and checked."""

from __future__ import annotations

import base64
import json
import re
import ssl
import stat
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from tests.e2e import test_cli_app
from tests.e2e.test_cli_app import refused

from masquerade.cli import settings_files
from masquerade.crypto import certificates
from masquerade.crypto.keys import load_identity, token_matches
from masquerade.services.common.settings import Limits, Listen, PeerSettings, SecretFile, Strict, Tls

FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}\n")


def ok(*arguments):
    """Run a command that must succeed; return what it prints."""
    return test_cli_app.ok(*arguments).stdout


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_an_authority_issues_rotates_and_fingerprints(tmp_path):
    folder = tmp_path / "tls"
    assert FINGERPRINT.fullmatch(ok("tls", "init", folder, "--name", "ours"))
    first = ok("tls", "issue", folder, "north", "--host", "north.example", "--host", "10.0.0.7", "--days", 30)
    assert FINGERPRINT.fullmatch(first)
    assert ok("tls", "fingerprint", folder / "north.pem") == first
    assert mode(folder / "ca.key") == 0o600
    assert mode(folder / "north.key") == 0o600
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # key and certificate belong together
    context.load_cert_chain(folder / "north.pem", folder / "north.key")
    new, old = ok("tls", "rotate", folder, "north").splitlines(keepends=True)
    assert old == first
    assert new != old
    assert ok("tls", "fingerprint", folder / "north.pem") == new
    context.load_cert_chain(folder / "north.pem", folder / "north.key")


def test_a_certificate_is_for_the_hosts_given_or_for_this_machine(tmp_path):
    ok("tls", "init", tmp_path)
    for name, hosts, expected in [
        ("a", ("--host", "a.example"), {"DNS": {"a.example"}}),
        ("b", (), {"DNS": {"localhost"}, "IP Address": {"127.0.0.1"}}),
    ]:
        ok("tls", "issue", tmp_path, name, *hosts)
        decoded = ssl._ssl._test_decode_cert(str(tmp_path / f"{name}.pem"))
        found: dict[str, set[str]] = {}
        for kind, value in decoded["subjectAltName"]:
            found.setdefault(kind, set()).add(value)
        assert found == expected


def test_figures_for_programs(tmp_path):
    made = json.loads(ok("tls", "init", tmp_path, "--json"))
    assert made["fingerprint"] == certificates.fingerprint(tmp_path / "ca.pem")
    ok("tls", "issue", tmp_path, "north")
    turned = json.loads(ok("tls", "rotate", tmp_path, "north", "--json"))
    assert set(turned) == {"certificate", "key", "fingerprint", "old_fingerprint"}
    assert turned["certificate"] == str(tmp_path / "north.pem")


def test_nothing_is_overwritten_and_mistakes_are_one_line(tmp_path):
    assert "ca.pem" in refused("tls", "issue", tmp_path, "north")
    ok("tls", "init", tmp_path)
    before = (tmp_path / "ca.key").read_bytes()
    assert "exists already" in refused("tls", "init", tmp_path)
    assert (tmp_path / "ca.key").read_bytes() == before
    ok("tls", "issue", tmp_path, "north")
    assert "exists already" in refused("tls", "issue", tmp_path, "north")
    assert "days" in refused("tls", "issue", tmp_path, "south", "--days", 0)
    assert "../x" in refused("tls", "issue", tmp_path, "../x")
    assert "issue it before" in refused("tls", "rotate", tmp_path, "south")
    assert "missing.pem" in refused("tls", "fingerprint", tmp_path / "missing.pem")
    assert "PEM" in refused("tls", "fingerprint", tmp_path / "ca.key")


def hosts_of(certificate):
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(one.value) for one in found}


def hostile_request(path, key, *, signer=None):
    """Write a request for a certificate authority of other hosts; `signer` signs it instead of its key."""
    built = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=3), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("registry.example"), x509.DNSName("*.example")]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = built.public_bytes(serialization.Encoding.PEM)
    if signer is not None:  # the signature of another key over the same text
        der = built.public_bytes(serialization.Encoding.DER)
        other = signer.sign(built.tbs_certrequest_bytes, ec.ECDSA(hashes.SHA256()))
        der = der[: -len(built.signature)] + other if len(other) == len(built.signature) else der[:-1] + b"x"
        body = base64.encodebytes(der).decode()
        pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode()
    path.write_bytes(pem)


def test_a_key_made_at_the_hospital_never_leaves_it(tmp_path):
    hospital, authority = tmp_path / "hospital", tmp_path / "tls"
    ok("tls", "init", authority)
    made = json.loads(ok("tls", "request", "north", "--host", "10.0.0.1", "--out", hospital, "--json"))
    assert made == {"request": str(hospital / "north.csr"), "key": str(hospital / "north.key")}
    assert mode(hospital / "north.key") == 0o600
    printed = ok("tls", "sign", authority, hospital / "north.csr", "--host", "10.0.0.1", "--days", 30)
    assert FINGERPRINT.fullmatch(printed)
    assert sorted(path.name for path in authority.iterdir()) == ["ca.key", "ca.pem", "north.pem"]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(authority / "north.pem", hospital / "north.key")
    signed = x509.load_pem_x509_certificate((authority / "north.pem").read_bytes())
    signed.verify_directly_issued_by(x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes()))
    assert hosts_of(signed) == {"10.0.0.1"}
    assert 29 < (certificates.expiry(authority / "north.pem") - datetime.now(UTC)).days + 1 <= 30
    assert "never overwritten" in refused("tls", "request", "north", "--out", hospital)
    assert "--overwrite" in refused("tls", "sign", authority, hospital / "north.csr", "--host", "10.0.0.1")
    again = ok("tls", "sign", authority, hospital / "north.csr", "--host", "10.0.0.1", "--overwrite")
    assert again.splitlines()[1] + "\n" == printed  # peers list both until the service has been restarted


def test_of_a_signing_request_only_the_key_is_used(tmp_path):
    ok("tls", "init", tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    hostile_request(tmp_path / "north.csr", key)
    ok("tls", "sign", tmp_path, tmp_path / "north.csr", "--host", "north.example")
    signed = x509.load_pem_x509_certificate((tmp_path / "north.pem").read_bytes())
    assert signed.public_key() == key.public_key()
    assert hosts_of(signed) == {"north.example"}
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not signed.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert signed.subject.rfc4514_string() == "CN=north"


def test_requests_that_are_forged_weak_or_none_are_refused(tmp_path):
    ok("tls", "init", tmp_path)
    key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    hostile_request(tmp_path / "north.csr", key, signer=other)
    for name, make, expected in [
        ("north", None, "signing request|signature"),
        ("weak", rsa.generate_private_key(65537, 1024), "2048 bits"),  # noqa: S505
        ("odd", ec.generate_private_key(ec.SECP256K1()), "elliptic curve"),
    ]:
        if make is not None:
            hostile_request(tmp_path / f"{name}.csr", make)
        said = refused("tls", "sign", tmp_path, tmp_path / f"{name}.csr", "--host", "a.example")
        assert re.search(expected, said), said
        assert not (tmp_path / f"{name}.pem").exists()
    (tmp_path / "none.csr").write_bytes((tmp_path / "ca.pem").read_bytes())
    assert "signing request" in refused("tls", "sign", tmp_path, tmp_path / "none.csr", "--host", "a.example")
    (tmp_path / "long.csr").write_bytes(b" " * (1 << 17))
    assert "too long" in refused("tls", "sign", tmp_path, tmp_path / "long.csr", "--host", "a.example")
    ok("tls", "issue", tmp_path, "here")  # its key is here: a request is not for it
    hostile_request(tmp_path / "here.csr", key)
    assert "rotate" in refused("tls", "sign", tmp_path, tmp_path / "here.csr", "--host", "a.example")


def test_a_token_is_in_its_file_and_its_digest_is_shown(tmp_path):
    path = tmp_path / "north.token"
    printed = ok("tls", "token", path).strip()
    token = path.read_text().strip()
    assert mode(path) == 0o600
    assert token_matches(token, printed)
    assert token not in printed
    assert "never overwritten" in refused("tls", "token", path)
    assert path.read_text().strip() == token
    assert "no such file" in refused("tls", "token", tmp_path / "missing" / "x")


def test_an_identity_is_in_its_file_and_its_public_part_is_shown(tmp_path):
    path = tmp_path / "north.identity"
    printed = ok("tls", "identity", path).strip()
    assert mode(path) == 0o600
    assert load_identity(path).public.hex() == printed
    assert "never overwritten" in refused("tls", "identity", path)


class Node(Strict):
    listen: Listen = Listen()
    tls: Tls
    identity: SecretFile
    peers: dict[str, PeerSettings]
    limits: Limits = Limits()


@pytest.fixture
def deployment(tmp_path, monkeypatch):
    """Settings of a node whose files were made by the commands above."""
    monkeypatch.setattr(settings_files, "settings_types", lambda: {"party": Node, "miner": Node})
    ok("tls", "init", tmp_path / "tls")
    ok("tls", "issue", tmp_path / "tls", "north")
    pinned = ok("tls", "issue", tmp_path / "tls", "miner").strip()
    digest = ok("tls", "token", tmp_path / "miner.token").strip()
    public = ok("tls", "identity", tmp_path / "north.identity").strip()
    (tmp_path / "north.yaml").write_text(
        "tls: {certificate: tls/north.pem, key: tls/north.key, authority: tls/ca.pem}\n"
        "identity: north.identity\n"
        "peers:\n  miner:\n    url: https://127.0.0.1:8443\n"
        f"    fingerprints: ['{pinned}']\n    token_digest: {digest}\n    token_file: miner.token\n"
        f"    identity: '{public}'\n"
    )
    return tmp_path


def test_settings_made_with_the_commands_are_valid(deployment, monkeypatch):
    file = deployment / "north.yaml"
    assert ok("config", "check", file) == f"{file} is valid for a party; 5 files it names can be read.\n"
    monkeypatch.setenv("MASQUERADE_LISTEN__PORT", "9000")
    assert "listen.port is overridden by MASQUERADE_LISTEN__PORT." in ok("config", "check", file)
    checked = json.loads(ok("config", "check", file, "--kind", "miner", "--json"))
    assert checked["valid"] is True
    assert checked["overridden"] == {"listen.port": "MASQUERADE_LISTEN__PORT"}
    assert "peers.miner.token_file" in checked["files"]


@pytest.mark.parametrize(
    ("name", "key"),
    [("tls/north.key", "tls.key"), ("north.identity", "identity"), ("miner.token", "peers.miner.token_file")],
)
def test_a_secret_that_others_may_read_is_refused(deployment, name, key):
    (deployment / name).chmod(0o640)
    line = refused("config", "check", deployment / "north.yaml")
    assert f"{key}: " in line
    assert "may be read by others (mode 640)" in line


def test_wrong_settings_are_one_line(deployment, monkeypatch):
    file = deployment / "north.yaml"
    assert "Did you mean 'party'?" in refused("config", "check", file, "--kind", "prty")
    assert "no such file" in refused("config", "check", deployment / "x.yaml")
    monkeypatch.setenv("MASQUERADE_LISTEN__PROT", "9000")
    assert "Did you mean 'MASQUERADE_LISTEN__PORT'?" in refused("config", "check", file)
    monkeypatch.delenv("MASQUERADE_LISTEN__PROT")
    file.write_text(file.read_text().replace("authority: tls/ca.pem", "autority: tls/ca.pem"))
    assert "tls.autority: is not a known key. Did you mean 'authority'?" in refused("config", "check", file)


def test_the_kinds_of_services_have_settings():
    known = settings_files.settings_types()
    assert {"party", "miner", "randomness", "collector"} <= set(known)
    for model in known.values():  # unknown keys are refused, and nothing changes once it is checked
        assert issubclass(model, Strict)
        assert (model.model_config["extra"], model.model_config["frozen"]) == ("forbid", True)
