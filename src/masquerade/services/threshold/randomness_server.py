"""The randomness server as a service.

It evaluates its pseudorandom function once per credential and epoch. The ledger of evaluations is in the part
of its state that backups do not contain. The key of an epoch is in the memory of this process. If the
settings name a file for `sealing`, the key is also stored encrypted in that part of the state, and the epoch
continues after a restart. Otherwise a restarted server has lost the key, and can only close the epoch. A new
epoch needs a new name.

Credentials are derived from a secret in the same part of the state, not from the identity, so that a backup,
which contains the identity, cannot be used to make credentials. If that part is lost, the office enrols all
people again. A new credential has the same name as the old one, so that an epoch still serves each person
once.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, closing
from typing import Any

from masquerade.core.errors import FileError, InputError, MasqueradeError, QueryRefused, Refusal
from masquerade.core.util.atomic import write_new
from masquerade.core.util.private_file import read_private
from masquerade.crypto.keys import KEY_SIZE, derive
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import REFUSALS, Closing, Notice
from masquerade.protocols.k_anonymity.threshold.roles import RandomnessServer
from masquerade.protocols.k_anonymity.threshold.sealed_keys import SealedKeys
from masquerade.services.common.client import json_object, peer_transport
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.threshold.messages import MOST_ENROLLED, RequestBatch
from masquerade.services.threshold.server import CollectServer, digest_of
from masquerade.services.threshold.settings import RandomnessSettings

LEDGER, CREDENTIALS = "evaluations.sqlite", "credentials.secret"
OPEN, CLOSED, KEY_LOST = "open", "closed", "key_lost"
_LONGEST_NAME = 200
_TELL_SECONDS = 5.0


class RandomnessService(CollectServer):
    """Endpoints for all callers: notice, evaluate, closing. Office: enrol. Operator: close, status."""

    settings: RandomnessSettings

    def __init__(self, settings: RandomnessSettings) -> None:
        super().__init__(settings, settings.collector)
        self.places = {
            "notice": lambda call: self._server.notice(self._epoch_of(call)),
            "evaluate": self._evaluate,
            "closing": self._closing,
            "enrol": self._enrol,
        }
        self.operations = {"close": self._close, "status": self._status}

    def begin(self, files: ExitStack) -> None:
        """Open the epoch of the settings, unless it was opened before."""
        super().begin(files)
        self._ledger = files.enter_context(closing(EvaluationLedger(self.once / LEDGER)))
        # if an entry is lost, a person could use a credential twice
        is_complete = self.state.watch("evaluations", self._ledger.store, self._ledger.changes)
        self.check_complete(is_complete, LEDGER)
        seed = derive(self.identity.reveal(), "collect randomness server")
        self._server = RandomnessServer(
            seed,
            self._ledger,
            signing=self.identity,
            credentials=self._credential_secret(),
            sealed=self._sealed_keys(),
        )
        files.callback(self._server.wipe)
        notice = self._ledger.notice(self.epoch)
        if notice is not None and Notice.decode(notice).terms != self.terms:
            raise InputError(
                f"Epoch {self.epoch!r} started with a k or a form that differs from the settings: other "
                "terms need a new name."
            )
        if notice is None or self._server.holds(self.epoch):  # an epoch without its key answers no requests
            self.check_single_epoch()
        if notice is None:
            notice = self._server.open(self.terms.encode())
        self.remember(notice)
        if self.condition == KEY_LOST:
            self.log.warning("key lost", code=KEY_LOST)

    def _credential_secret(self) -> bytes:
        """Return the secret from which keys of credentials are derived; create it if it does not exist."""
        file, what = self.once / CREDENTIALS, "the secret of credentials"
        try:
            secret = read_private(file, what)
        except FileNotFoundError:
            secret = os.urandom(KEY_SIZE)
            write_new(file, secret, what=what)
            if self._ledger.epochs():
                self.log.warning("new secret of credentials: the office must enrol all people again")
        if len(secret) != KEY_SIZE:
            raise FileError(f"{file}: is not {what}. Without it, the office must enrol all people again.")
        return secret

    def _sealed_keys(self) -> SealedKeys | None:
        """Return the store of encrypted keys, None without `sealing`.

        Raises InputError if the key of the epoch is encrypted, but the settings do not name the secret for
        it.
        """
        file = self.settings.sealing
        if file is not None:
            return SealedKeys(self.once, read_private(file, "a secret for sealing").strip())
        if SealedKeys.has(self.once, self.epoch) and not self._ledger.finished(self.epoch):
            raise InputError(
                f"The key of epoch {self.epoch!r} is sealed, and the settings no longer name the secret file "
                "for it (sealing). Name it again."
            )
        return None

    @property
    def condition(self) -> str:
        """Return "open", "closed" or "key_lost"."""
        if self._ledger.finished(self.epoch):
            return CLOSED
        return OPEN if self._server.holds(self.epoch) else KEY_LOST

    def may_open(self, epoch: str, notice: bytes) -> bool:  # noqa: ARG002
        """Return True if an earlier epoch was closed or is unknown; before a closing no reports are sent."""
        return self._ledger.finished(epoch) or self._ledger.notice(epoch) is None

    def finished(self, epoch: str) -> bool:
        """Return True if the key of an earlier epoch is destroyed."""
        return self._ledger.finished(epoch)

    def ready(self) -> bool:
        """Return True unless the key of the epoch is lost."""
        return self.condition != KEY_LOST

    def describe(self) -> str:
        """Return a line for the operator at the start, with the digest to publish."""
        if self.condition == KEY_LOST:
            return (
                f"epoch {self.epoch!r}: the key was lost when this server stopped, and nobody else can be "
                "served; close the epoch, and name a new one"
            )
        digest = digest_of(self._server.notice(self.epoch))
        head = f"epoch {self.epoch!r} is {self.condition}, k = {self.terms.k}"
        return f"{head}; its notice, to be published: {digest}"

    def _evaluate(self, call: Call) -> bytes:
        return RequestBatch(tuple(self._server.evaluate(RequestBatch.decode(call.body).items))).encode()

    def _closing(self, call: Call) -> bytes:
        epoch = self._epoch_of(call)
        if self._ledger.finished(epoch):
            return self._server.close(epoch)
        self._server.notice(epoch)  # refuses unknown epochs
        if epoch != self.epoch or self.condition == KEY_LOST:
            raise QueryRefused([Refusal(KEY_LOST, REFUSALS[KEY_LOST])])
        raise QueryRefused([Refusal("epoch_open", f"Epoch {epoch!r} is still open: send no report yet.")])

    def _enrol(self, call: Call) -> bytes:
        if call.peer.name != self.settings.office:
            raise NotAdmitted("Only the enrolment office may enrol people.")
        people = json_object(call.body).get("people")
        if (
            not isinstance(people, list)
            or not 1 <= len(people) <= MOST_ENROLLED
            or not all(isinstance(one, str) and 0 < len(one) <= _LONGEST_NAME for one in people)
        ):
            raise InputError(
                f"'people' must be a list of 1 to {MOST_ENROLLED:,} names, each at most 200 characters long."
            )
        return json.dumps({"credentials": [self._server.enrol(one).hex() for one in people]}).encode()

    def _close(self, given: dict[str, Any]) -> dict[str, Any]:
        """Destroy the key permanently, and send the signed closing to the collector if it is reachable."""
        epoch = given.get("epoch", self.epoch)
        if not isinstance(epoch, str):
            raise InputError("Name an epoch.")
        SealedKeys.destroy_in(self.once, epoch)  # even if the current settings do not seal keys
        closing = self._server.close(epoch)
        problem = self._send_closing(closing) if epoch == self.epoch else None
        evaluations = Closing.decode(closing).evaluations
        self.log.info("epoch closed", number=evaluations)
        return {
            "epoch": epoch,
            "evaluations": evaluations,
            "closing": closing.hex(),
            "collector_told": problem is None and epoch == self.epoch,
            "problem": problem,
        }

    def _send_closing(self, closing: bytes) -> str | None:
        """Send the closing to the collector; if that fails, return the error: clients deliver it later."""
        try:
            with peer_transport(self.settings, self.peers, timeout=_TELL_SECONDS) as http:
                http.exchange(self.settings.collector, closing, place="begin")
        except MasqueradeError as error:
            return str(error)
        return None

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "state": self.condition,
            "evaluations": self._ledger.count_spent(self.epoch),
            "notice": digest_of(self._server.notice(self.epoch)),
        }

    def _epoch_of(self, call: Call) -> str:
        """Return the epoch that a request names; if it names none, the current epoch."""
        if len(call.body) > _LONGEST_NAME:
            raise InputError("The name of an epoch must have at most 200 bytes.")
        try:
            return call.body.decode() or self.epoch
        except UnicodeDecodeError:
            raise InputError("The name of an epoch must be text in UTF-8.") from None
