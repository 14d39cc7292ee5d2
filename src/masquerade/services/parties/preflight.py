"""Whether a node could serve what its file promises: looked at before it starts, and by `config check`."""

from __future__ import annotations

import ssl

from pydantic import BaseModel

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError, did_you_mean
from masquerade.frames.file_reader import open_batches
from masquerade.services.common.settings import check_private
from masquerade.services.parties import kinds
from masquerade.services.parties.settings import PartySettings, SessionNodeSettings


def check_node(settings: BaseModel) -> None:
    """Refuse settings under which a service would start and every session fail; other settings pass."""
    if not isinstance(settings, SessionNodeSettings):
        return
    if settings.tls is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                settings.tls.certificate, settings.tls.key
            )
        except (OSError, ssl.SSLError):
            raise FileError(
                f"tls: {settings.tls.certificate} and {settings.tls.key} are not a certificate and its key."
            ) from None
        for name, peer in settings.peers.items():
            if peer.url is not None and not peer.url.startswith("https:"):
                raise InputError(f"peers.{name}.url: must begin with https://, as this node speaks TLS.")
    if isinstance(settings, PartySettings):
        check_records(settings)


def check_records(settings: PartySettings) -> None:
    """Refuse records that lack a column of the policy or the key, and consents to variables that are none."""
    data = settings.data
    policy = Policy.load(data.policy)
    for consent in settings.consents:
        for name in consent.variables:
            if name not in policy.schema:
                raise InputError(
                    f"consents: session {consent.session!r} lists {name!r}, which is no variable of "
                    f"{data.policy}.{did_you_mean(name, policy.schema)}"
                )
    if data.linking_key is not None:
        check_private(data.linking_key, "data.linking_key")
    needed = [] if data.key is None else [data.key]
    cells = any(kinds.find(it.protocol).partition is kinds.Partition.CELLS for it in settings.consents)
    names = [] if cells else [n for c in settings.consents for n in c.variables]
    groups = [[path] for path in data.files] if cells else [list(data.files)]
    for paths in groups:
        with open_batches([str(path) for path in paths], list(dict.fromkeys([*names, *needed]))):
            pass  # a file or column that is missing has been named by now
