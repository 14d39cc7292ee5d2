"""What a device takes for an answer: a whole one."""

import socket
import threading

import pytest

from masquerade.services.common.device_client import DeviceClient
from masquerade.services.common.problems import PartyUnreachable

WHOLE = b'{"evaluated": "00", "proof": "11"}'


@pytest.fixture
def cut_short():
    """Return a server on this machine that sends the given number of bytes of its reply per connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads = []

    def serve(*lengths):
        def run():
            for length in lengths:
                connection, _ = listening.accept()
                with connection:
                    while not connection.recv(1 << 16).endswith(b"asked"):
                        pass
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(WHOLE)}\r\n\r\n".encode()
                    connection.sendall(head + WHOLE[:length])

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield serve
    listening.close()
    for thread in threads:
        thread.join()


def test_a_reply_that_is_cut_short_is_asked_for_again(cut_short):
    with DeviceClient(cut_short(0, 7, len(WHOLE) - 1, len(WHOLE)), patience=300) as client:
        assert client.post("token", b"asked") == WHOLE


def test_with_no_patience_left_it_is_no_answer(cut_short):
    with (
        DeviceClient(cut_short(7), patience=0) as client,
        pytest.raises(PartyUnreachable, match=r"IncompleteRead.*Nothing is lost"),
    ):
        client.post("token", b"asked")
