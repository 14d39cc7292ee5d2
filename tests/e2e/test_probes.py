"""Probes at a port of their own, and certificates that end."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import threading

import httpx
import pytest
from tests.e2e.http_service import VERSION, Recorder
from tests.services.background import background

from masquerade.crypto import certificates
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.example_deployment import free_ports
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits


def test_probes_need_no_certificate_at_a_port_of_their_own(world):
    [port] = free_ports(["probe"]).values()
    ready = threading.Event()
    service = Service("north", peers=[world.south()], limits=Limits(), handler=Recorder(), ready=ready.is_set)
    with background(service, **world.tls("north"), probe=("127.0.0.1", port)) as url:
        with pytest.raises(httpx.TransportError):  # at the service's own address a probe shows a certificate
            httpx.get(
                f"{url}/ready", verify=ssl.create_default_context(cafile=world.authority), trust_env=False
            )
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as probe:
            assert probe.get("/health").json() == {"alive": True}
            assert (probe.get("/ready").status_code, probe.get("/ready").json()) == (503, {"ready": False})
            ready.set()
            assert (probe.get("/ready").status_code, probe.get("/ready").json()) == (200, {"ready": True})
            for path in ("/metrics", "/version", "/v1/echo", "/", "/docs", "/health/"):
                assert probe.get(path).status_code == 404
            assert probe.post("/v1/echo", content=b"x", headers=VERSION).status_code == 404
            assert probe.post("/health").status_code == 405
    with pytest.raises(httpx.TransportError):  # it ends with the service
        httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)


def test_certificates_that_end_are_measured_and_logged(world, tmp_path, capfd):
    shutil.copytree(world.folder, tmp_path / "tls", symlinks=True)
    soon = certificates.issue(tmp_path / "tls", "soon", days=29)
    tls = TlsFiles(soon.certificate, soon.key, world.authority)
    service = Service("soon", peers=[world.south()], limits=Limits(), handler=Recorder())
    with background(service, tls=tls) as url:
        caller = Peer("soon", url, fingerprints=(soon.fingerprint,))
        with HttpTransport("south", [caller], **world.tls("south")) as http:
            assert http.exchange("soon", b"x", place="echo")
        measured = service.metrics.text().decode()
        found = dict(re.findall(r'masquerade_certificate_expires_seconds{whose="(\w+)"} (\S+)', measured))
        days = {whose: float(seconds) / 86_400 for whose, seconds in found.items()}
        assert set(days) == {"service", "authority", "south"}
        assert 28.9 < days["service"] <= 29 < 364 < days["south"] <= 365 < 3600 < days["authority"]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "certificate" in line]
    assert [(line["facts"]["whose"], line["facts"]["days"]) for line in lines] == [("service", 28)]
