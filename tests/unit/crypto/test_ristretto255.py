"""ristretto255 against RFC 9496 and RFC 9497, and the library's pitfalls."""

import ast
import hashlib
import io
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import expand_message
from masquerade.crypto.libsodium import unpack
from masquerade.crypto.ristretto255 import ristretto255

VECTORS = Path(__file__).parents[2] / "vectors" / "crypto"
RFC9496 = json.loads((VECTORS / "rfc9496.json").read_text(encoding="utf-8"))
RFC9497 = {
    k: v
    for k, v in json.loads((VECTORS / "rfc9497.json").read_text(encoding="utf-8")).items()
    if k != "source"
}


def of(k):
    return ristretto255.multiply_public(ristretto255.generator, k)


def test_small_multiples_of_the_generator():
    total = ristretto255.identity
    for k, encoding in enumerate(RFC9496["multiples"]):
        assert total.hash_bytes.hex() == of(k).hash_bytes.hex() == encoding
        if k:
            assert ristretto255.multiply_generator(ristretto255.secret(k)).encode().hex() == encoding
            assert ristretto255.decode(bytes.fromhex(encoding)) == total
        total = total + ristretto255.generator
    assert len(RFC9496["multiples"]) == 16


@pytest.mark.parametrize("reason", RFC9496["invalid"])
def test_invalid_encodings_are_refused(reason):
    assert RFC9496["invalid"][reason]
    for encoding in RFC9496["invalid"][reason]:
        with pytest.raises(DecodingError):
            ristretto255.decode(bytes.fromhex(encoding))


def test_points_derived_from_uniform_bytes():
    assert len(RFC9496["derived_from_sha512"]) == 7
    for vector in RFC9496["derived_from_sha512"]:
        uniform = hashlib.sha512(vector["text"].encode()).digest()
        assert ristretto255.from_uniform(uniform).encode().hex() == vector["point"]
    for wrong in (bytes(63), bytes(65)):
        with pytest.raises(DecodingError, match="64 uniform bytes"):
            ristretto255.from_uniform(wrong)


def test_expanding_a_message():
    """RFC 9380, appendix K.3 (SHA-512), its first two vectors of 32 bytes."""
    domain = b"QUUX-V01-CS02-with-expander-SHA512-256"
    expected = {
        b"": "6b9a7312411d92f921c6f68ca0b6380730a1a4d982c507211a90964c394179ba",
        b"abc": "0da749f12fbe5483eb066a5f595055679b976e93abe9be6f0f6318bce7aca8dc",
    }
    for message, digest in expected.items():
        assert expand_message(message, domain, 32).hex() == digest
    longest = expand_message(b"abc", domain, 255 * 64)
    assert len(longest) == 255 * 64
    assert len({longest[at : at + 64] for at in range(0, len(longest), 64)}) == 255
    for wrong in ((b"", 32), (bytes(256), 32), (b"d", 0), (b"d", 255 * 64 + 1)):
        with pytest.raises(InputError):
            expand_message(b"abc", *wrong)


def test_the_first_oblivious_evaluation_of_rfc9497():
    vector = {name: bytes.fromhex(value) for name, value in RFC9497.items()}
    suite = b"OPRFV1-\x00-ristretto255-SHA512"
    key = ristretto255.secret(int.from_bytes(vector["secret_key"], "little"))
    info = vector["seed"] + len(vector["key_info"]).to_bytes(2, "big") + vector["key_info"]
    assert ristretto255.hash_to_scalar(info + b"\x00", b"DeriveKeyPair" + suite) == key.reveal()
    blind = ristretto255.secret(int.from_bytes(vector["blind"], "little"))
    element = ristretto255.hash_to_group(vector["input"], b"HashToGroup-" + suite)
    blinded = ristretto255.multiply(element, blind)
    evaluated = ristretto255.multiply(blinded, key)
    assert (blinded.encode(), evaluated.encode()) == (vector["blinded"], vector["evaluated"])
    unblinded = ristretto255.multiply(
        evaluated, ristretto255.secret(pow(blind.reveal(), -1, ristretto255.order))
    )
    parts = (vector["input"], unblinded.encode())
    framed = b"".join(len(part).to_bytes(2, "big") + part for part in parts) + b"Finalize"
    assert hashlib.sha512(framed).digest() == vector["output"]


def test_domains_separate_hashes():
    a, b = ristretto255.hash_to_group(b"m", b"a"), ristretto255.hash_to_group(b"m", b"b")
    assert a != b
    assert a == ristretto255.hash_to_group(b"m", b"a")


def test_the_library_leaves_no_file_behind(tmp_path):
    code = (
        "from masquerade.crypto.ristretto255 import ristretto255 as r; assert r.generator + r.generator; "
        "import sys; assert not hasattr(sys.modules['rbcl._sodium'], 'sodium_bs')"  # nor twice in memory
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"TMPDIR": str(tmp_path)})  # noqa: S603
    assert list(tmp_path.iterdir()) == []


def test_the_library_is_unpacked_as_rbcl_would():
    source = (Path(find_spec("rbcl").origin).parent / "_sodium.py").read_bytes()
    found = io.BytesIO()
    assert unpack(io.BytesIO(source), found)
    literals = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    assert found.getvalue() == bytes.fromhex(max(filter(lambda one: isinstance(one, str), literals), key=len))


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"sodium_bs = base64.b64decode('7f45')",
        b"sodium_bs = bytes.fromhex('7f45",
        b"sodium_bs = bytes.fromhex('')",
        b"sodium_bs = bytes.fromhex('7f4')",
        b"sodium_bs = bytes.fromhex('7f4z')",
        b"sodium_bs = bytes.fromhex('" + bytes([0xFF]) + b"')",
    ],
)
def test_another_module_is_not_taken_for_the_library(source):
    assert not unpack(io.BytesIO(source), io.BytesIO())
