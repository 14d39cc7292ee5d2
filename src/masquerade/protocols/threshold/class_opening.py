"""Opening the classes that reached k, a million reports at a time.

Reports are sorted by tag and x; secrets are recovered and polynomials recomputed in compiled code; Python
touches each class a few times and each report once, to open its sealed part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from masquerade.crypto.oprf import POINT_SIZE, output_of
from masquerade.crypto.sealed_messages import NONCE_SIZE
from masquerade.kernels.field61 import PRIME, evaluate
from masquerade.protocols.threshold.key_derivation import as_bytes, key_of, polynomials_of, secrets_of
from masquerade.protocols.threshold.outcome import Opening, Verdict
from masquerade.protocols.threshold.report_classes import Bools, Classes, Known, grouped, shares_of, tags_of
from masquerade.protocols.threshold.report_layout import LENGTH, Layout, Rows
from masquerade.protocols.threshold.share_recovery import Ints, recovered, shuffled

Readable = Callable[[Rows], Bools]


def open_reports(layout: Layout, reports: bytes, readable: Readable | None = None) -> Opening:
    """Return the rows of all classes with at least k good reports, and a verdict on every report.

    `readable` tells which opened rows mean something, if the collector knows; others are malformed.

    Cost: a million reports take a few seconds, most of it for opening sealed parts.
    """
    k = layout.terms.k
    records = layout.read(reports)
    verdicts = _by_header(records, layout)
    everything = grouped(records, np.flatnonzero(verdicts == Verdict.BELOW_K))
    large = everything.points >= k
    candidates = everything.picked(large)
    tags = tags_of(records, candidates)
    secrets, found = recovered(shares_of(records, candidates, tags), k)
    verdicts[candidates.places[~found[candidates.which]]] = Verdict.UNDECIDED
    known = Known(candidates, tags, secrets).picked(found)
    good = _on_polynomials(records, known, k)
    verdicts[known.classes.places[~good]] = Verdict.BAD_SHARE
    enough = known.classes.count(known.classes.first_of_points(good)) >= k
    good = good[enough[known.classes.which]]
    known = known.picked(enough)
    rows, judged = _judged(layout, records, known, good, readable)
    _keep_k(known.classes, judged, k)
    verdicts[known.classes.places] = judged
    kept, sizes = _in_no_order(known.classes, judged)
    first = kept[np.cumsum(sizes) - sizes]
    small, times = np.unique(everything.points[~large], return_counts=True)
    return Opening(
        layout.terms,
        rows.quasi[first],
        rows.quasi_length[first],
        rows.sensitive[kept],
        rows.sensitive_length[kept],
        np.repeat(np.arange(len(sizes)), sizes),
        verdicts,
        dict(zip(small.tolist(), times.tolist(), strict=True)),
    )


def _by_header(records: NDArray[Any], layout: Layout) -> NDArray[np.uint8]:
    """Return a verdict on each report by what stands in its clear fields."""
    magic, epoch, k, notice = layout.header
    prime = np.uint64(PRIME)
    verdicts = np.full(len(records), Verdict.BELOW_K, dtype=np.uint8)
    verdicts[records["notice"] != notice] = Verdict.OTHER_NOTICE
    verdicts[records["k"] != k] = Verdict.OTHER_K
    verdicts[records["epoch"] != epoch] = Verdict.OTHER_EPOCH
    out_of_range = (records["x"] == 0) | (records["x"] >= prime) | (records["y"] >= prime).any(axis=1)
    verdicts[(records["magic"] != magic) | out_of_range] = Verdict.MALFORMED
    return verdicts


def _on_polynomials(records: NDArray[Any], known: Known, k: int) -> Bools:
    """Tell which reports have the share that their class says they have."""
    places = known.classes.places
    values = evaluate(
        polynomials_of(known.secrets, k), records["x"][places].astype(np.uint64), known.classes.which
    )
    good: Bools = (values == records["y"][places]).all(axis=1)
    return good


def _judged(
    layout: Layout, records: NDArray[Any], known: Known, good: Bools, readable: Readable | None
) -> tuple[Rows, NDArray[np.uint8]]:
    """Open the sealed parts of reports with good shares; return them with a verdict on each report."""
    plain, unsealed = _unsealed(layout, records, known, good)
    rows = Rows.of(layout, plain)
    fits = rows.well_formed()
    if readable is not None:
        fits &= readable(rows)
    same = _same_origin(layout, rows, known, unsealed & fits)
    if layout.terms.shown:
        same &= (records["quasi"][known.classes.places] == rows.origin[:, POINT_SIZE:]).all(axis=1)
    judged = np.full(len(good), Verdict.OPENED, dtype=np.uint8)
    judged[~same] = Verdict.OTHER_QUASI
    judged[~fits] = Verdict.MALFORMED
    judged[~unsealed] = Verdict.BAD_SEAL
    judged[~good] = Verdict.BAD_SHARE
    return rows, judged


def _unsealed(layout: Layout, records: NDArray[Any], known: Known, good: Bools) -> tuple[bytes, Bools]:
    """Return the opened sealed parts as one run, zeros where there is none, and which did open."""
    run = records["sealed"][known.classes.places].tobytes()
    size, blank = records.dtype["sealed"].itemsize, bytes(layout.plain_size)
    parts: list[bytes] = []
    unsealed, wanted = good.copy(), good.tolist()
    starts, bound_to = known.classes.starts.tolist(), layout.bound_to(b"")
    for secret, tag, first, last in zip(
        as_bytes(known.secrets), known.tags, starts, starts[1:], strict=False
    ):
        decrypt, bound = ChaCha20Poly1305(key_of(secret)).decrypt, bound_to + tag
        for i in range(first, last):
            at, part = i * size, blank
            if wanted[i]:
                try:
                    part = decrypt(run[at : at + NONCE_SIZE], run[at + NONCE_SIZE : at + size], bound)
                except InvalidTag:
                    unsealed[i] = False
            parts.append(part)
    return b"".join(parts), unsealed


def _same_origin(layout: Layout, rows: Rows, known: Known, among: Bools) -> Bools:
    """Tell which rows name the quasi-identifier that the secret of their class follows from."""
    own, width = known.classes.which, rows.origin.shape[1]
    usual = rows.origin[known.classes.starts[:-1]]
    run = usual.tobytes()
    outputs = [_output(layout, run[at : at + width]) for at in range(0, len(run), width)]
    follows = (secrets_of(outputs) == known.secrets).all(axis=1)
    like_first: Bools = (rows.origin == usual[own]).all(axis=1)
    same: Bools = like_first & follows[own]
    judged: dict[tuple[int, bytes], bool] = {}
    for i in np.flatnonzero(among & ~like_first).tolist():  # somebody in the class lies
        c, claim = int(own[i]), rows.origin[i].tobytes()
        if (c, claim) not in judged:
            judged[c, claim] = bool((secrets_of([_output(layout, claim)])[0] == known.secrets[c]).all())
        same[i] = judged[c, claim]
    return same & among


def _output(layout: Layout, origin: bytes) -> bytes:
    """Return what the oblivious function gives for the quasi-identifier and the element that a row claims."""
    length = int.from_bytes(origin[POINT_SIZE : POINT_SIZE + LENGTH], "little")
    quasi = origin[POINT_SIZE + LENGTH : POINT_SIZE + LENGTH + length]
    return output_of(layout.terms.input_of(quasi), origin[:POINT_SIZE])


def _keep_k(classes: Classes, judged: NDArray[np.uint8], k: int) -> None:
    """Count every x once, and withhold what is open in classes with fewer than k rows after all."""
    kept = classes.first_of_points(judged == Verdict.OPENED)
    judged[(judged == Verdict.OPENED) & ~kept] = Verdict.REPEATED
    whole = classes.count(kept) >= k
    judged[kept & ~whole[classes.which]] = Verdict.WITHHELD


def _in_no_order(classes: Classes, judged: NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """Return where the open rows are, each class in an order that tells nothing, and the classes' sizes."""
    kept = np.flatnonzero(judged == Verdict.OPENED)
    sizes = classes.count(judged == Verdict.OPENED)
    sizes = sizes[sizes > 0]
    ends = np.cumsum(sizes)
    return kept[shuffled(ends - sizes, ends)], sizes
