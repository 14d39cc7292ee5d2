"""The client, the randomness server and the collector (the miner of Wright's talk) of the production form.

The randomness server evaluates the oblivious PRF once per credential and epoch, without learning the input.
Without this server, anyone with the reports could try every quasi-identifier; with it, every try costs a
credential. Tries are limited by the ledger, not by the oblivious PRF itself.

An epoch is *open* while requests are evaluated, and then *closed*: its key (in memory, and sealed on disk if
the server has a secret for that) is destroyed, and a signed closing states this. A collector accepts no
report before it has seen that closing, so nobody with reports can have anything evaluated. A server that is
restarted without sealed keys has lost its keys: open epochs can then only be closed.

The collector waits for the closing, accepts reports, and opens once: after a second opening with one more
report, the difference would be one person's row.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NoReturn

import numpy as np

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto import oprf, symmetric
from masquerade.crypto.class_secrets import key_of, random_place, secret_of, share_of, tag_of
from masquerade.crypto.errors import DecodingError, ProofRejected, SealBroken
from masquerade.crypto.group import Point
from masquerade.crypto.keys import KEY_SIZE, SigningKey, derive
from masquerade.crypto.oprf import POINT_SIZE
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.crypto.symmetric import seal
from masquerade.protocols.k_anonymity.threshold import messages as wire
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening, Readable, Verdict, open_reports
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.k_anonymity.threshold.sealed_keys import SealedKeys
from masquerade.protocols.people.roster import abort_round

SERVER = "randomness server"


class Client:
    """A person's side of an epoch.

    `identity` is the randomness server's, known from enrolment; `published` is the digest of the notice as
    published. A client that was shown a different notice sends nothing: a server that gives people different
    keys could distinguish them.

    A client sends a request, which reveals nothing about the row, and then a report, which reveals only
    whether reports belong to the same class, until k of that class have arrived. State is in memory: a client
    that is interrupted between the two misses the epoch, unless `stored_state` was saved before the request
    left and is passed to `resume`.

    >>> import os
    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> server = mq.people.RandomnessServer(os.urandom(32), mq.people.EvaluationLedger())
    >>> notice = server.open(form.terms("spring", k=2).encode())
    >>> digest = mq.people.Notice.decode(notice).digest
    >>> client = mq.people.Client(server.enrol("Ann"), notice, identity=server.identity, published=digest)
    >>> quasi, own = form.fill({"zip": "07030", "ill": "stroke"})
    >>> [reply] = server.evaluate([client.request(quasi)])
    >>> type(client.report(reply, own)).__name__
    'bytes'
    """

    def __init__(self, credential: bytes, notice: bytes, *, identity: bytes, published: bytes) -> None:
        self._credential = wire.Credential.decode(credential)
        self._notice = wire.Notice.decode(notice)
        if not symmetric.same(self._notice.digest, published):
            raise SealBroken(
                "The notice differs from the published notice: the server may try to distinguish people."
            )
        self._notice.verify(identity)
        self._layout = wire.ReportLayout.of(self._notice)
        self._blinded: oprf.Blinded | None = None
        self._quasi = b""
        self._report: tuple[bytes, bytes] | None = None

    def request(self, quasi: bytes) -> bytes:
        """Return the request for the randomness server; repeated calls for a row return the same bytes."""
        if self._blinded is None:
            self._layout.padded_quasi(quasi)
            self._quasi, self._blinded = quasi, oprf.blind(self._notice.terms.input_of(quasi))
        elif quasi != self._quasi:
            raise InputError(
                "A client requests one quasi-identifier per epoch. It requested a different one."
            )
        return wire.Request.make(
            self._notice.digest, self._credential, self._blinded.element.encode()
        ).encode()

    def stored_state(self) -> bytes:
        """Return the secret number that blinds the request; store it before the request is sent."""
        if self._blinded is None:
            raise InputError("No request was made, so there is no state to store.")
        return group.encode_scalar(self._blinded.blind.reveal())

    def resume(self, quasi: bytes, kept: bytes) -> bytes:
        """Return the request made before an interruption.

        For a different row the request differs, and the server refuses it if the first one arrived.

        Parameters
        ----------
        quasi : bytes
            Quasi-identifier of the same row.
        kept : bytes
            The state stored before the request was sent.

        Returns
        -------
        bytes
            The request.
        """
        if self._blinded is None:
            self._layout.padded_quasi(quasi)
            value = self._notice.terms.input_of(quasi)
            self._quasi, self._blinded = quasi, oprf.blind_again(value, kept)
        return self.request(quasi)

    def report(self, reply: bytes, sensitive: bytes) -> bytes:
        """Return the report for the collector. A repeated call for the same row returns the same report.

        Parameters
        ----------
        reply : bytes
            Reply of the randomness server.
        sensitive : bytes
            Sensitive part of the row.

        Returns
        -------
        bytes

        Raises
        ------
        QueryRefused
            If the server refused.
        RoundAborted
            If the server's proof is invalid; it is named.
        """
        if self._report is None:
            unblinded = self._unblind(reply)
            secret = secret_of(oprf.output_of(self._notice.terms.input_of(self._quasi), unblinded))
            made = report_of(self._layout, secret, unblinded, self._quasi, sensitive, x=random_place())
            self._report = sensitive, made
        elif sensitive != self._report[0]:
            raise InputError("A client makes one report per epoch, and has already made a different one.")
        return self._report[1]

    def is_open(self, tags: Collection[bytes]) -> bool:
        """Return True if the tags of open classes include that of this report."""
        if self._report is None:
            raise InputError("No report was made yet.")
        return tag_in(self._layout, self._report[1]) in tags

    def _unblind(self, reply: bytes) -> bytes:
        if self._blinded is None:
            raise InputError("Make a request before the report.")
        answer = wire.read_reply(reply)
        if isinstance(answer, wire.EvaluationRefusal):
            raise QueryRefused([Refusal(answer.reason, wire.REFUSALS[answer.reason])])
        own = slice(answer.place * POINT_SIZE, (answer.place + 1) * POINT_SIZE)
        if answer.elements[own] != self._blinded.element.encode():
            raise abort_round("The evaluation belongs to a different request.", SERVER, spent=True)
        try:
            elements, evaluated = (
                [group.decode(run[at : at + POINT_SIZE]) for at in range(0, len(run), POINT_SIZE)]
                for run in (answer.elements, answer.evaluated)
            )
            oprf.verify(self._notice.public, elements, evaluated, answer.proof)
        except (DecodingError, ProofRejected) as error:
            reason = f"The randomness server did not prove that it used the published key: {error}"
            raise abort_round(reason, SERVER, spent=True) from error
        return oprf.unblind(self._blinded, evaluated[answer.place]).encode()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Client is not pickled: it would ask and report twice")


def tag_in(layout: wire.ReportLayout, report: bytes) -> bytes:
    """Return the tag of a report's class."""
    tag: bytes = layout.read(report)["tag"][0].tobytes()
    return tag


