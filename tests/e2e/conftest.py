"""What end-to-end tests share."""

import pytest


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Certificates: north serves; south and stranger are of the same authority, impostor of another."""
    from tests.e2e.http_service import World  # noqa: PLC0415  (services run on some systems only)

    from masquerade.crypto import certificates  # noqa: PLC0415

    folder, other = tmp_path_factory.mktemp("tls"), tmp_path_factory.mktemp("other")
    certificates.init(folder, name="ours")
    certificates.init(other, name="ours")  # the same name, another key
    pairs = {name: certificates.issue(folder, name) for name in ("north", "south", "stranger")}
    pairs["impostor"] = certificates.issue(other, "south")
    return World(folder, other, pairs)
