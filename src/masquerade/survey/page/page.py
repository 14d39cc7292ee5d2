"""Builder of a survey: one self-contained page, and the files to print, check and publish with it.

The same survey file gives the same bytes everywhere: they do not depend on time, machine or randomness.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.util.atomic import write_whole
from masquerade.survey.forms.free_text import BYTES_PER_CHARACTER
from masquerade.survey.forms.information import consent_digest, information_values
from masquerade.survey.forms.survey_file import Survey, SurveyQuestion
from masquerade.survey.page.consequences import percent_of_answers, say_bound, say_day, say_views
from masquerade.survey.page.mechanism import channel_rows, mechanism, vectors
from masquerade.survey.page.paper import letter, sheets
from masquerade.survey.page.script_text import asset, compact_style, script_of

PAGE: Final = "survey.html"
WORKER: Final = "service-worker.js"
PRINTED: Final = (
    "check_letter",
    "team_",
    "noscript",
    "sheet_",
    "date_style",
    "date_months",
    "bound_all",
    "bound_even",
    "bound_weak",
    "percent",
    "decimal",
    "true_",
    "who_",
)  # prefixes of texts that the script does not need
LEAST_BODY: Final = 512
STEP: Final = 256
_MOST_WORDS: Final = 8  # most words per row of the test vectors in the page
_MOST_CHANNELS: Final = 3
PLAIN_TYPES: Final = ("choice", "scale")
_TOKEN_DIGITS: Final = 192  # 32 bytes of input and 64 of output


@dataclass(frozen=True)
class Built:
    """The files of a survey by name, and the sha256 of the page."""

    files: Mapping[str, bytes]
    digest: str

    def write(self, folder: str | Path) -> None:
        """Write all files into a folder, which is created if necessary; each write is atomic."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            write_whole(place / name, content)


def build(survey: Survey) -> Built:
    """Build all files of a survey.

    Parameters
    ----------
    survey : Survey
        Survey to build.

    Returns
    -------
    Built
        Files by name, and the sha256 of the page.

    Raises
    ------
    InputError
        If the channels are too large for a page.

    Examples
    --------
    >>> sorted(build(Survey.load("survey.yaml")).files)  # doctest: +SKIP
    ['letter.html', 'manifest.json', 'masquerade.js', 'mechanism.json', 'policy.json', ...]
    """
    page = page_of(survey).encode()
    digest = hashlib.sha256(page).hexdigest()
    worker = asset(WORKER).replace("%PAGE%", PAGE).replace("%DIGEST%", digest)
    contents = {
        PAGE: page,
        f"{PAGE}.sha256": f"{digest}  {PAGE}\n".encode(),
        WORKER: worker.encode(),
        "masquerade.js": asset("masquerade.js").encode(),
        "mechanism.json": _json(_for_others(survey)),
        "vectors.json": _json({"draws": _vectors(survey.policy, words=100, rows=None)}),
        "policy.json": (json.dumps(survey.policy.to_dict(), indent=1, ensure_ascii=False) + "\n").encode(),
        "letter.html": letter(survey, digest).encode(),
        "sheets.html": sheets(survey).encode(),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}
    contents["manifest.json"] = _json(
        {"masquerade_survey": 1, "policy": survey.policy.id, "start": PAGE, "sha256": digests}
        | ({} if survey.spec.agree is None else {"consent": consent_digest(survey.spec)})
    )
    return Built(contents, digest)


def page_of(survey: Survey) -> str:
    """Return the page: markup, style, script and survey in one file, with hashes in its content policy."""
    further = {
        "tokens.js": survey.spec.issuer is not None,
        "qr.js": survey.spec.panel,
        "inputs.js": _has_other_types(survey),
    }
    parts = ["masquerade.js", *(name for name, needed in further.items() if needed), "page.js"]
    script = script_of(parts, page_values(survey))
    style = compact_style(asset("page.css"))
    first = survey.languages[0]
    page = (
        f'<!doctype html>\n<html lang="{first}" translate="no"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="%POLICY%">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
        # a browser's translation would send the chosen answers to its vendor
        '<meta name="google" content="notranslate">'
        f"<title>{escape(survey.text(survey.spec.title)[first])}</title><style>{style}</style></head>\n"
        '<body><header id="head"></header><main id="main"><noscript>'
        f"<p>{escape(survey.words[first]['noscript'])}</p></noscript></main>"
        f'<footer><div id="queue" role="status"></div></footer>\n<script>{script}</script></body></html>\n'
    )
    policy = content_policy(page, f"connect-src {survey.spec.collector}", "worker-src 'self'")
    return page.replace("%POLICY%", policy, 1)


