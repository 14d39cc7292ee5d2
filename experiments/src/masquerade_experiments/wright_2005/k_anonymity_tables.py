"""The example tables of k-anonymity: a 2-anonymous table, formulation 1 and formulation 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

import masquerade as mq
from masquerade.report import INK, MASK_TINT, MUTED, NAIVE, canvas
from masquerade.simulation import SuppressionRun, k_anonymity, people_from
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

K = 2
COLUMNS = ("Date of Birth", "Zip Code", "Allergy", "History of Illness")
QUASI, SENSITIVE = COLUMNS[:2], COLUMNS[2:]
HIDDEN = "(hidden)"
DIGITS, FIRST, SECOND = "2-anonymous table", "formulation 1", "formulation 2"

BY_DIGITS = (
    "The first table stars the last digit of two zip codes: we give the algorithm every digit of a zip code "
    "as an attribute of its own, and the date of birth as one."
)
MARKED = (
    "The slide of formulation 1 marks the k-anonymous part graphically, which is lost in the text: the "
    "hidden row is read off its definition."
)

PROTOCOLS = (
    "Formulation 1 is run in the talk's form (a dealer's polynomial, shares in the exponent), formulation 2 "
    "with two key holders and the proofs that it needs. The first table is made by formulation 2 too."
)

ORIGINAL = {
    DIGITS: """
        03-24-79 | 07030 | Penicillin | Pharyngitis
        08-02-57 | 07028 | No Allergy | Stroke
        11-12-39 | 07030 | No Allergy | Polio
        08-02-57 | 07029 | Sulfur | Diphtheria
        08-01-40 | 07030 | No Allergy | Colitis""",
    FIRST: """
        11-12-39 | 07030 | No Allergy | Colitis
        08-02-57 | 07029 | No Allergy | Stroke
        03-24-79 | 07030 | Penicillin | Pharyngitis
        08-02-57 | 07029 | Sulfur | Diphtheria
        11-12-39 | 07030 | No Allergy | Colitis""",
    SECOND: """
        03-24-79 | 07030 | Penicillin | Pharyngitis
        08-02-57 | 07030 | No Allergy | Stroke
        11-12-39 | 07030 | No Allergy | Polio
        08-02-57 | 07030 | Sulfur | Diphtheria
        08-01-40 | 07030 | No Allergy | Colitis""",
}
PRINTED = {
    DIGITS: """
        * | 07030 | Penicillin | Pharyngitis
        08-02-57 | 0702* | No Allergy | Stroke
        * | 07030 | No Allergy | Polio
        08-02-57 | 0702* | Sulfur | Diphtheria
        * | 07030 | No Allergy | Colitis""",
    FIRST: f"""
        11-12-39 | 07030 | No Allergy | Colitis
        08-02-57 | 07029 | No Allergy | Stroke
        03-24-79 | 07030 | {HIDDEN} | {HIDDEN}
        08-02-57 | 07029 | Sulfur | Diphtheria
        11-12-39 | 07030 | No Allergy | Colitis""",
    SECOND: """
        * | 07030 | Penicillin | Pharyngitis
        08-02-57 | 07030 | No Allergy | Stroke
        * | 07030 | No Allergy | Polio
        08-02-57 | 07030 | Sulfur | Diphtheria
        * | 07030 | No Allergy | Colitis""",
}


def parsed(text: str) -> pd.DataFrame:
    """Parse one of the tables above."""
    lines = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def central(name: str) -> pd.DataFrame:
    """Return the table made by the library's central functions, which see all rows."""
    frame = parsed(ORIGINAL[name])
    if name == FIRST:
        opened: pd.DataFrame = mq.anonymity.open_repeated(frame, QUASI, K)
        return opened.fillna(HIDDEN)
    if name == SECOND:
        starred: pd.DataFrame = mq.anonymity.suppress(frame, QUASI, K).frame
        return starred
    digits = split_digits(frame)
    wide = pd.concat([frame.drop(columns="Zip Code"), digits], axis=1)
    narrow: pd.DataFrame = mq.anonymity.suppress(wide, ["Date of Birth", *digits.columns], K).frame
    narrow["Zip Code"] = narrow[list(digits.columns)].agg("".join, axis=1)
    return narrow.reindex(columns=list(COLUMNS))


def distributed(name: str) -> pd.DataFrame:
    """Return the table made by the protocols, in which each person has one row."""
    frame = parsed(ORIGINAL[name])
    if name == FIRST:
        return opened_by_protocol(frame)
    zips = split_digits(frame) if name == DIGITS else frame[["Zip Code"]]
    rows = pd.concat([frame["Date of Birth"], zips], axis=1)
    table = SuppressionRun(rows.to_numpy().tolist(), K, attributes=[str(name) for name in rows]).run()
    shown = [["*" if value is None else value for value in row] for row in table.rows]
    frame["Date of Birth"] = [row[0] for row in shown]
    frame["Zip Code"] = ["".join(row[1:]) for row in shown]
    return frame


