"""The key that a node signs with, in a file of its owner's."""

import stat

import pytest

from masquerade.core.errors import FileError
from masquerade.crypto import identity_keys
from masquerade.crypto.keys import verify_signature


def test_an_identity_survives_in_a_private_file(tmp_path):
    path = tmp_path / "identity"
    key = identity_keys.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = identity_keys.load(path)
    verify_signature(
        bytes.fromhex(identity_keys.public_text(key)), loaded.sign("a label", b"x"), "a label", b"x"
    )
    with pytest.raises(FileError, match="never overwritten"):
        identity_keys.create(path)
    assert identity_keys.load(path).public == key.public
    path.chmod(0o640)
    with pytest.raises(FileError, match="others may read it"):
        identity_keys.load(path)
    path.chmod(0o600)
    path.write_text("zz")
    with pytest.raises(FileError, match="is not an identity"):
        identity_keys.load(path)
    with pytest.raises(FileError, match="cannot be read"):
        identity_keys.load(tmp_path / "none")
    with pytest.raises(FileError, match="cannot be written"):
        identity_keys.create(tmp_path / "none" / "identity")
