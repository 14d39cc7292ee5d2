"""The codebook of disguised records, as archives read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from masquerade.channels.policy import Policy
from masquerade.frames.ddi import CONTROL, NAMESPACE, Wording, codebook

# of each element: which may stand in it, in which order (DDI Codebook 2.5, of those that are written)
CONTENT = {
    "codeBook": ["stdyDscr", "fileDscr", "dataDscr"],
    "stdyDscr": ["citation", "stdyInfo", "method"],
    "citation": ["titlStmt", "prodStmt"],
    "titlStmt": ["titl", "parTitl", "IDNo"],
    "prodStmt": ["software"],
    "stdyInfo": ["sumDscr"],
    "sumDscr": ["anlyUnit", "dataKind"],
    "method": ["notes"],
    "fileDscr": ["fileTxt"],
    "fileTxt": ["fileName", "dimensns"],
    "dimensns": ["caseQnty", "varQnty"],
    "dataDscr": ["var"],
    "var": ["labl", "qstn", "universe", "catgry", "derivation", "varFormat", "notes"],
    "qstn": ["qstnLit"],
    "catgry": ["catValu", "labl"],
    "derivation": ["drvdesc"],
}
POLICY = Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "age": {"categories": ["<30", "30 & more"]},
            "pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
            "a": {"categories": ["x", "y"]},
            "b": {"categories": ["x", "y"]},
        },
        "joint": [{"variables": ["a", "b"], "channel": {"kind": "symmetric", "p": 0.2}}],
    }
)


def read(text):
    return ET.fromstring(text)  # noqa: S314  (written just now)


def of(root, *path):
    return root.findall("/".join(f"{{{NAMESPACE}}}{name}" for name in path))


@pytest.fixture(scope="module")
def book():
    told = {
        "pills": Wording(
            {"en": "Pills <ever>?", "de": "Pillen?"}, {"en": ["Yes", "No"], "de": ["Ja", "Nein"]}
        )
    }
    more = {"mode": ("device", "dice")}
    return read(codebook(POLICY, cases=12, title={"en": "T", "de": "U"}, wordings=told, more=more))


def test_every_element_stands_where_the_format_has_it(book):
    for element in book.iter():
        name = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        inner = [child.tag.removeprefix(f"{{{NAMESPACE}}}") for child in element]
        order = CONTENT.get(name, [])
        assert set(inner) <= set(order), name
        assert inner == sorted(inner, key=order.index), name
    names = [element.get("ID") for element in book.iter() if element.get("ID")]
    assert len(names) == len(set(names))
    for derived in book.iter(f"{{{NAMESPACE}}}derivation"):
        assert set(derived.get("var", "").split()) <= set(names)


def test_it_says_what_was_asked_and_how_it_was_disguised(book):
    variables = {one.get("name"): one for one in of(book, "dataDscr", "var")}
    assert list(variables) == [*POLICY.observed, "mode"]
    pills = variables["pills"]
    asked = {
        one.attrib["{http://www.w3.org/XML/1998/namespace}lang"]: one.text
        for one in of(pills, "qstn", "qstnLit")
    }
    assert asked == {"en": "Pills <ever>?", "de": "Pillen?"}
    assert [one.text for one in of(pills, "catgry", "catValu")] == ["yes", "no"]
    assert [one.text for one in of(pills, "catgry", "labl")] == ["Yes", "Ja", "No", "Nein"]
    [note] = of(pills, "notes")
    assert note.get("type") == CONTROL
    exact = json.loads(note.text)
    assert exact["rows"] == [{"0": "3/4", "1": "1/4"}, {"0": "1/4", "1": "3/4"}]
    assert (exact["gamma"], exact["policy"]) == ("3", POLICY.id)
    assert "Not disguised" in of(variables["age"], "notes")[0].text
    joint = json.loads(of(variables["a"], "notes")[0].text)
    assert joint["of"] == ["a", "b"]
    assert len(joint["rows"]) == 4
    [whole] = of(book, "stdyDscr", "method", "notes")
    assert Policy.from_public_text(whole.text, POLICY.id) == POLICY
    assert [one.text for one in of(book, "fileDscr", "fileTxt", "dimensns", "caseQnty")] == ["12"]


def for_ipums(root):
    """Add what files of IPUMS have beside and its reader insists on: positions, a series, terms of use."""

    def add(parent, name, text="-", **attributes):
        made = ET.SubElement(parent, f"{{{NAMESPACE}}}{name}", attributes)
        made.text = text
        return made

    [study], [file] = of(root, "stdyDscr"), of(root, "fileDscr", "fileTxt")
    terms, series = add(add(study, "dataAccs"), "useStmt"), add(of(study, "citation")[0], "serStmt")
    for parent, name, attributes in (
        (terms, "citReq", {}),
        (terms, "conditions", {}),
        (series, "serName", {"abbr": "-"}),
        (series, "serInfo", {}),
        (file, "fileCont", {}),
        (file, "fileStrc", {"type": "rectangular"}),
        (file, "fileType", {"charset": "utf-8"}),
        (file, "format", {}),
        (file, "filePlac", {}),
    ):
        add(parent, name, **attributes)
    for variable in of(root, "dataDscr", "var"):
        add(variable, "location", width="1", StartPos="1", EndPos="1")
        add(variable, "txt")
        add(variable, "concept")
    return ET.tostring(root, encoding="unicode")


IPUMS = ["ipumspy==0.9.0", "importlib-metadata==4.13.0"]  # an older one than ours: installed apart
READ = """
import json, sys
from ipumspy import readers
book = readers.read_ipums_ddi(sys.argv[1])
kinds = {one.name: one.python_type.__name__ for one in book.data_description}
told = {one.name: [one.label, one.codes, kinds[one.name], one.notes] for one in book.data_description}
print(json.dumps([book.file_description.filename, told]))
"""


@pytest.mark.slow
def test_a_foreign_reader_finds_the_variables_their_labels_and_categories(tmp_path):
    place, file = tmp_path / "ipumspy", tmp_path / "codebook.xml"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place), *IPUMS]
    subprocess.run(install, check=True, capture_output=True)  # noqa: S603
    variables = {
        "year": {"categories": [2019, 2020, 2021]},
        "pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
        "Größe": {"categories": ["< 1 & m", "“2”"], "channel": {"kind": "symmetric", "p": 0.2}},
    }
    policy = Policy.from_dict({"masquerade": 1, "variables": variables})
    told = {"pills": Wording({"en": "Pills <ever>?"}, {"en": ["Yes, ever", "No"]})}
    text = codebook(policy, cases=12, wordings=told, file_name="data.csv", more={"mode": ("device", "dice")})
    file.write_text(for_ipums(read(text)), encoding="utf-8")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", READ, str(file)],
        env={**os.environ, "PYTHONPATH": str(place)},
        check=True,
        capture_output=True,
    )
    name, found = json.loads(done.stdout)
    assert name == "data.csv"
    assert {one: tuple(known[:3]) for one, known in found.items()} == {
        "year": ("year", {"2019": 2019, "2020": 2020, "2021": 2021}, "int"),
        "pills": ("Pills <ever>?", {"Yes, ever": "yes", "No": "no"}, "str"),
        "Größe": ("Größe", {"< 1 & m": "< 1 & m", "“2”": "“2”"}, "str"),
        "mode": ("mode", {"device": "device", "dice": "dice"}, "str"),
    }
    channel = json.loads(found["pills"][3])
    assert channel["rows"] == [{"0": "3/4", "1": "1/4"}, {"0": "1/4", "1": "3/4"}]


def test_letters_that_xml_has_no_place_for_are_left_out():
    text = codebook(POLICY, cases=0, wordings={"pills": Wording({"en": "a\x00b\x1fc"})})
    assert of(read(text), "dataDscr", "var", "qstn", "qstnLit")[0].text == "abc"
