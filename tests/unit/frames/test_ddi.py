"""The codebook of disguised records, as archives read it."""

from __future__ import annotations

import json
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
    "var": ["labl", "qstn", "catgry", "derivation", "notes"],
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


def test_letters_that_xml_has_no_place_for_are_left_out():
    text = codebook(POLICY, cases=0, wordings={"pills": Wording({"en": "a\x00b\x1fc"})})
    assert of(read(text), "dataDscr", "var", "qstn", "qstnLit")[0].text == "abc"