def content_policy(page: str, *more: str) -> str:
    """Return the content security policy of a page, with the hashes of its one style and one script."""
    style, script = (
        page[page.index(f"<{tag}>") + len(tag) + 2 : page.index(f"</{tag}>")] for tag in ("style", "script")
    )
    sources = ["default-src 'none'", f"script-src {_source(script)}", f"style-src {_source(style)}", *more]
    return "; ".join([*sources, "form-action 'none'", "base-uri 'none'"])


def page_values(survey: Survey) -> dict[str, Any]:
    """Return the values that the page's script receives; they are the same for all respondents."""
    spec, policy = survey.spec, survey.policy
    checks = _vectors(policy, words=1, rows=2)[:_MOST_CHANNELS]
    columns = _columns(survey)
    known = percent_of_answers(policy)
    bounds = {name: after for name, after in known.items() if name not in survey.revealed_variables}
    return {
        "id": survey_id(survey),
        "policy": policy.id,
        "collector": spec.collector,
        "languages": list(spec.languages),
        "title": survey.text(spec.title),
        "contact": survey.text(spec.contact),
        "consent": survey.text(spec.consent),
        "closes": _days(survey, spec.closes),
        "deleted": _days(survey, spec.delete_after),
        "panel": spec.panel,
        "bound": {language: say_bound(survey, language) for language in survey.languages},
        "views": {
            language: [[view.who, view.true_answers, view.sent, view.level] for view in views]
            for language, views in ((it, say_views(survey, it)) for it in survey.languages)
        },
        "own": spec.own_chance,
        "issuer": spec.issuer,
        "types": _has_other_types(survey),
        "order": spec.order,
        "questions": [
            _question_values(q) | ({"bound": bounds[q.name]} if q.name in bounds else {})
            for q in survey.questions
        ],
        "mechanism": mechanism(policy),
        "columns": columns,
        "words": {
            language: {name: text for name, text in words.items() if not name.startswith(PRINTED)}
            for language, words in survey.words.items()
        },
        "vectors": checks,
        "firstLabel": _first_label(survey),
        "size": body_size(survey),
        **({"texts": [it.values() for it in survey.free_texts]} if survey.free_texts else {}),
        **information_values(survey),
    }


def _has_other_types(survey: Survey) -> bool:
    """Return True if a question is not a single choice."""
    return bool(survey.free_texts) or any(it.type not in PLAIN_TYPES for it in survey.questions)


def _question_values(question: SurveyQuestion) -> dict[str, Any]:
    """Return a question as the page's script receives it; properties without a value are omitted."""
    values: dict[str, Any] = {
        "name": question.name,
        "text": question.text,
        "help": question.help,
        "answers": question.answers,
        "shown": question.shown,
        "notAsked": question.not_asked,
        "screen": question.screen,
    }
    more: dict[str, Any] = {
        "notOffered": question.not_offered or None,
        "type": None if question.type == "choice" else question.type,
        "intro": question.intro,
        "caution": question.caution,
        "optional": None if question.required else True,
        "refused": question.refused,
        "number": None if question.number is None else question.number.values(),
        "ticked": question.ticked,
    }
    return values | {key: value for key, value in more.items() if value is not None}


def _days(survey: Survey, day: str | None) -> dict[str, str] | None:
    """Return a day in the style of every language."""
    if day is None:
        return None
    return {language: say_day(survey.words[language], day) for language in survey.languages}


