"""A process that people come to: each exchanges an invitation and reports a little later; then it is killed.

    python -m tests.survey.arrivals now|before FOLDER PEOPLE

Prints what happened, in its order: `exchange PERSON DIGEST VALUE`, `report PERSON ID TOKEN`. The last reports
come together, and the process ends with SIGKILL in the middle of writing them.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import signal
import sys
from pathlib import Path

from tests.survey.first_layout import FirstStore

from masquerade.protocols.wire import slot_table
from masquerade.survey.collector.file_store import _mark_of
from masquerade.survey.collector.store import Report, SurveyStore

TOGETHER = 5
chance = random.SystemRandom()


def events(people: int) -> list[tuple[float, str, int]]:
    """Return who does what, in order: most people report before the next one comes, some do not."""
    made = []
    for turn, person in enumerate(chance.sample(range(people), people)):  # nothing to do with invitations
        made.append((float(turn), "exchange", person))
        made.append((turn + chance.expovariate(5), "report", person))
    return sorted(made)


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def visit_now(folder: Path, people: int) -> None:
    slot_table.FIRST_SLOTS = 64  # so that tables of many people grow
    store = SurveyStore(folder)
    codes = store.invite(people)
    visits = events(people)
    together = {person for _, what, person in [it for it in visits if it[1] == "report"][-TOGETHER:]}
    last = []
    for _, what, person in visits:
        if what == "exchange":
            blinded = secrets.token_bytes(32)
            store.exchange(codes[person], blinded)
            tell(what, person, hashlib.sha256(codes[person].encode()).hexdigest(), _mark_of(blinded).hex())
            continue
        one = Report(secrets.token_bytes(16), "p" * 64, 0, (person % 2, 1), secrets.token_bytes(16))
        if person in together:
            last.append(one)
            tell("late", person, one.id.hex(), one.token.hex())
        else:
            store.add(one)
        tell(what, person, one.id.hex(), one.token.hex())
    store._reports.run("PRAGMA cache_size = 1")  # pages are written in the middle of the transaction
    store._reports.committing = lambda: os.kill(os.getpid(), signal.SIGKILL)
    store._insert_group(last)


def visit_before(folder: Path, people: int) -> None:
    store = FirstStore(folder)
    codes = store.invite(people)
    for _, what, person in events(people):
        if what == "exchange":
            blinded = secrets.token_bytes(32)
            store.exchange(codes[person], blinded)
            tell(what, person, hashlib.sha256(codes[person].encode()).hexdigest(), blinded.hex())
        else:
            name, token = secrets.token_bytes(16), secrets.token_bytes(16)
            store.add(name, token, f"[{person % 2},1]")
            tell(what, person, name.hex(), token.hex())
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    {"now": visit_now, "before": visit_before}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
