"""Croissant: the JSON-LD description by which machine learning tools find and load a data set.

This is version 1.1 of the format, with the Responsible AI (RAI) vocabulary, which describes the collection,
the disguise and the estimation. Terms that start with ``mq:`` are masquerade's own and are plain text: the
policy's sha256, the exact γ of a record, the exact rows of a column's channel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import privacy
from masquerade.core.schema import Variable
from masquerade.core.util.formatting import category_text, gamma_words

CONFORMS: Final = "http://mlcommons.org/croissant/1.1"
VOCABULARY: Final = "urn:masquerade:vocabulary#"
MOST_ROWS: Final = 10_000  # largest channel that is written out; the policy contains all channels
ENCODINGS: Final = {".parquet": "application/x-parquet", ".csv": "text/csv"}
_TERMS: Final = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileProperty",
    "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
    "separator", "source", "subField", "transform",
)  # fmt: skip


@dataclass(frozen=True)
class About:
    """Facts about a release that only its publisher knows; empty if not given.

    Parameters
    ----------
    title : str
        Title of the release.
    description : str, optional
        Description.
    creator : str, optional
        Organisation that publishes it.
    license : str, optional
        Licence.
    url : str, optional
        Address of the release.
    version : str, default "1.0.0"
        Version of the release.
    published : str, optional
        Date, such as 2026-11-17.

    Examples
    --------
    >>> about = mq.interop.About(title="Exams, pills and sleep", creator="A university", license="CC BY 4.0")
    >>> about.version
    '1.0.0'
    """

    title: str = "Disguised records"
    description: str = ""
    creator: str = ""
    license: str = ""
    url: str = ""
    version: str = "1.0.0"
    published: str = ""  # a date, such as 2026-11-17

    @property
    def full_description(self) -> str:
        """Return the description, or a default sentence that is true of every release."""
        return self.description or "Records disguised by known probabilities: reports, not answers."


def croissant(
    policy: Policy,
    *,
    data: str,
    sha256: str,
    size: int,
    about: About | None = None,
    software: str = "",
    memo: str | None = None,
) -> dict[str, Any]:
    """Return the Croissant description of a data file as plain JSON values.

    Parameters
    ----------
    policy : Policy
        Policy of the records.
    data : str
        Name of the data file.
    sha256 : str
        SHA-256 of the data file, in hexadecimal digits.
    size : int
        Size of the data file in bytes.
    about : About, optional
        Facts about the release.
    software : str, optional
        Name and version of the software.
    memo : str, optional
        Id of the memo that the reports were drawn from.

    Returns
    -------
    dict
        The description.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> mq.interop.croissant(policy, data="data.csv", sha256="0" * 64, size=10)["mq:gamma"]
    '12'
    """
    facts = about or About()
    exact = privacy(policy).to_dict()["record"]["gamma_exact"]
    given = {
        "license": facts.license,
        "url": facts.url,
        "datePublished": facts.published,
        "creator": {"@type": "sc:Organization", "name": facts.creator} if facts.creator else None,
    }
    return {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS,
        "name": facts.title,
        "description": facts.full_description,
        "version": facts.version,
        **{key: value for key, value in given.items() if value},
        "keywords": ["randomized response", "local differential privacy", "masquerade"],
        "isLiveDataset": False,
        **_responsible(policy),
        "mq:policy": policy.id,
        "mq:gamma": "none" if exact is None else exact,
        **({"mq:memo": memo} if memo else {}),
        "mq:software": software or "masquerade",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": data,
                "name": data,
                "description": "The disguised records.",
                "contentUrl": data,
                "contentSize": f"{size} B",
                "encodingFormat": ENCODINGS[data[data.rindex(".") :]],
                "sha256": sha256,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "records",
                "name": "records",
                "description": "A row for every person, in random order.",
                "field": [_field(policy, variable, data) for variable in policy.observed.variables],
            }
        ],
    }


def _context() -> dict[str, Any]:
    return {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "dct": "http://purl.org/dc/terms/",
        "sc": "https://schema.org/",
        "mq": VOCABULARY,
        "conformsTo": "dct:conformsTo",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "name": {"@container": "@language"},
        "description": {"@container": "@language"},
        **{term: f"cr:{term}" for term in _TERMS},
    }


def _responsible(policy: Policy) -> dict[str, Any]:
    disguised, clear = policy.disguised, [name for name in policy.schema if name not in policy.disguised]
    bound = gamma_words(privacy(policy).record_gamma)
    beside = f" In clear: {', '.join(clear)}." if clear else ""
    return {
        "rai:personalSensitiveInformation": [
            f"Disguised column by column: {', '.join(disguised) or 'nothing'}; over a record {bound}.{beside}"
        ],
        "rai:dataCollection": "Answers were replaced by reports drawn with the probabilities of the policy; "
        "the publisher of this file need not have kept the answers.",
        "rai:dataLimitations": [
            (
                "A report is not an answer: plain frequencies are biased. Estimate with the policy's "
                "channels, as `masquerade estimate` does, and use its standard errors."
            )
        ],
        "rai:dataReleaseMaintenancePlan": "A further release about the same people must reuse a memo of "
        "their reports: fresh draws multiply γ.",
    }


def _field(policy: Policy, variable: Variable, data: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"records/{variable.name}",
        "name": variable.name,
        "description": _description(variable),
        "dataType": _data_type(variable.categories),
        "source": {"fileObject": {"@id": data}, "extract": {"column": variable.name}},
        "mq:channel": _channel(policy, variable.name),
    }


def _description(variable: Variable) -> str:
    return f"Reports: {', '.join(category_text(label) for label in variable.categories[:50])}."


def _data_type(categories: Sequence[object]) -> str:
    kinds = {type(label) for label in categories}
    return "sc:Boolean" if kinds == {bool} else "sc:Integer" if kinds == {int} else "sc:Text"


def _channel(policy: Policy, name: str) -> str:
    """Return the channel of a column as JSON text with exact fractions; a reference if it is too long."""
    drawn = [group for group in policy.groups if name in group.reports]
    if not drawn or not drawn[0].disguised:
        return "none: the values are unchanged"
    [group] = drawn
    if policy.stratum_variable is not None or group.response is not None:
        return "see the policy"
    channel = group.matrix_channel
    if channel.truths * channel.reports > MOST_ROWS:
        return "see the policy"
    rows: list[Mapping[str, str]] = [
        {str(report): str(chance) for report, chance in channel.row(truth).items()}
        for truth in range(channel.truths)
    ]
    return json.dumps({"of": list(group.names), "rows": rows}, ensure_ascii=False)