def _for_others(survey: Survey) -> dict[str, Any]:
    """Return the values that another survey tool needs, in addition to `masquerade.js`, to send reports."""
    policy = survey.policy
    return {
        "policy": policy.id,
        "categories": {
            name: [str(label) for label in policy.schema[name].categories] for name in policy.schema
        },
        "columns": list(policy.observed),
        "labels": [[str(label) for label in variable.categories] for variable in policy.observed.variables],
        "mechanism": mechanism(policy),
        "size": body_size(survey),
        **({} if survey.spec.agree is None else {"agreed": consent_digest(survey.spec)}),
    }


def survey_id(survey: Survey) -> str:
    """Return a key for a page's storage on a device: it identifies policy, collector and issuer."""
    text = json.dumps([survey.policy.id, survey.spec.collector, survey.spec.issuer])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def body_size(survey: Survey) -> int:
    """Return the length of all messages that pages of this survey send."""
    largest = [len(variable) - 1 for variable in survey.policy.observed.variables]
    body: dict[str, Any] = {
        "policy": survey.policy.id,
        "id": "0" * 32,
        "mode": 0,
        "reports": largest,
        "token": "0" * _TOKEN_DIGITS,
    }
    digest = consent_digest(survey.spec)
    if digest is not None:
        body["agreed"] = digest
    if survey.free_texts:
        body["texts"] = {it.name: "x" * BYTES_PER_CHARACTER * it.longest for it in survey.free_texts}
    return max(LEAST_BODY, -(-len(json.dumps(body, ensure_ascii=False).encode()) // STEP) * STEP)


def _columns(survey: Survey) -> list[dict[str, Any]]:
    """Return the columns of reports with the labels of their codes; where possible, the texts of answers."""
    columns = []
    by_name = {question.name: question for question in survey.questions}
    for variable in survey.policy.observed.variables:
        question = by_name.get(variable.name)
        if question is not None and variable.categories == survey.policy.schema[variable.name].categories:
            labels = {language: list(question.answers[language]) for language in survey.languages}
        else:
            labels = {
                language: [str(label) for label in variable.categories] for language in survey.languages
            }
        columns.append({"name": variable.name, "labels": labels})
    return columns


def _channels(policy: Policy) -> dict[str, Channel]:
    """Return every channel of a policy, without duplicates and without identity channels."""
    channels: dict[str, Channel] = {}
    for label in policy.strata or (None,):
        for group in policy.groups_of(label):
            response = group.response
            if response is not None:
                sizes = sorted(set(response.block_classes.tolist()))
                channels |= {f"{group.names} {size}": response.channel_of(size) for size in sizes}
            elif group.disguised:
                channels.setdefault(f"{group.names} {label}", group.matrix_channel)
    return channels


def _vectors(policy: Policy, words: int, rows: int | None) -> list[dict[str, Any]]:
    by_channel = []
    for name, channel in _channels(policy).items():
        tests = vectors(channel, f"{policy.id} {name}", words, rows)
        if rows is not None:  # the page contains only a few vectors per row, including ends of intervals
            tests = [_few(row) for row in tests]
        by_channel.append({"channel": channel_rows(channel), "rows": tests})
    return by_channel


def _few(row: dict[str, Any]) -> dict[str, Any]:
    step = -(-len(row["words"]) // _MOST_WORDS)
    return row | {"words": row["words"][::step], "reports": row["reports"][::step]}


def _first_label(survey: Survey) -> dict[str, str]:
    """Return the label of the first report of the first channel, for the draws of "Check this page"."""
    group = next(group for group in survey.policy.groups if group.disguised)
    by_name = {question.name: question for question in survey.questions}
    if group.response is not None:
        size = min(group.response.block_classes.tolist())
        block = group.response.block_classes.tolist().index(size)
        if block >= len(group.response.by_cells):
            return {}
        members = [place for place in group.response.by_cells[block].tolist() if place < len(group.names)]
        asked = [by_name[group.names[place]] for place in members]
        return {language: " · ".join(q.answers[language][0] for q in asked) for language in survey.languages}
    codes = np.unravel_index(int(group.matrix_channel.outcomes[0, 0]), group.report_sizes)
    columns = {column["name"]: column["labels"] for column in _columns(survey)}
    return {
        language: " · ".join(
            columns[name][language][code] for name, code in zip(group.reports, codes, strict=True)
        )
        for language in survey.languages
    }


def _source(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
