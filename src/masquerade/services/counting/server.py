"""Base of the miner and the leaders of a count: state, and terms from the office."""

from __future__ import annotations

from contextlib import ExitStack

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto.keys import AgreementKey, derive
from masquerade.services.common.jobs import Call
from masquerade.services.common.people_server import ANYBODY, PeopleServer
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.service import Service
from masquerade.services.common.state import State
from masquerade.services.counting.messages import CountTerms, SuppressionCountTerms
from masquerade.services.counting.settings import CountNodeSettings

SCOPE, TERMS = "count", "terms"


class CountServer(PeopleServer):
    """Base of a miner or leader; subclasses define its endpoints."""

    RESTORED = "masquerade count restored"
    AGREEMENT = "counts may differ by single people from counts that were made since the backup"
    settings: CountNodeSettings

    def __init__(self, settings: CountNodeSettings) -> None:
        self.description = settings.description()
        self.terms: CountTerms | None = None
        super().__init__(settings)

    def begin(self, files: ExitStack) -> None:  # noqa: ARG002
        """Continue with the terms that the office fixed; raise InputError if a restore ended the count."""
        name, over = self.description.name, "it is over. Name a new count in its description."
        self.check_doubt(f"count {name!r}", over)
        self.check_interrupted(name, f"count {name!r}", over)
        stored = self.state.notes.get(SCOPE, TERMS)
        if stored is not None:
            terms = CountTerms.decode(stored)
            if terms.name != name:
                raise InputError(
                    f"This state belongs to count {terms.name!r}; {name!r} needs another state folder."
                )
            self.take_terms(terms)

    @classmethod
    def persist_restore(cls, settings: CountNodeSettings, state: State) -> None:
        """End the count of the settings, which may have continued since the backup."""
        cls.interrupt(state, settings.description().name)

    def enrol(self, call: Call) -> bytes:
        """Accept the terms from the office once; the same terms again change nothing."""
        if call.peer.name != self.settings.office:
            raise NotAdmitted("Only the enrolment office decides who is counted.")
        terms = CountTerms.decode(call.body)
        boxes = (terms.box, terms.relay) if isinstance(terms, SuppressionCountTerms) else None
        if terms.encode() != self.description.terms(dict(terms.members), boxes).encode():
            raise InputError("The office's terms differ from this server's description of the count.")
        if boxes is not None:
            self.check_boxes(*boxes)
        if self.terms is None:
            self.state.notes.put(SCOPE, TERMS, terms.encode())
            self.take_terms(terms)
        elif self.terms.digest != terms.digest:
            reason = f"The people counted in {terms.name!r} were fixed before: other people need a new count."
            raise QueryRefused([Refusal("already_enrolled", reason)])
        return terms.digest

    @property
    def box(self) -> AgreementKey:
        """Return the key for which reports of a suppression are sealed; it follows from the identity."""
        name = self.description.name.encode()
        return AgreementKey.from_seed(derive(self.identity.reveal(), "count box", name))

    def show_box(self, call: Call) -> bytes:
        """Return the public key for which reports are sealed to the office, which states it in the terms."""
        if call.peer.name != self.settings.office:
            raise NotAdmitted("Only the enrolment office decides who is counted.")
        return self.box.public

    def check_boxes(self, miner: bytes, relay: bytes) -> None:
        """Raise InputError if terms name a different key for which reports are sealed to this server."""

    def take_terms(self, terms: CountTerms) -> None:
        """Start with the terms that the office has fixed."""
        self.terms = terms

    def require_terms(self) -> CountTerms:
        """Return the terms; raise QueryRefused until the office has fixed them."""
        if self.terms is None:
            reason = "The enrolment office has not decided yet who is counted."
            raise QueryRefused([Refusal("not_enrolled", reason)])
        return self.terms

    def service(self) -> Service:
        """Return the HTTP service; replies are kept in memory only: repeated requests are harmless."""
        return self.service_at(self.places, anonymous=ANYBODY)
