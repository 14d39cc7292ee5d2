"""Settings: one file, overrides by the environment, errors that say what is right and quote nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, model_validator

import masquerade
from masquerade.core.errors import FileError, InputError
from masquerade.services.common.settings import (
    AnyPath,
    Limits,
    Listen,
    PeerSettings,
    PublicFile,
    SecretFile,
    Strict,
    Tls,
    check_files,
    check_private,
    is_loopback,
    load,
    named_files,
    overrides,
    size,
)
from masquerade.services.common.settings_file import RESERVED

DIGEST = "sha256:" + "ab" * 32
SECRET = "c2VjcmV0LXRva2VuLXRoYXQtbm9ib2R5LXNlZXM"  # noqa: S105


class Source(Strict):
    files: tuple[AnyPath, ...] = ()
    policy: PublicFile | None = None


class Agreed(Strict):
    session: str


class Node(Strict):
    name: str = "north"
    mode: Literal["fast", "careful"] = "fast"
    strict: bool = True
    listen: Listen = Listen()
    tls: Tls | None = None
    limits: Limits = Limits()
    state: AnyPath = Path("state")
    identity: SecretFile | None = None
    data: Source = Source()
    peers: dict[str, PeerSettings] = Field(default_factory=dict)
    agreed: tuple[Agreed, ...] = ()

    @model_validator(mode="after")
    def known(self):
        if self.name in self.peers:
            raise ValueError("a node must not be its own peer")
        return self


def loaded(folder, text, **environment):
    """Load settings from text."""
    (folder / "node.yaml").write_text(text, encoding="utf-8")
    return load(folder / "node.yaml", Node, environment=environment)


def problem(folder, text, **environment):
    """Load settings that are refused; return the one line, which quotes no secret and names the file."""
    with pytest.raises(InputError) as caught:
        loaded(folder, text, **environment)
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return line.removeprefix(f"{folder / 'node.yaml'}: ")


def test_a_file_is_loaded_and_its_paths_start_at_its_folder(tmp_path):
    text = f"""
    listen: {{host: 0.0.0.0, port: 9443}}
    tls: {{certificate: tls/north.pem, key: /keys/north.key}}
    limits: {{body_bytes: 2 MiB, arrow_bytes: 10, rows: 1_000, seconds: 2.5}}
    data: {{files: [a.parquet, ../b.parquet]}}
    peers: {{miner: {{url: "https://miner.example:8443/", fingerprints: ["{DIGEST.upper()}"]}}}}
    """
    node = loaded(tmp_path, text)
    assert node.listen == Listen(host="0.0.0.0", port=9443)  # noqa: S104
    assert node.tls.certificate == tmp_path / "tls" / "north.pem"
    assert node.tls.key == Path("/keys/north.key")
    assert node.tls.authority is None
    assert node.state == tmp_path / "state"  # the default too
    assert node.data.files == (tmp_path / "a.parquet", tmp_path.parent / "b.parquet")
    assert node.limits == Limits(body_bytes=2 << 20, arrow_bytes=10, rows=1000, seconds=2.5)
    assert node.peers["miner"].url == "https://miner.example:8443"
    assert node.peers["miner"].fingerprints == (DIGEST,)
    with pytest.raises(ValueError, match="frozen"):
        node.name = "south"


def test_the_defaults_are_those_documented():
    limits = Limits()
    assert (limits.body_bytes, limits.arrow_bytes) == (64 << 20, 256 << 20)
    assert (limits.rows, limits.cells, limits.concurrency, limits.seconds) == (20_000_000, 2**24, 8, 60)
    assert Listen() == Listen(host="127.0.0.1", port=8443)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64 MiB", 64 << 20),
        ("64mib", 64 << 20),
        ("1.5 kB", 1500),
        ("2 GB", 2 * 10**9),
        ("1_000", 1000),
        (7, 7),
    ],
)
def test_sizes_are_written_with_units(text, number):
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "MiB", "-1 MiB", "1 MiBs", "0.3 B", "1,5 MB", "1e9", "٣ B"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="bytes"):
        size(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen: {prot: 1}", "listen.prot: is not a known key. Did you mean 'port'?"),
        ("lisen: {port: 1}", "lisen: is not a known key. Did you mean 'listen'?"),
        ("listen: {port: 70000}", "listen.port: must be at most 65535."),
        ("listen: {port: many}", "listen.port: must be a whole number."),
        ("listen: {host: 5}", "listen.host: must be text; quote it."),
        ("listen: 5", "listen: must be keys with values."),
        ("limits: {seconds: 0}", "limits.seconds: must be more than 0."),
        ("limits: {seconds: .inf}", "limits.seconds: must be"),
        ("limits: {body_bytes: 0}", "limits.body_bytes: must be at least 1."),
        ("limits: {body_bytes: 3 miles}", "limits.body_bytes: must be a number of bytes, such as"),
        ("mode: quick", "mode: must be 'fast' or 'careful'."),
        ("strict: maybe", "strict: must be true or false."),
        ("tls: {certificate: a.pem}", "tls.key: is missing."),
        ("tls: {certificate: [a], key: b}", "tls.certificate: must be the name of a file."),
        ("data: {files: a.csv}", "data.files: must be a list, such as [a, b]."),
        ("peers: {north: {url: 'https://a'}}", "the settings: a node must not be its own peer."),
        ("peers: {a: {}}", "peers.a: needs a url to reach it, or"),
        (
            "peers: {a: {fingerprints: [a, b]}}",
            "peers.a.fingerprints.0: must be 'sha256:' and 64 hexadecimal",
        ),
        ("peers: {a: {identity: abc}}", "peers.a.identity: must be 64 hexadecimal digits"),
        (
            "listen: {port: x}\nlimits: {rows: y, cells: 0}",
            (
                "listen.port: must be a whole number. limits.rows: must be a whole number. "
                "limits.cells: must be at least 1."
            ),
        ),
    ],
)
def test_an_error_is_one_line_with_the_key_and_what_is_right(tmp_path, text, said):
    assert problem(tmp_path, text).startswith(said)


@pytest.mark.parametrize(
    "url",
    [
        "miner",
        "ftp://miner",
        "https://",
        "http://miner.example",
        "https://me:pw@miner",
        "https://a?b=c",
        "https://a:b",
    ],
)
def test_addresses_are_encrypted_or_on_this_machine(tmp_path, url):
    assert problem(tmp_path, f"peers: {{a: {{url: '{url}'}}}}").startswith("peers.a.url: must ")


def test_this_machine_may_be_spoken_to_without_encryption(tmp_path):
    for host in ("127.0.0.1:80", "localhost", "[::1]:8443"):
        assert loaded(tmp_path, f"peers: {{a: {{url: 'http://{host}'}}}}").peers["a"].url == f"http://{host}"
    assert not is_loopback("127.0.0.1.example")


@pytest.mark.parametrize(
    "text",
    [
        f"peers: {{a: {{token: {SECRET}}}}}",
        f"peers: {{a: {{token_digest: {SECRET}}}}}",
        f"peers: {{a: {{url: 'https://me:{SECRET}@a'}}}}",
        f'tls: {{certificate: a, key: "-----BEGIN PRIVATE KEY-----\\n{SECRET}\\n"}}',
        f"listen: {{port: {SECRET}}}",
        f"limits: {{body_bytes: {SECRET}}}",
        f"{{peers: {SECRET}}}",
        f"peers: {{a: {{identity: {SECRET}}}}}",
        f"mode: {SECRET}",
        f"a: [1\nb: {SECRET}",
        f"a: !!python/name:{SECRET} 1",
        f"*{SECRET}",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path, text):
    problem(tmp_path, text)


def test_a_token_in_the_file_is_told_where_it_belongs(tmp_path):
    assert "never written into the settings" in problem(tmp_path, f"peers: {{a: {{token: {SECRET}}}}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nname: b", "line 2: 'name' is given twice."),
        ("listen: {port: 1, port: 2}", "line 1: 'port' is given twice."),
        ("1: a", "line 1: a key must be text; quote it."),
        ("name: [", "line 1: not valid YAML."),
        ("[a, b]", "must be keys with values, such as"),
        ("", "must be keys with values, such as"),
        ("a: !!python/object/apply:os.system [ls]", "line 1: not valid YAML."),
    ],
)
def test_yaml_is_read_safely_and_strictly(tmp_path, text, said):
    assert problem(tmp_path, text).startswith(said)


def test_yaml_reads_words_and_codes_as_they_are_written(tmp_path):
    assert loaded(tmp_path, "name: no").name == "no"
    assert loaded(tmp_path, "name: 0123").name == "0123"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        load(tmp_path / "missing.yaml", Node, environment={})
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load(tmp_path / "b.yaml", Node, environment={})
    (tmp_path / "c.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(InputError, match="too long"):
        load(tmp_path / "c.yaml", Node, environment={})


PEERS = f"peers: {{north-west.1: {{fingerprints: ['{DIGEST}']}}}}\nname: x"


def test_the_environment_overrides(tmp_path):
    node = loaded(
        tmp_path,
        PEERS,
        MASQUERADE_LISTEN__PORT="9000",
        MASQUERADE_LISTEN__HOST="::1",
        MASQUERADE_NAME="5",
        MASQUERADE_STRICT="false",
        MASQUERADE_LIMITS__BODY_BYTES="1 MiB",
        MASQUERADE_TLS__CERTIFICATE="a.pem",
        MASQUERADE_TLS__KEY="a.key",
        MASQUERADE_DATA__FILES="[x.csv, y.csv]",
        MASQUERADE_PEERS__NORTH_WEST_1__URL="https://nw.example",
        PATH="/bin",
    )
    assert (node.listen.port, node.listen.host, node.name, node.strict) == (9000, "::1", "5", False)
    assert node.limits.body_bytes == 1 << 20
    assert node.tls.key == tmp_path / "a.key"
    assert node.data.files == (tmp_path / "x.csv", tmp_path / "y.csv")
    assert node.peers["north-west.1"].url == "https://nw.example"
    assert node.peers["north-west.1"].fingerprints == (DIGEST,)


def test_variables_of_the_library_are_no_overrides(tmp_path):
    own = {f"MASQUERADE_{name}": "x" for name in ("DATA", "CACHE", "OFFLINE", "URL", "DEBUG")}
    assert loaded(tmp_path, "name: a", **own) == loaded(tmp_path, "name: a")


def test_every_variable_that_the_library_reads_is_known_not_to_be_an_override():
    package = Path(masquerade.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    overrides = {"MASQUERADE_STATE"}  # written into units and compose files, for a service to read
    assert set(re.findall(r"MASQUERADE_[A-Z]+(?:_[A-Z]+)*(?![A-Z_])", text)) - overrides == RESERVED


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("MASQUERADE_LISTEN__PROT", "Did you mean 'MASQUERADE_LISTEN__PORT'?"),
        ("MASQUERADE_LISTEN_PORT", "Did you mean 'MASQUERADE_LISTEN'?"),
        ("MASQUERADE_NAME__X", "goes deeper than any key"),
        ("MASQUERADE_PEERS__SOUTH__URL", "overrides nothing"),
        ("MASQUERADE_PEERS", "cannot override peers: change it in the file"),
        ("MASQUERADE_AGREED", "cannot override agreed: change it in the file"),
        ("MASQUERADE_LISTEN", "cannot override listen: change it in the file"),
        ("MASQUERADE_", "overrides nothing"),
    ],
)
def test_unknown_overrides_are_refused(tmp_path, variable, said):
    line = problem(tmp_path, PEERS, **{variable: SECRET})
    assert line.startswith(variable)
    assert said in line


def test_a_wrong_override_names_the_variable(tmp_path):
    line = problem(tmp_path, "name: a", MASQUERADE_LISTEN__PORT=SECRET)
    assert line == "listen.port (from MASQUERADE_LISTEN__PORT): must be a whole number."
    assert "not a valid list" in problem(tmp_path, "name: a", MASQUERADE_DATA__FILES="[a")


def test_names_that_one_variable_could_mean_are_not_guessed(tmp_path):
    text = f"peers: {{a-b: {{token_digest: '{DIGEST}'}}, a.b: {{token_digest: '{DIGEST}'}}}}"
    assert "two" in problem(tmp_path, text, MASQUERADE_PEERS__A_B__URL="https://x")


def test_the_process_environment_is_used_unless_another_is_given(tmp_path, monkeypatch):
    (tmp_path / "node.yaml").write_text("name: a")
    monkeypatch.setenv("MASQUERADE_LISTEN__PORT", "1234")
    assert load(tmp_path / "node.yaml", Node).listen.port == 1234
    assert overrides(tmp_path / "node.yaml", Node) == {"listen.port": "MASQUERADE_LISTEN__PORT"}


def deployed(folder):
    """Write settings with a certificate, a key, a token and a policy, all in order."""
    for name in ("a.pem", "a.key", "t.token", "p.yaml"):
        (folder / name).write_text("x")
    for name in ("a.key", "t.token"):
        (folder / name).chmod(0o600)
    return loaded(
        folder,
        f"tls: {{certificate: a.pem, key: a.key}}\ndata: {{policy: p.yaml, files: ['*.csv']}}\n"
        f"peers: {{b: {{token_digest: '{DIGEST}', token_file: t.token}}}}",
    )


def test_the_files_that_settings_name(tmp_path):
    node = deployed(tmp_path)
    check_files(node)
    found = {(name, path.name, secret) for name, path, secret in named_files(node)}
    assert found == {
        ("tls.certificate", "a.pem", False),
        ("tls.key", "a.key", True),
        ("data.policy", "p.yaml", False),
        ("peers.b.token_file", "t.token", True),
    }


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o610, 0o602])
@pytest.mark.parametrize(("name", "key"), [("a.key", "tls.key"), ("t.token", "peers.b.token_file")])
def test_a_secret_that_others_may_read_is_refused(tmp_path, name, key, mode):
    node = deployed(tmp_path)
    (tmp_path / name).chmod(mode)
    with pytest.raises(FileError, match=rf"node.yaml: {key}: .*chmod 600"):
        check_files(node, "node.yaml")


def test_where_files_have_no_modes_secrets_are_not_refused_for_them(tmp_path, monkeypatch):
    (tmp_path / "key").write_text("x")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(FileError, match="may be read by others"):
        check_private(tmp_path / "key")
    monkeypatch.setattr("masquerade.services.common.settings.HAS_MODES", False)
    check_private(tmp_path / "key")


def test_a_missing_secret_is_not_shown_for_its_name_may_be_it(tmp_path):
    (tmp_path / "a.pem").write_text("x")
    node = loaded(tmp_path, f"tls: {{certificate: a.pem, key: {SECRET}}}")
    with pytest.raises(FileError, match=r"tls\.key: the file cannot be read") as caught:
        check_files(node)
    assert SECRET not in str(caught.value)
    (tmp_path / "a.pem").unlink()
    with pytest.raises(FileError, match=r"tls.certificate: .*a\.pem cannot be read \(no such file"):
        check_files(node)
    os.mkdir(tmp_path / "a.pem")  # noqa: PTH102
    with pytest.raises(FileError, match="directory"):
        check_files(node)
