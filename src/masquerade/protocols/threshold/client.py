"""The client of the production form: one person, one epoch, one request, one report."""

from __future__ import annotations

from typing import NoReturn

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto import oprf, symmetric
from masquerade.crypto.class_secrets import key_of, random_place, secret_of, share_of, tag_of
from masquerade.crypto.errors import DecodingError, ProofRejected, SealBroken
from masquerade.crypto.oprf import POINT_SIZE
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.crypto.symmetric import seal
from masquerade.protocols.people.roster import aborted
from masquerade.protocols.threshold.messages import (
    REFUSALS,
    Credential,
    EvaluationRefusal,
    Notice,
    Request,
    read_reply,
)
from masquerade.protocols.threshold.report_layout import Layout

SERVER = "randomness server"


class Client:
    """A person's side of an epoch.

    `identity` is the randomness server's, known from enrolment; `published` is the digest of the notice as it
    stands in a public place. A client that was shown another notice sends nothing: a server that gives people
    keys of their own could tell them apart.

    What leaves: a request, from which nobody learns anything about the row; then a report, from which nobody
    learns anything about it but whether reports belong to the same class, until k of that class are there.
    State is in memory: a client that is interrupted between the two sits out the epoch, unless `kept` was
    stored before the request left, and is given back to `resume`.
    """

    def __init__(self, credential: bytes, notice: bytes, *, identity: bytes, published: bytes) -> None:
        self._credential = Credential.decode(credential)
        self._notice = Notice.decode(notice)
        if not symmetric.same(self._notice.digest, published):
            raise SealBroken(
                "The notice is not the one that was published: the server may tell people apart."
            )
        self._notice.verify(identity)
        self._layout = Layout.of(self._notice)
        self._blinded: oprf.Blinded | None = None
        self._quasi = b""
        self._report: tuple[bytes, bytes] | None = None

    def request(self, quasi: bytes) -> bytes:
        """Return the request for the randomness server; asked again for the same row, the same request."""
        if self._blinded is None:
            self._layout.padded_quasi(quasi)
            self._quasi, self._blinded = quasi, oprf.blind(self._notice.terms.input_of(quasi))
        elif quasi != self._quasi:
            raise InputError("A client asks for one quasi-identifier in an epoch, and has asked for another.")
        return Request.made(self._notice.digest, self._credential, self._blinded.element.encode()).encode()

    def kept(self) -> bytes:
        """Return the number that hides the request, to be stored before that leaves, and kept secret."""
        if self._blinded is None:
            raise InputError("No request has been made: there is nothing to keep of it.")
        return group.encode_scalar(self._blinded.blind.reveal())

    def resume(self, quasi: bytes, kept: bytes) -> bytes:
        """Return the request that was made before an interruption, for the same row and from what was kept.

        For another row it is another request, which the server refuses if the first one reached it.
        """
        if self._blinded is None:
            self._layout.padded_quasi(quasi)
            value = self._notice.terms.input_of(quasi)
            self._quasi, self._blinded = quasi, oprf.blind_again(value, kept)
        return self.request(quasi)

    def report(self, reply: bytes, sensitive: bytes) -> bytes:
        """Return the report for the collector; asked again for the same row, the same report.

        Raises `QueryRefused` if the server refused, and `RoundAborted` naming it if its proof does not hold.
        """
        if self._report is None:
            unblinded = self._unblinded(reply)
            secret = secret_of(oprf.output_of(self._notice.terms.input_of(self._quasi), unblinded))
            made = report_of(self._layout, secret, unblinded, self._quasi, sensitive, x=random_place())
            self._report = sensitive, made
        elif sensitive != self._report[0]:
            raise InputError("A client makes one report in an epoch, and has made another.")
        return self._report[1]

    def _unblinded(self, reply: bytes) -> bytes:
        if self._blinded is None:
            raise InputError("A report comes after the reply to a request, and none has been made.")
        answer = read_reply(reply)
        if isinstance(answer, EvaluationRefusal):
            raise QueryRefused([Refusal(answer.reason, REFUSALS[answer.reason])])
        own = slice(answer.place * POINT_SIZE, (answer.place + 1) * POINT_SIZE)
        if answer.elements[own] != self._blinded.element.encode():
            raise aborted("The evaluation is of another request.", SERVER, spent=True)
        try:
            elements, evaluated = (
                [group.decode(run[at : at + POINT_SIZE]) for at in range(0, len(run), POINT_SIZE)]
                for run in (answer.elements, answer.evaluated)
            )
            oprf.verify(self._notice.public, elements, evaluated, answer.proof)
        except (DecodingError, ProofRejected) as error:
            reason = f"The randomness server did not prove that it used the published key: {error}"
            raise aborted(reason, SERVER, spent=True) from error
        return oprf.unblind(self._blinded, evaluated[answer.place]).encode()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Client is not pickled: it would ask and report twice")


def report_of(
    layout: Layout, secret: bytes, unblinded: bytes, quasi: bytes, sensitive: bytes, *, x: int
) -> bytes:
    """Return the report of somebody who knows the secret of a class: a share at x and the sealed row."""
    tag = tag_of(secret)
    sealed = seal(key_of(secret), layout.plain(unblinded, quasi, sensitive), layout.bound_to(tag))
    return layout.report(tag, x, share_of(secret, layout.terms.k, x), quasi, sealed)
