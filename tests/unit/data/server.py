"""A small origin on this machine, which can misbehave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

Answer = Callable[[BaseHTTPRequestHandler], None]


def sends(content: bytes, *, claimed: int | None = None) -> Answer:
    """Answer with some bytes, and possibly with a wrong length."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(content) if claimed is None else claimed))
        request.end_headers()
        request.wfile.write(content)

    return answer


def fails(status: int) -> Answer:
    """Answer with an error."""
    return lambda request: request.send_error(status)


def never_ends(request: BaseHTTPRequestHandler) -> None:
    """Answer with bytes for as long as somebody reads."""
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b"x" * 65536)
    except OSError:
        pass


def first(failure: Answer, then: Answer) -> Answer:
    """Answer one way the first time and another way afterwards."""
    answers = iter([failure])

    def answer(request: BaseHTTPRequestHandler) -> None:
        next(answers, then)(request)

    return answer


class Origin:
    """What a server has, what it was asked for, and where it is."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: Counter[str] = Counter()
        self.stopped = Event()
        self.base = ""

    def silent(self, _request: BaseHTTPRequestHandler) -> None:
        """Accept a request and say nothing until the server stops."""
        self.stopped.wait(20)


@contextmanager
def origin() -> Iterator[Origin]:
    """Run a server on a free port of this machine."""
    state = Origin()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.removeprefix("/")
            state.asked[name] += 1
            state.answers.get(name, fails(404))(self)

        def log_message(self, format, *args):  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.base = f"http://127.0.0.1:{server.server_port}/"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            state.stopped.set()
            server.shutdown()
            thread.join()