def keep_tag(layout: wire.ReportLayout, report: bytes) -> bytes:
    """Return a report in which all fields except the tag are zero: nobody can open or recognise it."""
    kept = np.zeros((), dtype=layout.dtype)
    kept["tag"] = layout.read(report)["tag"][0]
    return kept.tobytes()


def report_of(
    layout: wire.ReportLayout, secret: bytes, unblinded: bytes, quasi: bytes, sensitive: bytes, *, x: int
) -> bytes:
    """Return a report for a known class secret: a share at x and the sealed row."""
    tag = tag_of(secret)
    sealed = seal(key_of(secret), layout.plain(unblinded, quasi, sensitive), layout.bound_to(tag))
    return layout.report(tag, x, share_of(secret, layout.terms.k, x), quasi, sealed)


TOGETHER: Final = 8  # elements per proof: saves most of the server's work; clients check one in 2 ms


class RandomnessServer:
    """Evaluates blinded elements, once per credential and epoch.

    `seed` is 32 secret bytes that survive a restart. The names in credentials are derived from it, and so is
    the server's identity unless `signing` is given; the keys of epochs are not. The keys of credentials are
    derived from `credentials`, 32 more secret bytes that survive a restart, or else from the seed. Anyone
    with both can make the credentials of any person. `ledger` stores the used credentials; `sealed` stores
    the keys of open epochs, if they should survive a restart.

    >>> import os
    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> server = mq.people.RandomnessServer(os.urandom(32), mq.people.EvaluationLedger())
    >>> notice = server.open(form.terms("spring", k=2).encode())
    >>> mq.people.Notice.decode(notice).terms.k
    2
    """

    def __init__(
        self,
        seed: bytes,
        ledger: EvaluationLedger,
        *,
        signing: SigningKey | None = None,
        credentials: bytes | None = None,
        together: int = TOGETHER,
        sealed: SealedKeys | None = None,
    ) -> None:
        for secret in (seed, seed if credentials is None else credentials):
            if len(secret) != KEY_SIZE:
                raise InputError(
                    f"A randomness server is made from {KEY_SIZE} bytes. Got {len(secret)} instead."
                )
        if not 1 <= together <= wire.MOST_TOGETHER:
            raise InputError(f"'together' must be from 1 to {wire.MOST_TOGETHER}. Got {together} instead.")
        self._signing = signing or SigningKey.from_seed(derive(seed, "threshold server identity"))
        self._people = derive(seed, "threshold server people")
        self._credentials = derive(credentials or seed, "threshold server credentials")
        self._ledger, self._together = ledger, together
        self._keys: dict[str, oprf.ServerKey] = {}
        self._epochs = {wire.Notice.decode(notice).digest: epoch for epoch, notice in ledger.epochs().items()}
        self._lock, self._sealed = threading.RLock(), sealed
        if sealed is not None:
            self._keys = dict(self._find_keys(sealed))

    def _find_keys(self, sealed: SealedKeys) -> Iterator[tuple[str, oprf.ServerKey]]:
        """Yield the sealed keys of open epochs, after comparing them with the notices."""
        for epoch, notice in self._ledger.epochs().items():
            number = None if self._ledger.finished(epoch) else sealed.find(epoch)
            if number is not None:
                key = oprf.key_of(number)
                if key.public != wire.Notice.decode(notice).public:
                    raise SealBroken(f"The sealed key of epoch {epoch!r} does not match its notice.")
                yield epoch, key

    def wipe(self) -> None:
        """Overwrite the keys of all epochs in memory; sealed keys stay on disk."""
        with self._lock:
            for key in self._keys.values():
                key.secret.wipe()
            self._keys.clear()
            if self._sealed is not None:
                self._sealed.wipe()

    def holds(self, epoch: str) -> bool:
        """Return True if the key of an epoch is in memory."""
        return epoch in self._keys

    @property
    def identity(self) -> bytes:
        """Return the public key that verifies notices and closings."""
        return self._signing.public

    def enrol(self, person: str) -> bytes:
        """Return the credential of a person, always the same one.

        The caller must have identified the person: a person with two names can open any class whose
        quasi-identifier it knows.
        """
        if not person:
            raise InputError("The name of an enrolled person must not be empty.")
        identifier = symmetric.code(self._people, person.encode())[: wire.ID_SIZE]
        return wire.Credential(identifier, self._key_of(identifier)).encode()

    def open(self, terms: bytes) -> bytes:
        """Start an epoch under these terms with a fresh key, and return the notice for all clients."""
        agreed = wire.ThresholdTerms.decode(terms)
        with self._lock:
            key = oprf.random_key()
            notice = wire.Notice.sign(agreed, key.public, self._signing)
            if not self._ledger.begin(agreed.epoch, notice.encode()):
                raise InputError(f"Epoch {agreed.epoch!r} exists already: the name of an epoch is used once.")
            if self._sealed is not None:
                self._sealed.keep(agreed.epoch, group.encode_scalar(key.secret.reveal()))
            self._keys[agreed.epoch], self._epochs[notice.digest] = key, agreed.epoch
            return notice.encode()

    def evaluate(self, requests: Sequence[bytes]) -> list[bytes]:
        """Return one reply per request, an evaluation or a refusal, after syncing the ledger.

        A request that is repeated byte for byte gets the same evaluation again, which reveals nothing new.

        Cost: about 0.2 ms per request, and one sync of the ledger per call.
        """
        with self._lock:
            replies: list[bytes | None] = [None] * len(requests)
            admitted: dict[str, list[tuple[int, wire.Request, Point]]] = {}
            for place, data in enumerate(requests):
                try:
                    request = wire.Request.decode(data)
                    point = group.decode(request.element)
                except DecodingError:
                    replies[place] = wire.EvaluationRefusal("malformed").encode()
                    continue
                problem = self._problem(request)
                if problem is None:
                    admitted.setdefault(self._epochs[request.notice], []).append((place, request, point))
                else:
                    replies[place] = wire.EvaluationRefusal(problem).encode()
            for epoch, asked in admitted.items():
                uses = [(request.credential, request.fingerprint) for _, request, _ in asked]
                allowed = self._ledger.spend(epoch, uses)
                served = [one for one, first in zip(asked, allowed, strict=True) if first]
                for place, _, _ in asked:
                    replies[place] = wire.EvaluationRefusal("already_spent").encode()
                for start in range(0, len(served), self._together):
                    self._serve(self._keys[epoch], served[start : start + self._together], replies)
            return [reply for reply in replies if reply is not None]

    def close(self, epoch: str) -> bytes:
        """Destroy the key of an epoch permanently and return the signed closing; may be repeated."""
        with self._lock:
            notice = self._ledger.notice(epoch)
            if notice is None:
                raise InputError(f"There has been no epoch {epoch!r}.")
            key = self._keys.pop(epoch, None)
            if key is not None:
                key.secret.wipe()
            if self._sealed is not None:
                self._sealed.destroy(epoch)
            self._ledger.finish(epoch)
            digest = hashlib.sha256(notice).digest()
            return wire.Closing.sign(digest, self._ledger.count_spent(epoch), self._signing).encode()

    def notice(self, epoch: str) -> bytes:
        """Return the notice of an epoch, open or closed."""
        notice = self._ledger.notice(epoch)
        if notice is None:
            raise QueryRefused([Refusal("unknown_epoch", f"There has been no epoch {epoch!r}.")])
        return notice

    def _problem(self, request: wire.Request) -> str | None:
        epoch = self._epochs.get(request.notice)
        if epoch is None:
            return "unknown_epoch"
        if not request.authentic(self._key_of(request.credential)):
            return "not_enrolled"
        if epoch in self._keys:
            return None
        return "epoch_closed" if self._ledger.finished(epoch) else "key_lost"

    def _serve(
        self,
        key: oprf.ServerKey,
        asked: Sequence[tuple[int, wire.Request, Point]],
        replies: list[bytes | None],
    ) -> None:
        evaluated, proof = oprf.evaluate(key, [point for _, _, point in asked])
        elements = b"".join([request.element for _, request, _ in asked])
        results = b"".join([point.encode() for point in evaluated])
        for i, (place, _, _) in enumerate(asked):
            replies[place] = wire.Evaluation(elements, results, proof, i).encode()

    def _key_of(self, identifier: bytes) -> bytes:
        return symmetric.code(self._credentials, identifier)


