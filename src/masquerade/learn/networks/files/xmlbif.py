"""Bayesian networks as XMLBIF 0.3, which Weka, pyAgrum, pgmpy and JavaBayes read.

Standard errors travel as a property of each definition (``stderr = …``, in the order of its table), which
others read over and `from_xmlbif` reads back. Categories are text; a `schema` gives other labels back.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import Schema, Variable
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_text
from masquerade.learn.networks.files.network_parts import (
    check_table_size,
    labelled,
    network_of,
    numbers_in,
    with_stderr,
    written_categories,
)
from masquerade.learn.networks.files.xml_text import MOST_CHARACTERS, parse_xml
from masquerade.learn.networks.network import BayesianNetwork

STDERR: Final = re.compile(r"\s*stderr\s*=(.*)", re.DOTALL)
UNWRITABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # XML 1.0 has no such


def to_xmlbif(network: BayesianNetwork, name: str = "network") -> str:
    """Return a network as XMLBIF text, numbers to full precision; negative parameters are refused.

    >>> mq.interop.to_xmlbif(mq.data.seven_nodes(), "seven").count("<DEFINITION>")
    7
    """
    tables = network.usable("XMLBIF")
    root = ET.Element("BIF", {"VERSION": "0.3"})
    body = ET.SubElement(root, "NETWORK")
    _add(body, "NAME", name)
    for table in tables:
        variable = ET.SubElement(body, "VARIABLE", {"TYPE": "nature"})
        _add(variable, "NAME", table.child.name)
        for label in written_categories(table.child, "XMLBIF"):
            _add(variable, "OUTCOME", label)
    for table in tables:
        definition = ET.SubElement(body, "DEFINITION")
        _add(definition, "FOR", table.child.name)
        for parent in table.parents:
            _add(definition, "GIVEN", parent.name)
        _add(definition, "TABLE", _numbers(table.probabilities))
        if np.any(table.stderr != 0):
            _add(definition, "PROPERTY", f"stderr = {_numbers(table.stderr)}")
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def from_xmlbif(text: str, schema: Schema | None = None) -> BayesianNetwork:
    """Return the network that XMLBIF text describes; whatever is wrong is an `InputError`.

    >>> text = mq.interop.to_xmlbif(mq.data.seven_nodes())
    >>> mq.interop.from_xmlbif(text).structure["D"]
    ('B', 'C')
    """
    root = parse_xml(text)
    body = root.find("NETWORK") if root.tag == "BIF" else None
    if body is None:
        raise InputError("not an XMLBIF network: it must be <BIF> with <NETWORK> in it.")
    variables = _variables(body)
    parents: dict[str, tuple[str, ...]] = {}
    values: dict[str, Floats] = {}
    errors: dict[str, Floats] = {}
    for definition in body.findall("DEFINITION"):
        child = _only(definition, "FOR")
        given = tuple(_text(item) for item in definition.findall("GIVEN"))
        for name in (child, *given):
            if name not in variables:
                raise InputError(f"variable {name!r} is not declared.{did_you_mean(name, variables)}")
        if child in parents:
            raise InputError(f"{child!r} is defined twice.")
        if len({child, *given}) < len(given) + 1:
            raise InputError(f"a variable is named twice in the definition of {child!r}.")
        sizes = [len(variables[name]) for name in (*given, child)]
        check_table_size(child, sizes)
        words = _only(definition, "TABLE").split()
        parents[child] = given
        values[child] = numbers_in(words, prod(sizes), f"the table of {child!r}").reshape(sizes)
        found = _stderr(definition, child, sizes)
        if found is not None:
            errors[child] = found
    missing = [name for name in variables if name not in parents]
    if missing:
        raise InputError(f"variable {missing[0]!r} has no definition.")
    ordered = {name: parents[name] for name in variables}
    network = network_of([labelled(one, schema) for one in variables.values()], ordered, values)
    return with_stderr(network, errors)


def read_xmlbif(path: str | Path, schema: Schema | None = None) -> BayesianNetwork:
    """Return the network in an XMLBIF file; see `from_xmlbif`.

    >>> mq.interop.write_xmlbif(mq.data.seven_nodes(), "seven.xml")
    >>> mq.interop.read_xmlbif("seven.xml").structure["D"]
    ('B', 'C')
    """
    text = read_text(Path(path), most=MOST_CHARACTERS)
    try:
        return from_xmlbif(text, schema)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_xmlbif(network: BayesianNetwork, path: str | Path, name: str = "network") -> None:
    """Write a network as an XMLBIF file, whole or not at all.

    >>> mq.interop.write_xmlbif(mq.data.seven_nodes(), "seven.xml")
    >>> mq.interop.read_xmlbif("seven.xml").schema.names
    ('A', 'G', 'B', 'C', 'D', 'E', 'F')
    """
    write_whole(Path(path), to_xmlbif(network, name))


def _variables(body: ET.Element) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    for item in body.findall("VARIABLE"):
        name = _only(item, "NAME")
        labels = [_text(label) for label in item.findall("OUTCOME")]
        if name in found:
            raise InputError(f"variable {name!r} is declared twice.")
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"variable {name!r} has no categories, or one twice.")
        found[name] = Variable(name, tuple(labels))
    if not found:
        raise InputError("there is no variable.")
    return found


def _stderr(definition: ET.Element, child: str, sizes: list[int]) -> Floats | None:
    told = [STDERR.fullmatch(_text(item)) for item in definition.findall("PROPERTY")]
    said = [match.group(1).split() for match in told if match is not None]
    if not said:
        return None
    words = ["0" if word == "inf" else word for word in said[0]]
    found = numbers_in(words, prod(sizes), f"the standard errors of {child!r}")
    found[[word == "inf" for word in said[0]]] = np.inf
    if np.any(found < 0):
        raise InputError(f"the standard errors of {child!r} hold a negative number.")
    return found.reshape(sizes)


def _only(parent: ET.Element, name: str) -> str:
    found = parent.findall(name)
    if len(found) != 1:
        raise InputError(f"a {parent.tag.lower()} must have one <{name}>. Got {len(found)} instead.")
    return _text(found[0])


def _text(element: ET.Element) -> str:
    return (element.text or "").strip()


def _add(parent: ET.Element, name: str, text: str) -> None:
    if UNWRITABLE.search(text) or text != text.strip():
        raise InputError(
            f"A name with control characters or blanks at its ends cannot be written as XMLBIF: {text!r}."
        )
    ET.SubElement(parent, name).text = text


def _numbers(values: Floats) -> str:
    return " ".join(repr(float(value)) for value in values.ravel())
