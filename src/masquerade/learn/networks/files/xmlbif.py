"""Bayesian networks as XMLBIF 0.3, for Weka, pyAgrum, pgmpy and JavaBayes.

Standard errors are stored as a property of each definition (``stderr = …``, in the order of its table). Other
tools ignore it; `from_xmlbif` reads it. Categories are text; a `schema` restores other labels.
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
    network_of,
    numbers_in,
    relabel,
    with_stderr,
    written_categories,
)
from masquerade.learn.networks.files.xml_text import MOST_CHARACTERS, parse_xml
from masquerade.learn.networks.network import BayesianNetwork

STDERR: Final = re.compile(r"\s*stderr\s*=(.*)", re.DOTALL)
UNWRITABLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]"
)  # not allowed in XML 1.0


def to_xmlbif(network: BayesianNetwork, name: str = "network") -> str:
    """Return a network as XMLBIF text, to full precision.

    Parameters
    ----------
    network : BayesianNetwork
        A network without negative parameters.
    name : str, default "network"
        Name of the network in the text.

    Returns
    -------
    str
        XMLBIF text.

    Raises
    ------
    InputError
        If a parameter is negative, or a name cannot be written in XML.

    Examples
    --------
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
    """Parse a network from XMLBIF text.

    Parameters
    ----------
    text : str
        XMLBIF text.
    schema : Schema, optional
        Variables with the labels of categories that are not texts.

    Returns
    -------
    BayesianNetwork
        The network.

    Raises
    ------
    InputError
        If the text is not valid or does not fit the schema.

    Examples
    --------
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
    network = network_of([relabel(one, schema) for one in variables.values()], ordered, values)
    return with_stderr(network, errors)


def read_xmlbif(path: str | Path, schema: Schema | None = None) -> BayesianNetwork:
    """Read a network from an XMLBIF file.

    Parameters
    ----------
    path : str or Path
        File to read.
    schema : Schema, optional
        Variables, as in `from_xmlbif`.

    Returns
    -------
    BayesianNetwork
        The network.

    Raises
    ------
    InputError
        If the file is not valid.

    Examples
    --------
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
    """Write a network to an XMLBIF file, atomically.

    Parameters
    ----------
    network : BayesianNetwork
        A network without negative parameters.
    path : str or Path
        File to write.
    name : str, default "network"
        Name of the network in the file.

    Returns
    -------
    None
        The file is complete, or unchanged if writing failed.

    Raises
    ------
    InputError
        If a parameter is negative, or a name cannot be written in XML.

    Examples
    --------
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
            raise InputError(f"variable {name!r} must have categories, each once.")
        found[name] = Variable(name, tuple(labels))
    if not found:
        raise InputError("there is no variable.")
    return found


def _stderr(definition: ET.Element, child: str, sizes: list[int]) -> Floats | None:
    matches = [STDERR.fullmatch(_text(item)) for item in definition.findall("PROPERTY")]
    lists = [match.group(1).split() for match in matches if match is not None]
    if not lists:
        return None
    words = ["0" if word == "inf" else word for word in lists[0]]
    found = numbers_in(words, prod(sizes), f"the standard errors of {child!r}")
    found[[word == "inf" for word in lists[0]]] = np.inf
    if np.any(found < 0):
        raise InputError(f"the standard errors of {child!r} must not be negative.")
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
            f"A name with control characters or outer blanks cannot be written as XMLBIF: {text!r}."
        )
    ET.SubElement(parent, name).text = text


def _numbers(values: Floats) -> str:
    return " ".join(repr(float(value)) for value in values.ravel())
