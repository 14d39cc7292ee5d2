"""Formulation 1 of distributed k-anonymity: a million reports opened, evaluations, what a client pays.

STAR's authors aggregate a million reports in 21 s; the aim here is 10 s for every k up to 100, and a million
evaluations in 300 s on one core, 300 µs each, the ledger on disk and the proofs included.

    python -m benchmarks.threshold [--json FILE]
"""

import os
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
from benchmarks.timing import json_option, keep
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from masquerade.crypto.class_secrets import as_bytes, key_of, secret_of, shares_at, tag_of
from masquerade.crypto.oprf import output_of
from masquerade.kernels.field61 import PRIME
from masquerade.protocols.k_anonymity.threshold.class_opening import open_reports
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import Notice, ReportLayout, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.roles import Client, RandomnessServer

QUASI, SENSITIVE = 6, 10  # bytes of a row
SHAPES = ((2, "all of size k"), (10, "Zipf"), (50, "Zipf"), (100, "all of size k"), (100, "Zipf"))
REPORTS = (100_000, 1_000_000)
EVALUATIONS = 20_000
TOGETHER = 1000  # requests that a server takes at once, as a queue would hand them over


def class_sizes(n, shape, k, generator):
    """Return the sizes of classes: all of size k, or Zipf's law with most classes below k."""
    if shape == "all of size k":
        return np.full(n // k, k)
    ranks = np.minimum(generator.zipf(1.2, n), n)
    return np.unique(ranks, return_counts=True)[1]


def fabricated(layout, sizes, generator):
    """Return reports as honest clients would have made them, elements drawn instead of asked for."""
    k = layout.terms.k
    quasis = [i.to_bytes(QUASI, "big") for i in range(len(sizes))]
    elements = [os.urandom(32) for _ in quasis]
    secrets = [
        secret_of(output_of(layout.terms.input_of(q), e)) for q, e in zip(quasis, elements, strict=True)
    ]
    which = np.repeat(np.arange(len(sizes)), sizes)
    limbs = np.frombuffer(b"".join(secrets), "<u8").reshape(-1, 3).astype(np.uint64)
    xs = generator.integers(1, PRIME, len(which), dtype=np.uint64)
    records = np.zeros(len(which), dtype=layout.dtype)
    for name, value in zip(("magic", "epoch", "k", "notice"), layout.header, strict=True):
        records[name] = value
    tags = [tag_of(secret) for secret in as_bytes(limbs)]
    records["tag"] = np.frombuffer(b"".join(tags), "<u8").reshape(-1, 2)[which]
    records["x"] = xs
    for start in range(0, len(sizes), 20_000):
        rows = slice(*np.searchsorted(which, (start, start + 20_000)))
        records["y"][rows] = shares_at(limbs[start : start + 20_000], k, xs[rows], which[rows] - start)
    parts, sensitive = [], bytes(SENSITIVE - 2) + b"ok"
    for secret, tag, quasi, element, size in zip(secrets, tags, quasis, elements, sizes, strict=True):
        cipher, bound = ChaCha20Poly1305(key_of(secret)), layout.bound_to(tag)
        plain = layout.plain(element, quasi, sensitive)
        for _ in range(size):
            nonce = os.urandom(12)
            parts.append(nonce + cipher.encrypt(nonce, plain, bound))
    records["sealed"] = np.frombuffer(b"".join(parts), np.uint8).reshape(len(which), -1)
    return records[generator.permutation(len(records))]


def aggregation(notice_of):
    """Time opening, honest and with one share in a hundred spoilt."""
    generator = np.random.default_rng(1)
    results = []
    for n, (k, shape) in product(REPORTS, SHAPES):
        layout = ReportLayout.of(notice_of(k))
        sizes = class_sizes(n, shape, k, generator)
        records = fabricated(layout, sizes, generator)
        spoilt = records.copy()
        spoilt["y"][generator.random(len(spoilt)) < 0.01, 0] ^= np.uint64(1)
        for name, some in (("honest", records), ("1% bad shares", spoilt)):
            run = some.tobytes()
            start, busy = time.perf_counter(), time.process_time()
            opening = open_reports(layout, run)
            seconds, cpu = time.perf_counter() - start, time.process_time() - busy
            assert name != "honest" or opening.opened == sizes[sizes >= k].sum()
            row = {"reports": len(records), "k": k, "classes": f"{shape}, {name}"}
            results.append(row | {"opened": opening.opened, "seconds": seconds, "cpu_seconds": cpu})
            times = f"{seconds:>7.2f} s ({cpu:.2f} s of a core)"
            print(f"{len(records):>9,} reports  k={k:<4} {row['classes']:<30}{times}", flush=True)
    return results


def main():
    path = json_option(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        server = RandomnessServer(os.urandom(32), EvaluationLedger(Path(folder) / "ledger"))
        epochs = iter(range(10**6))

        def notice_of(k):
            return Notice.decode(
                server.open(ThresholdTerms(f"epoch {next(epochs)}", k, QUASI, SENSITIVE).encode())
            )

        few = ReportLayout.of(notice_of(2))
        open_reports(few, fabricated(few, [3], np.random.default_rng(0)).tobytes())  # compiles
        results = {"evaluation": evaluation(server, notice_of(100)), "client": client(server, notice_of(100))}
        results["aggregation"] = aggregation(notice_of)
    keep(path, results)


def evaluation(server, notice):
    """Time the server's side, requests in and replies out, its ledger synced."""
    published = notice.digest
    element = [
        Client(server.enrol(str(i)), notice.encode(), identity=server.identity, published=published).request(
            (i % 100).to_bytes(QUASI, "big")
        )
        for i in range(EVALUATIONS)
    ]
    start, busy = time.perf_counter(), time.process_time()
    for at in range(0, EVALUATIONS, TOGETHER):
        server.evaluate(element[at : at + TOGETHER])
    each, cpu = (time.perf_counter() - start) / EVALUATIONS, (time.process_time() - busy) / EVALUATIONS
    print(f"{EVALUATIONS:,} evaluations: {1e6 * each:.0f} µs each ({1e6 * cpu:.0f} µs of a core)")
    return {"microseconds": 1e6 * each, "cpu_microseconds": 1e6 * cpu}


def client(server, notice):
    """Time a client's request and report, and count its bytes."""
    n = 200
    people = [
        Client(server.enrol(f"p{i}"), notice.encode(), identity=server.identity, published=notice.digest)
        for i in range(n)
    ]
    busy = time.process_time()
    requests = [person.request(b"07030") for person in people]
    asking = (time.process_time() - busy) / n
    replies = server.evaluate(requests)
    busy = time.process_time()
    reports = [person.report(reply, b"polio") for person, reply in zip(people, replies, strict=True)]
    reporting = (time.process_time() - busy) / n
    sizes = {"request": len(requests[0]), "reply": len(replies[0]), "report": len(reports[0])}
    print(f"client: request {1e3 * asking:.2f} ms, report {1e3 * reporting:.2f} ms of a core; bytes {sizes}")
    return {"request_ms": 1e3 * asking, "report_ms": 1e3 * reporting, "bytes": sizes}


if __name__ == "__main__":
    main()
