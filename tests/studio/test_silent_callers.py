"""Another user of the machine holds connections to a studio that say nothing."""

from __future__ import annotations

import re
import resource
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.studio.world import Visitor

FILES = 128
PATIENCE = 600


def test_silent_connections_of_others_are_ended(tmp_path):
    with ExitStack() as stack:
        studio = stack.enter_context(
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "masquerade", "studio", str(tmp_path / "project"), "--no-browser"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),  # noqa: PLW1509
            )
        )
        stack.callback(studio.terminate)
        page = None
        while page is None:
            page = re.search(r"open (\S+open\.html)", studio.stdout.readline())
        address = re.search(r"url=(http://[^/]+)", Path(page[1]).read_text())[1]

        def asked(seconds):
            with pytest.raises(urllib.error.HTTPError) as told:  # without the path nobody is let in
                urllib.request.urlopen(address, timeout=seconds)  # noqa: S310  (this machine)
            told.value.close()
            return told.value.code

        assert asked(PATIENCE) == 404
        place = ("127.0.0.1", int(address.rsplit(":", 1)[1]))
        for _ in range(FILES):
            silent = stack.enter_context(socket.create_connection(place, timeout=PATIENCE))
            silent.sendall(b"GET / HT")
        assert asked(PATIENCE) == 404
        for _ in range(4 * FILES):  # more than the process may open: newcomers take places of silent ones
            silent = stack.enter_context(socket.create_connection(place, timeout=PATIENCE))
            silent.sendall(b"GET / HT")
        assert asked(PATIENCE) == 404


def test_a_refused_request_ends_its_connection(tmp_path):
    """Who does not know the path holds no connection by asking for another one."""
    visitor = Visitor(tmp_path / "project")
    try:
        answer = visitor.send("GET", "data", cookie="")
        assert (answer.status_code, answer.headers["connection"]) == (403, "close")
    finally:
        visitor.close()
