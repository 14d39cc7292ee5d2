"""Results of audits: findings with their evidence, tables, and open points."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args

from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["contradicted", "at risk", "not covered", "not contradicted", "proved"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # most urgent first
WIDTH = 96
MOST_ROWS = 40
CLASSES: dict[Verdict, str] = {
    "contradicted": "contradicted",
    "at risk": "risk",
    "not covered": "open",
    "not contradicted": "stands",
    "proved": "proved",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim, the evidence for or against it, and a repair.

    The verdict *proved* requires a complete enumeration. Draws and files can only leave a claim *not
    contradicted*. *At risk* means that no claim is broken, but that the finding matters before a release.

    Attributes
    ----------
    about : str
        Subject of the claim.
    verdict : str
        ``"contradicted"``, ``"at risk"``, ``"not covered"``, ``"not contradicted"`` or ``"proved"``.
    says : str
        The finding in one sentence.
    attack : str
        Method of the test or attack.
    assumption : str
        Assumption under which the finding holds.
    value, low, high, level : float, optional
        The number that is claimed or found, and its limits at a confidence level if it was measured.
    repair : str
        What to do.

    Examples
    --------
    >>> finding = mq.audit.Finding(about="pills", verdict="proved", says="γ is 3", value=3.0)
    >>> finding.verdict, finding.value
    ('proved', 3.0)
    """

    about: str
    verdict: Verdict
    says: str
    attack: str = ""
    assumption: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    repair: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. A number that is missing or not finite is null."""
        numbers = {name: _number(getattr(self, name)) for name in ("value", "low", "high", "level")}
        texts = {name: getattr(self, name) for name in ("attack", "assumption", "repair")}
        return {"about": self.about, "verdict": self.verdict, "says": self.says} | numbers | texts


@dataclass(frozen=True, slots=True)
class AuditTable:
    """Table of an audit.

    Examples
    --------
    >>> table = mq.audit.AuditTable("People", ("party", "people"), (("clinic", 300), ("registry", 280)))
    >>> table.to_dict()["rows"]
    [['clinic', 300], ['registry', 280]]
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    @property
    def figures(self) -> tuple[bool, ...]:
        """True for every column that contains numbers only."""
        columns = range(len(self.columns))
        return tuple(all(isinstance(row[i], (int, float, NoneType)) for row in self.rows) for i in columns)

    def format_rows(self) -> list[list[str]]:
        """Return the rows as text."""
        return [[_text(value) for value in row] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rows = [[_number(value) if isinstance(value, float) else value for value in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}


@dataclass(frozen=True, repr=False)
class Audit(Printed):
    """Result of an audit: `findings`, `tables`, `summary()`, `to_dict()` and `to_html()`.

    Examples
    --------
    >>> found = mq.audit.audit_policy(mq.data.students_policy(), page=False)
    >>> found.contradicted, found.headline
    (False, 'No claim is contradicted. 6 findings: 2 at risk, 4 proved.')
    """

    title: str
    findings: tuple[Finding, ...]
    tables: tuple[AuditTable, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def contradicted(self) -> bool:
        """True if a claim does not hold."""
        return any(finding.verdict == "contradicted" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 1 if a claim is contradicted, else 0."""
        return int(self.contradicted)

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings with a given verdict."""
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    @property
    def sorted_findings(self) -> tuple[Finding, ...]:
        """The findings, most urgent first."""
        return tuple(finding for verdict in VERDICTS for finding in self.of(verdict))

    @property
    def headline(self) -> str:
        """The number of findings of each verdict, in one sentence."""
        counts = [(verdict, len(self.of(verdict))) for verdict in VERDICTS]
        parts = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
        first = "A CLAIM IS CONTRADICTED." if self.contradicted else "No claim is contradicted."
        return f"{first} {counted(len(self.findings), 'finding')}: {parts or 'none'}."

    def with_(
        self,
        findings: Iterable[Finding] = (),
        tables: Iterable[AuditTable] = (),
        not_covered: Iterable[str] = (),
    ) -> Audit:
        """Return a copy with more findings, tables and open points.

        Parameters
        ----------
        findings : iterable of Finding, optional
            Findings to add.
        tables : iterable of AuditTable, optional
            Tables to add.
        not_covered : iterable of str, optional
            Points that the audit does not cover. Duplicates are dropped.

        Returns
        -------
        Audit
            A new audit.
        """
        missing = dict.fromkeys((*self.not_covered, *not_covered))
        return Audit(self.title, (*self.findings, *findings), (*self.tables, *tables), tuple(missing))

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with one row per finding."""
        import pandas as pd  # noqa: PLC0415  (loaded when a frame is asked for)

        return pd.DataFrame([finding.to_dict() for finding in self.sorted_findings])

    @printable
    def summary(self) -> str:
        """Return the findings as text, then the tables."""
        lines = [self.title, self.headline, ""]
        printed: set[str] = {""}  # assumptions and repairs that findings share are printed once
        for finding in self.sorted_findings:
            lines += _wrap(f"[{finding.verdict}] {finding.about}: {finding.says}")
            lines += [] if finding.assumption in printed else _wrap(f"Assumed: {finding.assumption}", 2)
            lines += [] if finding.repair in printed else _wrap(f"Repair: {finding.repair}", 2)
            printed |= {finding.assumption, finding.repair}
        for table in self.tables:
            lines += ["", *_table_lines(table)]
        if self.not_covered:
            lines += ["", "Not covered"]
            lines += [line for text in self.not_covered for line in _wrap(f"- {text}", 2)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "title": self.title,
            "contradicted": self.contradicted,
            "findings": [finding.to_dict() for finding in self.sorted_findings],
            "tables": [table.to_dict() for table in self.tables],
            "not_covered": list(self.not_covered),
        }

    def to_html(self) -> str:
        """Return a self-contained HTML page."""
        from masquerade import __version__  # noqa: PLC0415  (pages only)
        from masquerade.report.pages import render_template  # noqa: PLC0415  (pages only)

        tables = [
            {
                "title": table.title,
                "columns": table.columns,
                "left": [not figures for figures in table.figures],
                "rows": table.format_rows(),
                "note": table.note,
            }
            for table in self.tables
        ]
        content = {"audit": self, "tables": tables, "classes": CLASSES, "version": __version__}
        return render_template("masquerade.report", "audit.html.j2", content)


def _wrap(text: str, indent: int = 0) -> list[str]:
    first, other = " " * indent, " " * (indent + 2)
    return textwrap.wrap(
        text, WIDTH, initial_indent=first if indent else "", subsequent_indent=other, break_on_hyphens=False
    )


def _table_lines(table: AuditTable) -> list[str]:
    rows = [list(table.columns), *table.format_rows()[:MOST_ROWS]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = [_align(row, widths, table.figures) for row in rows]
    left = len(table.rows) - MOST_ROWS
    more = [f"({left:,} more rows)"] if left > 0 else []
    return [table.title, *lines, *more, *(_wrap(table.note) if table.note else [])]


def _align(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = [
        cell.rjust(width) if figures else cell.ljust(width)
        for cell, width, figures in zip(row, widths, right, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    return (
        f"{value:.3f}"
        if 1e-3 <= abs(value) < 100 or value == 0
        else f"{value:,.1f}"
        if 100 <= abs(value) < 1e7
        else f"{value:.2e}"
    )


def _number(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None
