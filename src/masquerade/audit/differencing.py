"""Differencing attack: the cells that follow from all answers together, by adding and subtracting them."""

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

MOST_CELLS = 1 << 16  # largest table, with all its margins, whose cells are checked one by one
ATTACK = "differencing: every sum and difference of all answers, exactly"
REPAIR = "Add rules to the consent (rules: protect or most_variables) before the next session."


def audit_answers(answered: Sequence[Answered], rules: Rules | None = None, title: str = "answers") -> Audit:
    """Find the cells that follow from several answers together but from none of them alone.

    Parameters
    ----------
    answered : sequence of Answered
        Answered queries, as the history of a `Controlled` source lists them.
    rules : Rules, optional
        Rules of query auditing. The audit reports whether the cells that they protect are undetermined.
    title : str, optional
        Name of the answers in the title of the audit.

    Returns
    -------
    Audit
        One finding per recipient, and one for all recipients together.

    Raises
    ------
    InputError
        If the rules do not fit the variables.

    Examples
    --------
    >>> source = mq.Controlled(mq.tally(mq.data.students()[["exams", "pills"]]), mq.Rules())
    >>> _ = source.answer([mq.Query(by="exams"), mq.Query(by="pills")])
    >>> found = mq.audit.audit_answers(source.control.history.entries())
    >>> found.contradicted
    False
    """
    schema = joint_schema(Schema(()), answered)
    rules = Rules(most_variables=max(len(schema), 1)) if rules is None else rules
    rules.check(schema)
    recipients = list(dict.fromkeys(entry.recipient for entry in answered))
    groups = [(name or "the analyst", [it for it in answered if it.recipient == name]) for name in recipients]
    groups += [("all of them together", list(answered))] if len(groups) > 1 else []
    space, findings, rows, missing = CellSpace(schema, rules.impossible), [], [], []
    for who, entries in groups:
        knowledge = Knowledge(space)
        for query in (query for entry in entries for query in entry.queries):
            knowledge.learn(query)
        computable: list[str] = []
        for joined in knowledge.joined:
            names = knowledge.sort_names(joined)
            if not names:  # the number of records only
                continue
            if prod(size + 1 for size in schema.shape(names)) > MOST_CELLS:
                missing.append(f"the table of {', '.join(names)} is too large to check every cell")
                continue
            cells, alone, together, protected = _count_determined(knowledge, names, rules)
            rows.append((who, ", ".join(names), cells, alone, together))
            computable += [", ".join(names)] if together > alone else []
            if protected:
                findings.append(
                    Finding(
                        about=f"cells of {' × '.join(protected)}",
                        verdict="contradicted",
                        says=f"{who} can compute a cell that the rules protect.",
                        attack=ATTACK,
                        repair=REPAIR,
                    )
                )
        questions = len(knowledge.queries)
        summary = f"{counted(questions, 'question')} with {counted(knowledge.span.rank, 'independent sum')}"
        more = (
            f"; cells of {'; '.join(computable)} follow from several answers together" if computable else ""
        )
        findings.append(
            Finding(
                about=f"cells that {who} can compute",
                verdict="at risk" if computable else "not contradicted",
                says=f"{summary}{more or '; together they show no further cell'}.",
                attack=ATTACK,
                assumption="all answers are about the same people, and exact",
                repair=REPAIR if computable else "",
            )
        )
    columns = ("who", "variables", "cells, with margins", "shown by one answer", "shown by all")
    note = (
        "Linear algebra only. Since counts are not negative, further cells may be known to lie in a narrow "
        "range: rules with least_width check this."
    )
    return Audit(
        f"Differencing: {title}",
        tuple(findings),
        (AuditTable("Determined cells", columns, tuple(rows), note),) if rows else (),
        tuple(dict.fromkeys(missing)),
    )


def audit_states(folders: Sequence[str | Path], rules: Rules | None = None) -> Audit:
    """Audit all answers recorded in the state folders of one or more parties.

    Parameters
    ----------
    folders : sequence of path
        State folders, as the settings name them under ``state``.
    rules : Rules, optional
        Rules of query auditing that the parties should have kept.

    Returns
    -------
    Audit
        One finding per recipient, and one for all recipients together.

    Raises
    ------
    FileError
        If a folder does not exist.

    Examples
    --------
    >>> mq.audit.audit_states(["nowhere"])
    Traceback (most recent call last):
        ...
    masquerade.core.errors.FileError: nowhere: not a state folder. Settings name it under 'state'.
    """
    answered: list[Answered] = []
    missing: list[str] = []
    for folder in folders:
        if not Path(folder).is_dir():
            raise FileError(f"{folder}: not a state folder. Settings name it under 'state'.")
        own = answered_in(peek_claims(folder, ANSWERED))
        answered += own
        releases = [entry.release for entry in inspect(folder)[0] if entry.release.kind not in ABOUT_ITSELF]
        unbounded = {it.session for it in releases if it.gamma is None and it.variables}
        for session in sorted(unbounded - {entry.purpose for entry in own}):
            names = dict.fromkeys(n for it in releases if it.session == session for n in it.variables)
            missing.append(
                f"{folder}: session {session!r} released {', '.join(names)} without a bound and without "
                "a record of its queries: the session released no counts, or ran an earlier version"
            )
    found = audit_answers(answered, rules, ", ".join(map(str, folders)))
    return found.with_(not_covered=missing)


def _count_determined(
    knowledge: Knowledge, names: Sequence[str], rules: Rules
) -> tuple[int, int, int, tuple[str, ...] | None]:
    """Count all cells, cells shown by one answer and by all; return also the protected variables shown."""
    single = [_learn_one(knowledge.space, query) for query in knowledge.queries]
    cells = alone = together = 0
    protected: tuple[str, ...] | None = None
    for some in _subsets(names):
        for cell in knowledge.space.cells(some):
            cells += 1
            vector = knowledge.space.vector(cell)
            if not knowledge.span.contains(vector):
                continue
            together += 1
            alone += any(one.span.contains(vector) for one in single)
            protected = protected or (some if rules.protects(some, knowledge.space.schema) else None)
    return cells, alone, together, protected


def _learn_one(space: CellSpace, query: Query) -> Knowledge:
    knowledge = Knowledge(space)
    knowledge.learn(query)
    return knowledge


def _subsets(names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    for size in range(1, len(names) + 1):
        yield from combinations(names, size)
