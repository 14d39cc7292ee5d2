"""Codebook of disguised records: DDI Codebook 2.5, the XML format of data archives.

It states the name, question and categories of every column, the exact probabilities with which categories
were drawn, γ, and the SHA-256 id of the policy. Even in twenty years, this is all that estimates need.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from masquerade.channels.policy import Group, Policy
from masquerade.core.schema import Category
from masquerade.core.util.formatting import category_text, gamma_text
from masquerade.core.util.frame_marks import DISGUISED
from masquerade.frames.formats import Format, format_of
from masquerade.frames.sheets import code_labels

NAMESPACE: Final = "ddi:codebook:2_5"
CONTROL: Final = "statistical disclosure control"
MOST_ROWS: Final = 10_000  # largest number of weights of a channel written out; the policy has all of them
_XML: Final = "http://www.w3.org/XML/1998/namespace"
_FILE: Final = "F1"


@dataclass(frozen=True)
class Wording:
    """The texts of a column by language: its question, and its answers in the order of the categories.

    `among` states who was asked, and how all other people are recorded. Without `among`, all people were
    asked.

    >>> pills = mq.interop.Wording({"en": "Do you take pills to study?"}, {"en": ["Yes", "No"]})
    >>> text = mq.interop.codebook(mq.data.students_policy(), cases=600, wordings={"pills": pills})
    >>> "Do you take pills to study?" in text
    True
    """

    question: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    among: Mapping[str, str] = field(default_factory=dict)


def codebook(
    policy: Policy,
    *,
    cases: int,
    title: Mapping[str, str] | None = None,
    wordings: Mapping[str, Wording] | None = None,
    more: Mapping[str, Sequence[str]] | None = None,
    file_name: str = "",
    software: str = "masquerade",
) -> str:
    """Return the codebook of records that were disguised under a policy.

    Parameters
    ----------
    policy : Policy
        Policy of the records.
    cases : int
        Number of records.
    title : mapping of str to str, optional
        Title of the study by language.
    wordings : mapping of str to Wording, optional
        Texts of the questions by variable.
    more : mapping of str to sequence of str, optional
        Further columns, which the policy does not list, with their categories.
    file_name : str, optional
        Name of the data file. SPSS and Stata files store text as numbers with labels: the codebook of such a
        file has these numbers.
    software : str, optional
        Name of the program that wrote the data.

    Returns
    -------
    str
        XML.

    Examples
    --------
    >>> text = mq.interop.codebook(mq.data.students_policy(), cases=600, title={"en": "Students"})
    >>> text.count("<var ")
    4
    """
    ET.register_namespace("", NAMESPACE)
    root = ET.Element(_tag("codeBook"), {"version": "2.5", "ID": "masquerade"})
    _study(root, policy, title or {"en": "Disguised records"}, software)
    columns = [(variable.name, variable.categories) for variable in policy.observed.variables]
    absent = {variable.name: variable.missing for variable in policy.observed.variables}
    columns += [(name, tuple(categories)) for name, categories in (more or {}).items()]
    text = _add(_add(root, "fileDscr", ID=_FILE), "fileTxt")
    if file_name:
        _add(text, "fileName", file_name)
    sizes = _add(text, "dimensns")
    _add(sizes, "caseQnty", str(cases))
    _add(sizes, "varQnty", str(len(columns)))
    data = _add(root, "dataDscr")
    kind = format_of(file_name) if file_name else Format.PARQUET
    for place, (name, categories) in enumerate(columns, start=1):
        wording = (wordings or {}).get(name, Wording())
        codes = _stored_codes(categories, absent.get(name, ()), kind)
        # Stata writes a missing value among numbers as a point and a letter
        is_number = all(type(one) in {int, float} for one in codes) or codes != list(categories)
        decimals = "0" if is_number and not any(type(one) is float for one in codes) else ""
        variable = _add(data, "var", ID=f"V{place}", name=name, intrvl="discrete", files=_FILE, dcml=decimals)
        for language, asked in (wording.question or {"": name}).items():
            _add(variable, "labl", asked, language, level="variable")
        if wording.question:
            question = _add(variable, "qstn")
            for language, asked in wording.question.items():
                _add(question, "qstnLit", asked, language)
        for language, who in wording.among.items():
            _add(variable, "universe", who, language)
        told = {language: texts for language, texts in wording.answers.items()
                if len(texts) == len(categories)}  # fmt: skip
        for code, category in enumerate(categories):
            entry = _add(variable, "catgry", missing="Y" if category in absent.get(name, ()) else "")
            _add(entry, "catValu", category_text(codes[code]))
            for language, texts in (told or {"": [category_text(one) for one in categories]}).items():
                _add(entry, "labl", texts[code], language, level="category")
        _disguise(variable, policy, name, "numeric" if is_number else "character")
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _study(root: ET.Element, policy: Policy, title: Mapping[str, str], software: str) -> None:
    study = _add(root, "stdyDscr")
    citation = _add(study, "citation")
    titles = _add(citation, "titlStmt")
    (language, first), *others = title.items()
    _add(titles, "titl", first, language)
    for language, text in others:
        _add(titles, "parTitl", text, language)
    _add(titles, "IDNo", policy.id, agency="sha256 of the masquerade policy")
    _add(_add(citation, "prodStmt"), "software", software)
    summary = _add(_add(study, "stdyInfo"), "sumDscr")
    _add(summary, "anlyUnit", "person")
    _add(summary, "dataKind", "reports disguised by known probabilities, not answers")
    _add(_add(study, "method"), "notes", _policy_text(policy), type=CONTROL)


def _policy_text(policy: Policy) -> str:
    text = policy.public_text()
    return f"policy {policy.id}" if text is None else text


def _stored_codes(
    categories: Sequence[Category], missing: Sequence[Category], kind: Format
) -> list[Category]:
    """Return the value that a file stores for each category."""
    is_text = not all(type(one) is int for one in categories)
    if kind not in {Format.SPSS, Format.STATA} or not is_text:
        return list(categories)
    texts = [category_text(one) for one in categories]
    codes, _ = code_labels(texts, [category_text(one) for one in missing], kind)
    return [code if isinstance(code, int) else f".{code}" for code in (codes[text] for text in texts)]


def _disguise(variable: ET.Element, policy: Policy, name: str, written: str) -> None:
    """Add the format of a column, how its values were drawn, and the exact probabilities."""
    drawn = [group for group in policy.groups if name in group.reports and group.disguised]
    if not drawn:
        _add(variable, "varFormat", type=written)
        note = "Not disguised: the value is the answer." if name in policy.schema else "Not an answer."
        _add(variable, "notes", note, type=CONTROL)
        return
    [group] = drawn
    derived = _add(variable, "derivation", var=" ".join(_places(policy, group)))
    together = f" together with {', '.join(group.names)}" if len(group.names) > 1 else ""
    drawn_how = (
        f"{DISGUISED} A category drawn at random{together}, by probabilities that follow from the answer;"
    )
    _add(derived, "drvdesc", f"{drawn_how} estimates correct for it, but no single answer can be recovered.")
    _add(variable, "varFormat", type=written)
    if policy.stratum_variable is not None:
        _add(variable, "notes", f"Drawn by a channel for each {policy.stratum_variable}: see the policy.",
             type=CONTROL)  # fmt: skip
        return
    if group.response is not None:
        _add(variable, "notes", "A block of questions was dealt, and a class of it drawn: see the policy.",
             type=CONTROL)  # fmt: skip
        return
    channel = group.matrix_channel
    rows = None
    if channel.truths * channel.reports <= MOST_ROWS:
        rows = [{str(report): str(chance) for report, chance in channel.row(truth).items()}
                for truth in range(channel.truths)]  # fmt: skip
    exact = {"policy": policy.id, "of": list(group.names), "gamma": gamma_text(channel.gamma), "rows": rows}
    _add(variable, "notes", json.dumps(exact, ensure_ascii=False), type=CONTROL)


def _places(policy: Policy, group: Group) -> list[str]:
    return [f"V{i}" for i, name in enumerate(policy.observed, start=1) if name in group.names]


def _add(
    parent: ET.Element, name: str, text: str = "", language: str = "", /, **attributes: str
) -> ET.Element:
    given = {key: value for key, value in attributes.items() if value}
    made = ET.SubElement(parent, _tag(name), given | ({f"{{{_XML}}}lang": language} if language else {}))
    made.text = "".join(one for one in text if one in "\t\n\r" or one >= " ") or None
    return made


def _tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"
