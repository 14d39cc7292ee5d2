"""The key that a node signs with, in a file of its owner's."""

import stat

import pytest

from masquerade.core.errors import FileError
from masquerade.crypto.keys import create_identity, load_identity, verify_signature


def test_an_identity_survives_in_a_private_file(tmp_path):
    path = tmp_path / "identity"
    key = create_identity(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = load_identity(path)
    verify_signature(bytes.fromhex(key.public.hex()), loaded.sign("a label", b"x"), "a label", b"x")
    with pytest.raises(FileError, match="never overwritten"):
        create_identity(path)
    assert load_identity(path).public == key.public
    path.chmod(0o640)
    with pytest.raises(FileError, match="others may read it"):
        load_identity(path)
    path.chmod(0o600)
    path.write_text("zz")
    with pytest.raises(FileError, match="is not an identity"):
        load_identity(path)
    with pytest.raises(FileError, match="cannot be read"):
        load_identity(tmp_path / "none")
    with pytest.raises(FileError, match="cannot be written"):
        create_identity(tmp_path / "none" / "identity")
