"""Example deployment: an authority (CA), and per service a certificate, identity, address and settings file.

On one machine all services share the folder of the authority. For several machines each service has a
complete folder: its own key, which was created there, the certificate that the authority signed, `ca.pem`,
and files for systemd and for containers.
"""

from __future__ import annotations

import ipaddress
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto import certificates
from masquerade.crypto.keys import create_identity

PORTS, MOST_TRIED = range(10_000, 32_000), 1000
PORT, PROBE_PORT = 8443, 8081  # ports of a service that has a machine to itself
PROGRAM, SETTINGS, STATE = "/opt/masquerade/bin/masquerade", "/etc/masquerade", "/var/lib/masquerade"
CACHE, USER = "/var/cache/masquerade", "10001"


class ExampleDeployment:
    """Folders of nodes below one new folder.

    Parameters
    ----------
    folder : Path
        New folder.
    services : sequence of str
        Nodes that listen and sign.
    callers : sequence of str, optional
        Nodes that only have a certificate.
    ports : mapping of str to int, optional
        Ports on this machine; by default free ports.
    hosts : mapping of str to str, optional
        Address of the machine of each service, with or without a port. Without it, all are on this machine.

    Attributes
    ----------
    known : dict
        Settings of each node as a peer of the others.
    """

    def __init__(
        self,
        folder: Path,
        services: Sequence[str],
        callers: Sequence[str] = (),
        ports: Mapping[str, int] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.tls_folder = folder, folder / "tls"
        self.hosts = None if hosts is None else parse_hosts(hosts, services)
        self.tls_folder.mkdir(parents=True)
        certificates.init(self.tls_folder)
        if self.hosts is None:
            self.ports = dict(ports or free_ports(services))
        else:
            self.ports = {name: port for name, (_, port) in self.hosts.items()}
        self.known: dict[str, dict[str, Any]] = {}
        for name in (*services, *callers):
            (folder / name).mkdir()
            marks = {"fingerprints": [self._certify(name)]}
            self.known[name] = marks
            if name in services:
                key = create_identity(folder / name / "identity.key")
                host = "127.0.0.1" if self.hosts is None else self.hosts[name][0]
                url, identity = f"https://{_in_url(host)}:{self.ports[name]}", key.public.hex()
                self.known[name] = {"url": url, **marks, "identity": identity}

    def _certify(self, name: str) -> str:
        """Issue a certificate; for a node with its own machine, create the key in the node's folder."""
        if self.hosts is None or name not in self.hosts:
            return certificates.issue(self.tls_folder, name).fingerprint
        home, host = self.folder / name, self.hosts[name][0]
        here = ("127.0.0.1", "localhost")  # the operator's commands, on the machine of the service
        csr, _ = certificates.request(home, name, (host, *here))
        signed = certificates.sign(self.tls_folder, csr, name, (host, *here))
        csr.unlink()
        for file in (signed.certificate, self.tls_folder / "ca.pem"):
            shutil.copyfile(file, home / file.name)
        return signed.fingerprint

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings that every service has: name, address and files."""
        listen: dict[str, Any] = {"port": self.ports[name]}
        if self.hosts is not None:
            listen = {"host": _address(self.hosts[name][0]), **listen}
            listen["probe"] = {"host": "127.0.0.1", "port": PROBE_PORT}
        return {
            "masquerade": 1,
            "name": name,
            "listen": listen,
            "tls": self.tls(name),
            "identity": "identity.key",
            "state": "state",
        }

    def tls(self, name: str) -> dict[str, str]:
        """Return the paths of TLS files, relative to the folder of a node."""
        if self.hosts is not None and name in self.hosts:
            return {"certificate": f"{name}.pem", "key": f"{name}.key", "authority": "ca.pem"}
        files = {"certificate": f"../tls/{name}.pem", "key": f"../tls/{name}.key"}
        return files | {"authority": "../tls/ca.pem"}

    def write(self, name: str, values: Mapping[str, Any]) -> Path:
        """Write a settings file below the folder, and return its path."""
        path = self.folder / name
        write_whole(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))
        return path

    def write_host_files(self, name: str, kind: str, command: Sequence[str], file: Path) -> None:
        """Write the unit for systemd and the compose file of a service that has its own machine.

        Parameters
        ----------
        name : str
            Name of the node.
        kind : str
            Type of the service, which names the unit and its folders.
        command : sequence of str
            Arguments of `masquerade` before the settings file, such as party and serve.
        file : Path
            Settings file of the node.
        """
        if self.hosts is None:
            return
        home, (host, port) = self.folder / name, self.hosts[name]
        write_whole(home / f"masquerade-{kind}.service", unit_text(kind, f"node {name}", command, file.name))
        published = f"{host}:{port}:{port}" if _is_address(host) else f"{port}:{port}"
        service = {
            **CONTAINER,
            "command": [*command, f"{SETTINGS}/{file.name}"],
            "environment": {
                "MASQUERADE_STATE": STATE,
                "MASQUERADE_LISTEN__HOST": "0.0.0.0",  # noqa: S104  (inside the container)
            },
            "volumes": [f".:{SETTINGS}:ro", f"state:{STATE}", f"cache:{CACHE}"],
            "ports": [published],
            "healthcheck": {"test": ["CMD", f"{PROGRAM.rpartition('/')[0]}/python", "-c", _READY]},
        }
        values = {"name": f"masquerade-{name}", "services": {name: service}}
        self.write(f"{name}/compose.yaml", values | {"volumes": {"state": {}, "cache": {}}})


CONTAINER: dict[str, Any] = {
    "image": "masquerade",
    "pull_policy": "never",  # built on this machine; in a registry anyone could hold this name
    "user": USER,
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "tmpfs": ["/tmp"],  # noqa: S108  (a file system of the container's own)
    "restart": "on-failure:5",
    "stop_grace_period": "40s",
}
_READY = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PROBE_PORT}/ready', timeout=5)"
_UNIT = """\
[Unit]
Description=masquerade: {described}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
User=masquerade
Group=masquerade
ExecStartPre={program} config check {file}
ExecStart={program} {command} {file}
{state}Environment=NUMBA_CACHE_DIR=%C/masquerade/{kind}
StateDirectory=masquerade/{kind}
StateDirectoryMode=0700
CacheDirectory=masquerade/{kind}
UMask=0077
KillSignal=SIGTERM
TimeoutStopSec=40
Restart=on-failure
RestartSec=10
# exit code 2: settings or files are wrong, and will be wrong again
RestartPreventExitStatus=2
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
# no MemoryDenyWriteExecute: counting and drawing are compiled when they are first needed

[Install]
WantedBy=multi-user.target
"""


def unit_text(
    kind: str, described: str, command: Sequence[str], file: str, *, moves_state: bool = True
) -> str:
    """Return the systemd unit of a service.

    Parameters
    ----------
    kind : str
        Type of the service: its settings are in /etc/masquerade/KIND/.
    described : str
        Description of the unit, which follows the name of the package.
    command : sequence of str
        Arguments of `masquerade` before the settings file.
    file : str
        Name of the settings file.
    moves_state : bool
        Whether `state` is below /var/lib/masquerade, regardless of the settings file. A survey's state may be
        a database.
    """
    values = {"kind": kind, "described": described, "program": PROGRAM, "command": " ".join(command)}
    state = f"Environment=MASQUERADE_STATE=%S/masquerade/{kind}\n" if moves_state else ""
    return _UNIT.format(file=f"{SETTINGS}/{kind}/{file}", state=state, **values)


def parse_hosts(hosts: Mapping[str, str], services: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the host and port of each service; raise InputError for unknown or missing services."""
    for name in hosts:
        if name not in services:
            raise InputError(f"There is no node {name!r} here. The nodes are {', '.join(services)}.")
    missing = [name for name in services if name not in hosts]
    if missing:
        raise InputError(f"Every node needs a host. Hosts are missing for {', '.join(missing)}.")
    addresses: dict[str, tuple[str, int]] = {}
    for name in services:
        try:
            parts = urlsplit(f"//{hosts[name]}")
            host, port = parts.hostname, parts.port or PORT
        except ValueError:
            host, port, parts = None, PORT, urlsplit("")
        if not host or parts.path or parts.username or parts.query:
            raise InputError(
                f"The host of {name} must be an address or a name, such as 10.0.0.1 or a.example:9443."
            )
        addresses[name] = (host, port)
    if len(set(addresses.values())) < len(addresses):
        raise InputError("Two nodes have the same host and port. Each needs its own.")
    return addresses


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _address(host: str) -> str:
    """Return the address to listen at; for a host name, all addresses, since it may resolve to loopback."""
    return host if _is_address(host) else "0.0.0.0"  # noqa: S104  (callers show certificates)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def free_ports(nodes: Sequence[str]) -> dict[str, int]:
    """Return a free port for every node, below the range of ephemeral ports."""
    found: dict[str, int] = {}
    for port in secrets.SystemRandom().sample(PORTS, min(MOST_TRIED, len(PORTS))):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found[nodes[len(found)]] = port
        if len(found) == len(nodes):
            return found
    raise InputError("No free port was found on this machine.")
