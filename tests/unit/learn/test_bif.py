"""BIF: what is written reads back, what others write is read, what is wrong is named by its line."""

from __future__ import annotations

import gzip
import warnings
from importlib import import_module
from importlib.resources import files

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError
from masquerade.data.example_networks import eleven_nodes
from masquerade.learn.networks.network import known_network
from masquerade.learn.networks.network_files import parse_bif, read_bif, write_bif

LUNG = """network unknown {
}
variable smoke {
  type discrete [ 2 ] { yes, no };
}
variable lung {
  type discrete [ 3 ] { none, "a bit", 50-100% };
}
probability ( smoke ) {
  table 0.25, 0.75;
}
probability ( lung | smoke ) {
  (yes) 0.1, 0.2, 0.7;
  (no) 0.3333333, 0.3333333, 0.3333333;
}
"""

# as in the format's own description: no commas, the child slowest, comments and properties
DOG = """// Dog problem
network "Dog-Problem" { property "author: somebody; version 0.15" ; /* two
lines */ }
variable  "bowel-problem" { type discrete[2]  { "true"  "false" }; property "position = (335, 99)" ; }
variable family-out { property x y z; type discrete [2] {"true" "false"} }
variable dog-out { type discrete[2] { "true" "false" }; }
probability ( "bowel-problem" ) { table 0.01 0.99 ; }
probability ( family-out ) { table 0.15 0.85 ; }
probability ( dog-out "bowel-problem" family-out ) { table 0.99 0.97 0.9 0.3 0.01 0.03 0.1 0.7 ; }
"""


def same(one, other):
    assert one.schema == other.schema
    assert one.structure == other.structure
    for ours, theirs in zip(one.tables, other.tables, strict=True):
        np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)


def test_reading():
    net = parse_bif(LUNG)
    assert net.schema == mq.Schema({"smoke": ["yes", "no"], "lung": ["none", "a bit", "50-100%"]})
    assert net.structure == {"smoke": (), "lung": ("smoke",)}
    assert net["smoke"].probabilities.tolist() == [0.25, 0.75]
    assert net["lung"].probabilities.tolist() == [[0.1, 0.2, 0.7], [0.3333333] * 3]
    assert net["lung"].stderr.tolist() == [[0] * 3] * 2


def test_whole_tables_have_the_child_slowest():
    net = parse_bif(DOG)
    assert net.structure["dog-out"] == ("bowel-problem", "family-out")
    np.testing.assert_array_equal(
        net["dog-out"].probabilities, [[[0.99, 0.01], [0.97, 0.03]], [[0.9, 0.1], [0.3, 0.7]]]
    )


def test_default_rows_and_roughly_printed_ones():
    text = LUNG.replace("(yes) 0.1, 0.2, 0.7;", "default 0.333 0.333 0.333;")
    rows = parse_bif(text)["lung"].probabilities
    np.testing.assert_allclose(rows[0], 1 / 3, atol=1e-15)  # off by 0.001: rescaled
    assert rows[1].tolist() == [0.3333333] * 3  # off by 1e-7: as printed


def test_writing_and_reading_gives_the_same(tmp_path):
    assert parse_bif(LUNG).to_bif() == LUNG
    same(parse_bif(parse_bif(DOG).to_bif()), parse_bif(DOG))
    generator = np.random.default_rng(1)
    schema = mq.Schema({"a b": ["x;", "", "//", "{1}"], "c": ["p|q", "ä"], "e/f": ["/*", "ok"]})
    structure = {"a b": (), "c": ("a b",), "e/f": ("c", "a b")}
    tables = {"a b": generator.dirichlet(np.ones(4)), "c": generator.dirichlet([1, 1], 4)}
    tables["e/f"] = generator.dirichlet([0.01, 0.01], (2, 4))
    net = known_network(schema, structure, tables)
    same(parse_bif(net.to_bif()), net)
    write_bif(net, tmp_path / "net.bif", name="any name")
    same(read_bif(tmp_path / "net.bif"), net)


