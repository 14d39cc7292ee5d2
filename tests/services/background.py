"""Services in threads of this process, behind real sockets."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager

from masquerade.core.errors import InputError
from masquerade.services.common.peers import PLAIN
from masquerade.services.common.server import GRACE_SECONDS, _prepare, _quiet


@contextmanager
def background(service, *, host="127.0.0.1", port=0, tls=PLAIN, grace_seconds=GRACE_SECONDS, probe=None):
    """Serve in a thread of this process, and give the address; at the end the service stops in order."""
    addresses: list[str] = []
    server, listening = _prepare(service, (host, port), tls, grace_seconds, addresses.append, probe=probe)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            server.run(sockets=[listening])
        except BaseException as error:  # noqa: BLE001  (raised again where the start is awaited)
            failures.append(error)

    thread = threading.Thread(target=serve, name=f"masquerade {server.service.name}", daemon=True)
    with _quiet(server.service.name):
        thread.start()
        try:
            while not addresses and thread.is_alive():
                time.sleep(0.005)
            if not addresses:
                raise InputError(f"The service {server.service.name!r} did not start: {failures}")
            yield addresses[0].rsplit(" ", 1)[1]
        finally:
            server.handle_exit(signal.SIGTERM, None)
            thread.join()
