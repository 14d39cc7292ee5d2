"""A survey with its collector, behind a real socket."""

from __future__ import annotations

import secrets
import socket
import ssl
from contextlib import contextmanager

import httpx
import numpy as np
import yaml
from tests.services.background import background

from masquerade.services.common.peers import PLAIN
from masquerade.services.common.settings import load
from masquerade.survey import Survey
from masquerade.survey.collector.collector import SurveyCollector
from masquerade.survey.collector.example import write_example
from masquerade.survey.collector.settings import SurveySettings
from masquerade.survey.collector.store import Report


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def change(file, **values):
    """Change keys of a YAML file."""
    content = yaml.safe_load(file.read_text())
    content |= values
    file.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not None}, sort_keys=False))


def matrix_of(policy, name):
    """Return the chances of one variable's reports, whatever the others that share its channel are."""
    group = policy.group(name)
    if not group.disguised:
        return np.eye(len(policy.schema[name]))
    matrix = group.matrix_channel.matrix.reshape(group.sizes * 2)
    place, width = group.names.index(name), len(group.names)
    first = matrix[tuple(slice(None) if i == place else 0 for i in range(width))]
    return first.sum(axis=tuple(1 + i for i in range(width) if i != place))


def report(codes=(0, 1, 1, 2), name=None, token=None, policy="p" * 64):
    return Report(name or secrets.token_bytes(16), policy, 0, tuple(codes), token)


def store_url(postgres, folder):
    """Return the address of a new database, without its password, which lies in a file."""
    own, secret = postgres.fresh_database(), folder / "pgpass"
    secret.write_text(f"*:*:*:*:{own.password}\n")
    secret.chmod(0o600)
    return f"postgresql://{own.user}@127.0.0.1:{own.port}/{own.database}?passfile={secret}"


@contextmanager
def collecting(
    folder, *, invited=False, policy=None, per_minute=10**9, settings=None, authority=None, **survey
):
    """Serve the example without its box to tick, changed as told; give (collector, address, client)."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    if not folder.exists():
        write_example(folder, address, invited=invited)
        if policy is not None:
            (folder / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))
    change(folder / "survey.yaml", collector=address, **_plain(survey) | survey)
    own = {"listen": {"port": port}, "limits": {"per_minute": per_minute}}
    change(folder / "collector.yaml", **(own | (settings or {})))
    collector = SurveyCollector(load(folder / "collector.yaml", SurveySettings, environment={}))
    try:
        tls = PLAIN if collector.settings.tls is None else collector.settings.tls.files()
        trusted = True if authority is None else ssl.create_default_context(cafile=authority)
        with (
            background(collector.service(), port=port, tls=tls) as url,
            httpx.Client(base_url=url, trust_env=False, verify=trusted, timeout=600) as http,
        ):
            yield collector, url, http
    finally:
        collector.close()


def example(folder, **survey) -> Survey:
    write_example(folder, "https://survey.example.org")
    change(folder / "survey.yaml", **survey)
    return Survey.load(folder / "survey.yaml")


def _plain(survey):
    """Return what to leave out of the example: its box, and texts that lack the languages of a test."""
    return dict.fromkeys(["agree", *(["information", "closing"] if "languages" in survey else [])])
