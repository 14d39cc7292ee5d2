"""Participation of people in a collection: one epoch, or one epoch per level if its form has hierarchies.

A person whose class has opened sends nothing more. All other people report again, with their rows generalised
by one more level, once both servers collect that level. Rows are generalised on the machine of their owner.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from masquerade.core.errors import QueryRefused
from masquerade.protocols.k_anonymity.threshold.generalisation import GeneralisedForm
from masquerade.protocols.k_anonymity.threshold.messages import Notice
from masquerade.services.threshold.client import Collection, Submission, deliver_all, read_submissions
from masquerade.services.threshold.messages import ClientRecord
from masquerade.services.threshold.settings import CollectionSettings, load_levels

Person = tuple[str, dict[str, Any], bytes]
People = Sequence[Person]


@dataclass(slots=True)
class Progress:
    """Progress of people at the last `level` that was tried.

    `asked`, `delivered` and `waiting` count the people whose request was answered, whose report was
    delivered, and who wait for the reason `waits_for`. `opened` has the number of rows that opened at each
    level, if there are several levels.
    """

    level: int = 0
    asked: int = 0
    delivered: int = 0
    waiting: int = 0
    waits_for: str = ""
    opened: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CollectionRun:
    """People who participate in a collection: their rows, credentials, and the folder of their records.

    `words` is the text that the user entered to agree to several epochs. `key` is the column with the names
    of people.
    """

    settings: CollectionSettings
    rows: Path
    credential: Path
    folder: Path
    key: str
    words: str | None = None

    def submit(self, wait: float = 0.0) -> Progress:
        """Send requests and reports at every current level; wait at most `wait` seconds for a closing.

        A repeated call continues where the last one stopped, and sends nothing twice.
        """
        levels = load_levels(self.settings.form)
        progress = Progress()
        people: People | None = None
        for level in range(1 if levels is None else levels.levels):
            with Collection(self.settings, level=level) as to:
                if people is None:
                    people = read_submissions(self.rows, self.credential, to.form, self.key)
                progress.level, progress.asked, progress.delivered = level, 0, 0
                people = self._run_level(to, people, levels, wait, progress)
            if not people:
                break
        return progress

    def _run_level(
        self, to: Collection, people: People, levels: GeneralisedForm | None, wait: float, progress: Progress
    ) -> People:
        """Run one level; return the people who continue with the next level, none while people still wait."""
        begun: list[tuple[Person, Submission]] = []
        level, last = progress.level, 0 if levels is None else levels.levels - 1
        for item in people:
            one = self._start_submission(to, item, levels, level)
            try:
                one.ask()
            except QueryRefused as refused:
                if level == 0 or {refusal.code for refusal in refused.refusals} != {"unknown_epoch"}:
                    raise
                progress.waiting, progress.waits_for = len(people), f"level {level} has not started"
                return []
            begun.append((item, one))
        progress.asked = len(begun)
        # once classes are open, it is too late to report at this level
        pending = [one for _, one in begun if level == last or one.is_open() is None]
        progress.waiting = deliver_all(pending, wait)
        progress.delivered = len(begun) - progress.waiting
        if progress.waiting or level == last:
            progress.waits_for = "the epoch is still open"
            return []
        states = [one.is_open() for _, one in begun]
        if None in states:
            progress.waiting, progress.waits_for = len(begun), f"classes of level {level} are not open yet"
            return []
        progress.opened.append(states.count(True))
        return [item for (item, _), is_open in zip(begun, states, strict=True) if not is_open]

    def _start_submission(
        self, to: Collection, item: Person, levels: GeneralisedForm | None, level: int
    ) -> Submission:
        """Return the submission of a person at a level; records of other levels do not mean another epoch.

        The notice in a record identifies its epoch, since an earlier epoch may have the same name as a level.
        """
        person, row, secret = item
        forms = [to.form] if levels is None else [levels.at(one) for one in range(levels.levels)]
        terms = [self.settings.epoch.terms(form, one) for one, form in enumerate(forms)]
        another = False
        for file in self.folder.glob(f"{glob.escape(person)}.*.record"):
            record = ClientRecord.load(file)
            another |= record is not None and Notice.decode(record.notice).terms not in terms
        generalised = row if levels is None else levels.row(row, level)
        place = self.folder / f"{person}.{to.terms.epoch}.record"
        return Submission(generalised, secret, to, place, words=self.words, another=another)