def opened_by_protocol(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table that the talk's protocol opens in formulation 1.

    Opened rows are in an order that is unrelated to the people, so they cannot be matched to rows of the
    table. Instead, the simulation checks that they are exactly the rows of classes of at least k people; if
    they are not, all sensitive values are shown as hidden.
    """
    result = k_anonymity(people_from(frame), K, QUASI, SENSITIVE, "faithful")
    in_class = frame.groupby(list(QUASI))[SENSITIVE[0]].transform("size") >= K
    if result.as_expected and result.opened == int(in_class.sum()):
        frame.loc[~in_class, list(SENSITIVE)] = HIDDEN
    else:
        frame[list(SENSITIVE)] = HIDDEN
    return frame


def split_digits(frame: pd.DataFrame) -> pd.DataFrame:
    """Return every digit of the zip code as a separate attribute."""
    return frame["Zip Code"].str.extractall("(.)")[0].unstack().add_prefix("digit ")


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001
    """Return the three tables."""
    del quick
    return tuple({"table": name, "k": K} for name in ORIGINAL)


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Anonymise one table by the distributed protocol; its result does not depend on chance."""
    del seed
    name = str(setting["table"])
    original, printed, made = parsed(ORIGINAL[name]), parsed(PRINTED[name]), distributed(name)
    curator = central(name)
    together = made.groupby(list(QUASI))[SENSITIVE[0]].transform("size")
    return [
        {
            "row": row + 1,
            "column": column,
            "original": str(original.loc[row, column]),
            "printed": str(printed.loc[row, column]),
            "ours": str(made.loc[row, column]),
            "by a curator": str(curator.loc[row, column]),
            "rows alike": int(together[row]),
        }
        for row in range(len(made))
        for column in COLUMNS
    ]


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Count the cells that differ from the printed table, and the size of each row's class."""
    found = []
    for name in ORIGINAL:
        own = frame[frame["table"] == name]
        differing = int((own["ours"] != own["printed"]).sum())
        found.append(
            Comparison(
                f"{name}: cells of the protocol's table that differ from the printed one", 0, differing
            )
        )
        other = int((own["ours"] != own["by a curator"]).sum())
        found.append(
            Comparison(
                f"{name}: cells that differ between the protocol and a curator who sees all rows",
                0,
                other,
                kind="claim as read",
                read_as="“A distributed privacy-preserving version” of it, read as: the same table."
                if name != FIRST
                else "“Miner learns only those rows … at least k times”, read as: exactly those.",
            )
        )
        shown = own[own["column"].isin(SENSITIVE) & (own["ours"] != HIDDEN)]
        found.append(
            Comparison(
                f"{name}: fewest rows with one quasi-identifier, among rows whose sensitive part is open",
                K,
                int(shown["rows alike"].min()),
                rule="at least",
                kind="claim as read",
                read_as="“Each value of quasi-identifier attributes appears ≥ k times”.",
            )
        )
    return found


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the three tables of the library."""
    first = frame[frame["run"] == frame["run"].min()]
    cells = first.set_index(["table", "row", "column"])["ours"]
    wide: pd.DataFrame = cells.unstack(sort=False).reset_index()
    return wide.reindex(columns=["table", "row", *COLUMNS]).rename_axis(columns=None)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the three tables, with suppressed and hidden cells in colour."""
    figure = canvas(7.4, 5.4)
    titles = {
        DIGITS: "2-anonymous table: each digit of the zip code is an attribute of its own",
        FIRST: "Formulation 1: the sensitive part is opened where the quasi-identifier occurs twice",
        SECOND: "Formulation 2: quasi-identifiers that differ within a group are starred",
    }
    for axes, (name, title) in zip(figure.subplots(3, 1), titles.items(), strict=True):
        axes.set_title(title, loc="left", fontsize=10)
        paint(axes, frame[(frame["table"] == name) & (frame["run"] == frame["run"].min())])
    return figure


def paint(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw one table as a grid of text cells."""
    axes.set_axis_off()
    axes.set_xlim(0, len(COLUMNS))
    axes.set_ylim(cells["row"].max() + 0.6, -0.6)
    for place, column in enumerate(COLUMNS):
        axes.text(place + 0.05, 0, column, color=MUTED, va="center", fontsize=9)
    axes.axhline(0.5, color=MUTED, linewidth=0.8)
    for cell in cells.to_dict("records"):
        place, changed = COLUMNS.index(cell["column"]), cell["ours"] != cell["original"]
        axes.text(
            place + 0.05,
            cell["row"],
            cell["ours"],
            color=NAIVE if changed else INK,
            weight="bold" if changed else "normal",
            va="center",
            fontsize=9,
            bbox={"facecolor": MASK_TINT, "edgecolor": "none", "pad": 2.0} if changed else None,
        )


EXPERIMENT = Experiment(
    id="wright-2005-k-anonymity",
    paper="Wright (2005)",
    item="Example tables of k-anonymity",
    title="k-anonymous tables, k = 2",
    shows=(
        "Date of birth and zip code are quasi-identifiers. Formulation 1 opens the sensitive part of rows "
        "whose quasi-identifier occurs at least twice; formulation 2 groups rows by Meyerson and Williams's "
        "algorithm and stars what differs within a group. Each person has one row: the "
        "tables are made by the distributed protocols. A curator who sees all rows makes the same tables."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    is_random=False,
    declared=(BY_DIGITS, MARKED, PROTOCOLS),
    table=table,
)