def test_labels_that_are_no_text_come_back_with_a_schema():
    net = eleven_nodes()
    assert parse_bif(net.to_bif()).schema["L"].categories == ("1", "2", "3")
    same(parse_bif(net.to_bif(), net.schema), net)
    with pytest.raises(InputError, match="categories of 'L' are not those"):
        parse_bif(net.to_bif(), mq.Schema({"L": [1, 2, 4]}))
    mixed = known_network(mq.Schema({"a": [1, "1"]}), {"a": ()}, {"a": np.array([0.5, 0.5])})
    with pytest.raises(InputError, match="written the same"):
        mixed.to_bif()


def test_what_cannot_be_written_is_refused():
    schema = mq.Schema({"a": ['"', "b"]})
    with pytest.raises(InputError, match="quotation mark"):
        known_network(schema, {"a": ()}, {"a": np.array([0.5, 0.5])}).to_bif()
    with pytest.raises(InputError, match=r"project\(\) for BIF"):
        known_network(mq.Schema({"a": [0, 1]}), {"a": ()}, {"a": np.array([1.5, -0.5])}).to_bif()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("variable lung", "variabel lung", "line 6: expected 'network', 'variable' or 'probability'"),
        ("{ yes, no };", "{ yes, no ;", "line 4: expected a name or '}', found ';'"),
        ("[ 2 ] {", "[ 3 ] {", "line 4: 'smoke' declares 3 categories and lists 2"),
        ("type discrete [ 2 ]", "type continuous [ 2 ]", "line 4: expected 'discrete', found 'continuous'"),
        ("{ yes, no }", "{ yes, yes }", "line 3: variable 'smoke' lists a category twice"),
        ("variable lung", "variable smoke", "line 6: variable 'smoke' is declared twice"),
        ("  type discrete [ 2 ] { yes, no };\n", "", "line 3: variable 'smoke' has no categories"),
        (
            "( lung | smoke )",
            "( lung | smok )",
            "line 12: variable 'smok' is not declared. Did you mean 'smoke'",
        ),
        ("( lung | smoke )", "( lung | lung )", "line 12: a variable is named twice"),
        ("( lung | smoke )", "( smoke )", "line 12: 'smoke' has two probability blocks"),
        ("( lung | smoke )", "( )", "line 12: a probability block names no variable"),
        ("(yes) 0.1", "(yes, no) 0.1", "line 13: 'lung' has 1 parents, found 2 values"),
        ("(yes) 0.1", "(yess) 0.1", "line 13: 'yess' is not a category of 'smoke'. Did you mean 'yes'"),
        ("(yes) 0.1", "(no) 0.1", r"line 14: the row of 'lung' for \(no\) is given twice"),
        ("  (yes) 0.1, 0.2, 0.7;\n", "", "line 12: rows of 'lung' are missing"),
        ("0.2, 0.7", "0.2", "line 13: expected 3 probabilities, found 2"),
        ("0.2, 0.7", "0.2, 0.8", "line 12: the rows of 'lung' must sum to 1"),
        ("0.2, 0.7", "0.2, x", "line 13: expected a probability, found 'x'"),
        ("0.2, 0.7", "0.2, nan", "line 13: nan is not a probability"),
        ("0.2, 0.7", "-0.2, 1.1", "line 13: -0.2 is not a probability"),
        ("network unknown {", "network unknown { property a", "line 2: a property must end with ';'"),
        ("network unknown {", "network unknown { a", "line 1: expected 'property', found 'a'"),
        ('"a bit"', '"a bit', "line 7: a quotation mark is never closed"),
        ("0.3333333;\n}\n", "0.3333333;\n", "line 15: expected 'property', found the end of the text"),
        (LUNG[LUNG.index("probability ( lung") :], "", "variable 'lung' has no probability block"),
        (LUNG[LUNG.index("variable") :], "", "line 3: there is no variable"),
        ("( smoke ) {\n", "( smoke | lung ) {\n default 0.5 0.5;", "cycle|expected"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(old, new, message):
    assert old in LUNG
    with pytest.raises(InputError, match=message):
        parse_bif(LUNG.replace(old, new, 1))


def test_every_beginning_of_a_file_is_refused_and_not_hung_on():
    for end in range(len(LUNG) - 2):
        with pytest.raises(InputError):
            parse_bif(LUNG[:end])


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read_bif(tmp_path / "none.bif")
    (tmp_path / "bytes.bif").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="is not a text file in UTF-8"):
        read_bif(tmp_path / "bytes.bif")
    (tmp_path / "bad.bif").write_text("network {", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.bif: line 1"):
        read_bif(tmp_path / "bad.bif")


@pytest.fixture(scope="module")
def bayesian_models():
    """Return the texts of the networks that pgmpy brings along: those of the bnlearn repository."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("pgmpy")
        place = files("pgmpy").joinpath("utils", "example_models")

    def text(name):
        return gzip.decompress(place.joinpath(f"{name}.bif.gz").read_bytes()).decode()

    return text


NAMES = (
    "asia",
    "cancer",
    "earthquake",
    "alarm",
    "survey",
    "sachs",
    "child",
    "insurance",
    "water",
    "hailfinder",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_repositorys_networks_come_back_as_they_are(bayesian_models, name):
    text = bayesian_models(name)
    net = parse_bif(text)
    assert len(net.tables) == text.count("variable ")
    again = parse_bif(net.to_bif())
    same(again, net)
    assert again.to_bif() == net.to_bif()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["asia", "alarm"])
def test_pgmpy_reads_what_we_write_as_we_read_what_it_has(bayesian_models, name):
    from pgmpy.readwrite import BIFReader, BIFWriter  # noqa: PLC0415

    ours = parse_bif(bayesian_models(name))
    theirs = BIFReader(string=ours.to_bif()).get_model()
    for table in ours.tables:
        cpd = theirs.get_cpds(table.child.name)
        order = [cpd.variables.index(axis.name) for axis in table.axes]
        for axis in table.axes:
            assert cpd.state_names[axis.name] == list(axis.categories)
        np.testing.assert_array_equal(table.probabilities, cpd.values.transpose(order))
    back = parse_bif(str(BIFWriter(theirs)))
    assert {n: set(p) for n, p in back.structure.items()} == {n: set(p) for n, p in ours.structure.items()}
    for table in back.tables:
        mine = ours[table.child.name]
        order = [table.axes.index(axis) for axis in mine.axes]
        np.testing.assert_allclose(table.probabilities.transpose(order), mine.probabilities, atol=1e-7)


HEAD = "variable a { type discrete [ 2 ] { y, n }; }\nvariable b { type discrete [ 2 ] { y, n }; }\n"
ROOT = "probability ( a ) { table 0.5, 0.5; }\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ROOT + "probability ( b | a,\na ) { default 0.5, 0.5; }", "a variable is named twice in the block"),
        (ROOT + 'probability ( b | a, "a" ) { default 1, 0; }', "a variable is named twice in the block"),
        ("probability ( a ) { table 0.5, 0.5; table 1, 0; }", "the table of 'a' is given twice"),
        ("probability ( a ) { default 0.5, 0.5; default 1, 0; }", "the default of 'a' is given twice"),
        ("probability ( a ) { table 0.5_0, 0.5; }", "expected a probability, found '0.5_0'"),
        ("probability ( a ) { table 0.٥, 0.5; }", "expected a probability, found '0.٥'"),
        ("variable c { type discrete [ 1 ] { y }; type discrete [ 1 ] { n }; }", "the type of 'c' is given"),
    ],
)
def test_text_that_readers_take_in_different_ways_is_refused(text, problem):
    with pytest.raises(InputError, match=problem):
        parse_bif(HEAD + text)


def test_defaults_do_not_fill_tables_without_end():
    names = [f"v{i}" for i in range(21)]
    text = "".join(f"variable {name} {{ type discrete [ 2 ] {{ y, n }}; }}\n" for name in names)
    text += "".join(f"probability ( {name} ) {{ table 0.5, 0.5; }}\n" for name in names)
    for child in (f"c{i}" for i in range(60)):
        text += f"variable {child} {{ type discrete [ 2 ] {{ y, n }}; }}\n"
        text += f"probability ( {child} | {', '.join(names)} ) {{ default 0.5, 0.5; }}\n"
    assert len(text) < 15_000  # for tables of 2 GB
    with pytest.raises(InputError, match="tables with a default have more than 8,388,608 probabilities"):
        parse_bif(text)
