"""What Prometheus may know: requests, bytes and seconds by place template and status; nothing else."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

MEDIA = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """The counters of one service, apart from those of any other in the same process."""

    def __init__(self, service_name: str) -> None:
        self._registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"masquerade_{name}", what, labels, registry=self._registry)

        self._info = Gauge(
            "masquerade_service", "Which service this is.", ["service"], registry=self._registry
        )
        self._info.labels(service_name).set(1)
        self._requests = counter("requests", "Requests answered.", "place", "status")
        self._received = counter("received_bytes", "Bytes of bodies received.", "place")
        self._sent = counter("sent_bytes", "Bytes of replies sent.", "place")
        self._replayed = counter("replayed", "Stored replies sent again.", "place")
        self._handshakes = counter("refused_handshakes", "Connections refused by TLS.")
        self._seconds = Histogram(
            "masquerade_request_seconds",
            "Seconds from a request's headers to its reply.",
            ["place"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.running = Gauge("masquerade_running", "Requests being worked on.", registry=self._registry)

    def count(self, place: str, status: int, *, received: int, sent: int, seconds: float) -> None:
        """Take in one request."""
        self._requests.labels(place, str(status)).inc()
        self._received.labels(place).inc(received)
        self._sent.labels(place).inc(sent)
        self._seconds.labels(place).observe(seconds)

    def refused_handshake(self) -> None:
        """Take in that a connection failed before there was a request."""
        self._handshakes.inc()

    def replayed(self, place: str) -> None:
        """Take in that a stored reply was sent again."""
        self._replayed.labels(place).inc()

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self._registry)