_CLOSING, _OPENED = "closing", "opened"  # notes


class Collector:
    """Collects the reports of one epoch. *Waiting* → `begin` → *taking* → `open_classes` → *done*.

    `k` is set by the collector: a notice or a report with a different k is refused.

    >>> import os
    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> server = mq.people.RandomnessServer(os.urandom(32), mq.people.EvaluationLedger())
    >>> notice = server.open(form.terms("spring", k=2).encode())
    >>> known = {"identity": server.identity, "published": mq.people.Notice.decode(notice).digest}
    >>> quasi, own = form.fill({"zip": "07030", "ill": "stroke"})
    >>> clients = [mq.people.Client(server.enrol(name), notice, **known) for name in ("Ann", "Ben")]
    >>> replies = server.evaluate([client.request(quasi) for client in clients])
    >>> collector = mq.people.Collector(notice, identity=server.identity, k=2)
    >>> collector.begin(server.close("spring"))
    >>> [collector.take(client.report(reply, own)) for client, reply in zip(clients, replies)]
    [1, 1]
    >>> print(collector.open_classes(form.readable).summary())
    2 reports, k = 2: 2 rows of 1 class open
    """

    def __init__(self, notice: bytes, *, identity: bytes, k: int, store: ReportStore | None = None) -> None:
        self._notice, self._identity = wire.Notice.decode(notice), identity
        self._notice.verify(identity)
        if self._notice.terms.k != k:
            raise InputError(
                f"This collector opens classes of {k}; the notice says k = {self._notice.terms.k}."
            )
        self.layout = wire.ReportLayout.of(self._notice)
        self._store = ReportStore(size=self.layout.size) if store is None else store
        self._lock = threading.RLock()

    @property
    def state(self) -> str:
        """Return "waiting", "taking" or "done"."""
        if self._store.find_note(_OPENED) is not None:
            return "done"
        return "waiting" if self._store.find_note(_CLOSING) is None else "taking"

    def begin(self, closing: bytes) -> None:
        """Start accepting reports, given the server's signed statement that the epoch's key is destroyed."""
        said = wire.Closing.decode(closing)
        said.verify(self._identity)
        if said.notice != self._notice.digest:
            raise SealBroken("The closing is of a different epoch or key from the notice.")
        with self._lock:
            if self._store.find_note(_CLOSING) is None:
                self._store.note(_CLOSING, closing)

    def take(self, reports: bytes) -> int:
        """Store one report, or several concatenated, and return their number; durable on return.

        Invalid reports are detected when classes are opened. They are listed then and harm no other report.
        """
        if not reports or len(reports) % self.layout.size:
            raise DecodingError(f"A report has {self.layout.size} bytes. Got {len(reports):,} bytes instead.")
        with self._lock:
            if self.state == "waiting":
                reason = "The randomness server has not stated yet that the key of this epoch is destroyed."
                raise QueryRefused([Refusal("epoch_open", reason)])
            if self.state == "done":
                raise QueryRefused([Refusal("already_opened", "The classes of this epoch have been opened.")])
            self._store.append(reports)
        return len(reports) // self.layout.size

    def open_classes(self, readable: Readable | None = None) -> Opening:
        """Stop accepting reports, and return the rows of the classes that reached k.

        `readable` is `Form.readable` if the rows have a form. A repeated call returns the same result.
        """
        with self._lock:
            if self.state == "waiting":
                raise QueryRefused(
                    [Refusal("epoch_open", "No report was accepted: the epoch is still open.")]
                )
            if self.state == "taking":
                self._store.note(_OPENED, b"\x01")
            return open_reports(self.layout, self._store.read(), readable)

    def opened_tags(self, readable: Readable | None = None) -> frozenset[bytes]:
        """Return the tags of the open classes. Published, they show members that their class opened.

        To anyone else they are random bytes.
        """
        opening = self.open_classes(readable)
        with self._lock:
            tags = self.layout.read(self._store.read())["tag"][opening.verdicts == Verdict.OPENED]
        return frozenset(tag.tobytes() for tag in tags)
