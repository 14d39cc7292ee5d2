"""Differencing: what follows from everything that was answered, by adding and subtracting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod
from pathlib import Path

from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.core.errors import FileError
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.util.formatting import counted
from masquerade.services.common.release_ledger import ABOUT_ITSELF, inspect
from masquerade.services.common.state import peek_claims
from masquerade.sources.control.answer_history import ANSWERED, Answered, Knowledge, answered_in, joint_schema
from masquerade.sources.control.cell_space import CellSpace
from masquerade.sources.control.inference_control import Rules

MOST_CELLS = 1 << 16  # of one set of variables, with all of its margins
ATTACK = "differencing: every sum and difference of all answers, exactly"
REPAIR = "Put rules into the consent (rules: protect or most_variables) before the next session."


def audit_answers(answered: Sequence[Answered], rules: Rules | None = None, title: str = "answers") -> Audit:
    """Say which cells follow from answers put together that none of them shows alone.

    With `rules` that need no data, say whether the cells that they protect are undetermined.

    >>> source = mq.Controlled(mq.tally(mq.data.students()[["exams", "pills"]]))
    >>> _ = source.answer([mq.Query(by="exams"), mq.Query(by="pills")])
    >>> found = mq.audit.audit_answers(source.control.history.entries())
    >>> found.contradicted
    False
    """
    schema = joint_schema(Schema(()), answered)
    rules = Rules(most_variables=max(len(schema), 1)) if rules is None else rules
    rules.check(schema)
    recipients = list(dict.fromkeys(entry.recipient for entry in answered))
    groups = [
        (name or "whoever asked", [it for it in answered if it.recipient == name]) for name in recipients
    ]
    groups += [("all of them together", list(answered))] if len(groups) > 1 else []
    space, findings, rows, missing = CellSpace(schema, rules.impossible), [], [], []
    for who, entries in groups:
        known = Knowledge(space)
        for query in (query for entry in entries for query in entry.queries):
            known.learn(query)
        worked_out: list[str] = []
        for joined in known.joined:
            names = known.ordered(joined)
            if not names:  # how many there are
                continue
            if prod(size + 1 for size in schema.shape(names)) > MOST_CELLS:
                missing.append(f"the table of {', '.join(names)} is too large to look at every cell of it")
                continue
            cells, alone, together, protected = _determined(known, names, rules)
            rows.append((who, ", ".join(names), cells, alone, together))
            worked_out += [", ".join(names)] if together > alone else []
            if protected:
                findings.append(
                    Finding(
                        about=f"cells of {' × '.join(protected)}",
                        verdict="contradicted",
                        says=f"{who} can work out a cell that was to stay undetermined.",
                        attack=ATTACK,
                        repair=REPAIR,
                    )
                )
        questions = len(known.queries)
        told = f"{counted(questions, 'question')} with {counted(known.span.rank, 'independent sum')}"
        more = f"; cells of {'; '.join(worked_out)} follow that no answer shows alone" if worked_out else ""
        findings.append(
            Finding(
                about=f"what {who} can work out",
                verdict="at risk" if worked_out else "not contradicted",
                says=f"{told}{more or '; together they show no cell that one of them does not'}.",
                attack=ATTACK,
                assumption="all answers are about the same people, and exact",
                repair=REPAIR if worked_out else "",
            )
        )
    columns = ("who", "variables", "cells, with margins", "shown by one answer", "shown by all")
    note = (
        "Linear algebra alone: that no count is negative can narrow further cells, which rules with "
        "least_width see."
    )
    return Audit(
        f"Differencing: {title}",
        tuple(findings),
        (AuditTable("Cells that are determined", columns, tuple(rows), note),) if rows else (),
        tuple(dict.fromkeys(missing)),
    )


def audit_states(folders: Sequence[str | Path], rules: Rules | None = None) -> Audit:
    """Audit everything that the parties of these state folders, or one of them, say they answered.

    >>> mq.audit.audit_states(["nowhere"])
    Traceback (most recent call last):
        ...
    masquerade.core.errors.FileError: nowhere: is no state folder; settings name it under 'state'.
    """
    answered: list[Answered] = []
    missing: list[str] = []
    for folder in folders:
        if not Path(folder).is_dir():
            raise FileError(f"{folder}: is no state folder; settings name it under 'state'.")
        own = answered_in(peek_claims(folder, ANSWERED))
        answered += own
        releases = [entry.release for entry in inspect(folder)[0] if entry.release.kind not in ABOUT_ITSELF]
        unbounded = {it.session for it in releases if it.gamma is None and it.variables}
        for session in sorted(unbounded - {entry.purpose for entry in own}):
            names = dict.fromkeys(n for it in releases if it.session == session for n in it.variables)
            missing.append(
                f"{folder}: session {session!r} released {', '.join(names)} without a bound and without "
                "questions that were kept: not counts, or by an earlier version"
            )
    found = audit_answers(answered, rules, ", ".join(map(str, folders)))
    return found.with_(not_covered=missing)


def _determined(
    known: Knowledge, names: Sequence[str], rules: Rules
) -> tuple[int, int, int, tuple[str, ...] | None]:
    """Return how many cells there are, are shown by one answer, by all, and protected variables shown."""
    single = [_alone(known.space, query) for query in known.queries]
    cells = alone = together = 0
    protected: tuple[str, ...] | None = None
    for some in _subsets(names):
        for cell in known.space.cells(some):
            cells += 1
            vector = known.space.vector(cell)
            if not known.span.contains(vector):
                continue
            together += 1
            alone += any(one.span.contains(vector) for one in single)
            protected = protected or (some if rules.protects(some, known.space.schema) else None)
    return cells, alone, together, protected


def _alone(space: CellSpace, query: Query) -> Knowledge:
    known = Knowledge(space)
    known.learn(query)
    return known


def _subsets(names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    for size in range(1, len(names) + 1):
        yield from combinations(names, size)
