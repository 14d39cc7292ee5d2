"""A deployment to try out, on one machine: an authority, and a certificate, identity, port and file each."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto import certificates
from masquerade.crypto.keys import create_identity

PORTS, MOST_TRIED = range(10_000, 32_000), 1000


class ExampleDeployment:
    """Folders of nodes below one folder, which must not be there.

    `services` listen and sign; `callers` have a certificate only. `known` is what the others' settings say of
    each of them as a peer.
    """

    def __init__(
        self,
        folder: Path,
        services: Sequence[str],
        callers: Sequence[str] = (),
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self.folder, tls = folder, folder / "tls"
        tls.mkdir(parents=True)
        certificates.init(tls)
        self.ports = dict(ports or free_ports(services))
        self.known: dict[str, dict[str, Any]] = {}
        for name in (*services, *callers):
            certificates.issue(tls, name)
            (folder / name).mkdir()
            marks = {"fingerprints": [certificates.fingerprint(tls / f"{name}.pem")]}
            self.known[name] = marks
            if name in services:
                key = create_identity(folder / name / "identity.key")
                url, identity = f"https://127.0.0.1:{self.ports[name]}", key.public.hex()
                self.known[name] = {"url": url, **marks, "identity": identity}

    def settings(self, name: str) -> dict[str, Any]:
        """Return what the settings of every service have: its name, where it listens, its files."""
        return {
            "masquerade": 1,
            "name": name,
            "listen": {"port": self.ports[name]},
            "tls": self.tls(name),
            "identity": "identity.key",
            "state": "state",
        }

    def tls(self, name: str) -> dict[str, str]:
        """Return the files of TLS, as seen from the folder of whoever shows them."""
        files = {"certificate": f"../tls/{name}.pem", "key": f"../tls/{name}.key"}
        return files | {"authority": "../tls/ca.pem"}

    def write(self, name: str, values: Mapping[str, Any]) -> Path:
        """Write a settings file below the folder, and return where it is."""
        path = self.folder / name
        write_whole(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))
        return path


def free_ports(nodes: Sequence[str]) -> dict[str, int]:
    """Return a free port for every node, below those that a machine gives to its own connections."""
    found: dict[str, int] = {}
    for port in secrets.SystemRandom().sample(PORTS, min(MOST_TRIED, len(PORTS))):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found[nodes[len(found)]] = port
        if len(found) == len(nodes):
            return found
    raise InputError("No free port was found on this machine.")
