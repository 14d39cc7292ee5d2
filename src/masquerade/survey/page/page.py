"""Building a survey: one page that stands alone, and what is printed, checked and published beside it.

The same survey file gives the same bytes everywhere: nothing of the time, the machine or chance goes in.
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

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.util.atomic import write_whole
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.consequences import surest_of, surest_of_all
from masquerade.survey.page.mechanism import channel_rows, mechanism, vectors
from masquerade.survey.page.paper import letter, sheets
from masquerade.survey.page.script_text import asset, compact_style, script_of

PAGE: Final = "survey.html"
WORKER: Final = "service-worker.js"
PRINTED: Final = ("check_letter", "noscript", "sheet_")  # texts that no script needs
LEAST_BODY: Final = 512
STEP: Final = 256
_MOST_WORDS: Final = 8  # of a row, among the vectors in the page
_MOST_CHANNELS: Final = 3
_TOKEN_DIGITS: Final = 192  # 32 bytes of input and 64 of output


@dataclass(frozen=True)
class Built:
    """The files of a survey by name, and the sha256 of the page."""

    files: Mapping[str, bytes]
    digest: str

    def write(self, folder: str | Path) -> None:
        """Write all files into a folder, made if it is not there; each appears whole."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            write_whole(place / name, content)


def build(survey: Survey) -> Built:
    """Return everything that a survey is made of.

    >>> sorted(build(Survey.load("survey.yaml")).files)  # doctest: +SKIP
    ['letter.html', 'manifest.json', 'masquerade.js', 'mechanism.json', 'policy.json', ...]
    """
    page = page_of(survey).encode()
    digest = hashlib.sha256(page).hexdigest()
    worker = asset(WORKER).replace("%PAGE%", PAGE).replace("%DIGEST%", digest)
    found = {
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
    found["manifest.json"] = _json(
        {
            "masquerade_survey": 1,
            "policy": survey.policy.id,
            "start": PAGE,
            "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(found.items())},
        }
    )
    return Built(found, digest)


def page_of(survey: Survey) -> str:
    """Return the page: markup, style, script and survey in one, fixed by hashes in its content policy."""
    further = {"tokens.js": survey.spec.issuer is not None, "qr.js": survey.spec.panel}
    parts = ["masquerade.js", *(name for name, needed in further.items() if needed), "page.js"]
    script = script_of(parts, page_values(survey))
    style = compact_style(asset("page.css"))
    first = survey.languages[0]
    page = (
        f'<!doctype html>\n<html lang="{first}"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="%POLICY%">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
        f"<title>{escape(survey.text(survey.spec.title)[first])}</title><style>{style}</style></head>\n"
        '<body><header id="head"></header><main id="main"><noscript>'
        f"<p>{escape(survey.words[first]['noscript'])}</p></noscript></main>"
        f'<footer><div id="queue" role="status"></div></footer>\n<script>{script}</script></body></html>\n'
    )
    policy = content_policy(page, f"connect-src {survey.spec.collector}", "worker-src 'self'")
    return page.replace("%POLICY%", policy, 1)


def content_policy(page: str, *more: str) -> str:
    """Return the content policy of a page with one style and one script, which are fixed by their hashes."""
    style, script = (
        page[page.index(f"<{tag}>") + len(tag) + 2 : page.index(f"</{tag}>")] for tag in ("style", "script")
    )
    sources = ["default-src 'none'", f"script-src {_source(script)}", f"style-src {_source(style)}", *more]
    return "; ".join([*sources, "form-action 'none'", "base-uri 'none'"])


def page_values(survey: Survey) -> dict[str, Any]:
    """Return what the page knows of its survey: nothing that is not the same for everybody."""
    spec, policy = survey.spec, survey.policy
    own = _vectors(policy, words=1, rows=2)[:_MOST_CHANNELS]
    columns = _columns(survey)
    bounds = surest_of(policy)
    return {
        "id": survey_id(survey),
        "policy": policy.id,
        "collector": spec.collector,
        "languages": list(spec.languages),
        "title": survey.text(spec.title),
        "contact": survey.text(spec.contact),
        "consent": survey.text(spec.consent),
        "closes": spec.closes,
        "deleted": spec.delete_after,
        "panel": spec.panel,
        "clear": len(policy.disguised) < len(policy.schema),
        "bound": surest_of_all(policy),
        "own": spec.own_chance,
        "issuer": spec.issuer,
        "order": spec.order,
        "questions": [
            {"name": q.name, "text": q.text, "help": q.help, "answers": q.answers, "shown": q.shown,
             "notAsked": q.not_asked, "bound": bounds[q.name]}
            for q in survey.questions
        ],
        "mechanism": mechanism(policy),
        "columns": columns,
        "words": {
            language: {name: text for name, text in own.items() if not name.startswith(PRINTED)}
            for language, own in survey.words.items()
        },
        "vectors": own,
        "firstLabel": _first_label(policy, columns),
        "size": body_size(survey),
    }  # fmt: skip


def _for_others(survey: Survey) -> dict[str, Any]:
    """Return what another survey tool needs beside `masquerade.js` to draw and to send."""
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
    }


def survey_id(survey: Survey) -> str:
    """Return a name for what a page keeps on a device: of this survey under this policy at this collector."""
    text = json.dumps([survey.policy.id, survey.spec.collector, survey.spec.issuer])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def body_size(survey: Survey) -> int:
    """Return the length of everything that pages of this survey send: always the same."""
    largest = [len(variable) - 1 for variable in survey.policy.observed.variables]
    body = {
        "policy": survey.policy.id,
        "id": "0" * 32,
        "mode": 0,
        "reports": largest,
        "token": "0" * _TOKEN_DIGITS,
    }
    return max(LEAST_BODY, -(-len(json.dumps(body)) // STEP) * STEP)


def _columns(survey: Survey) -> list[dict[str, Any]]:
    """Return the columns of reports with what their codes are called: as answers, where they are answers."""
    found = []
    by_name = {question.name: question for question in survey.questions}
    for variable in survey.policy.observed.variables:
        question = by_name.get(variable.name)
        if question is not None and variable.categories == survey.policy.schema[variable.name].categories:
            labels = {language: list(question.answers[language]) for language in survey.languages}
        else:
            labels = {
                language: [str(label) for label in variable.categories] for language in survey.languages
            }
        found.append({"name": variable.name, "labels": labels})
    return found


def _channels(policy: Policy) -> dict[str, Channel]:
    """Return every channel of a policy that hides something, once."""
    found: dict[str, Channel] = {}
    for label in policy.strata or (None,):
        for group in policy.groups_of(label):
            response = group.response
            if response is not None:
                sizes = sorted(set(response.block_classes.tolist()))
                found |= {f"{group.names} {size}": response.channel_of(size) for size in sizes}
            elif group.disguised:
                found.setdefault(f"{group.names} {label}", group.matrix_channel)
    return found


def _vectors(policy: Policy, words: int, rows: int | None) -> list[dict[str, Any]]:
    found = []
    for name, channel in _channels(policy).items():
        made = vectors(channel, f"{policy.id} {name}", words, rows)
        if rows is not None:  # those of the page: a few of each row, the ends of its intervals among them
            made = [_few(row) for row in made]
        found.append({"channel": channel_rows(channel), "rows": made})
    return found


def _few(row: dict[str, Any]) -> dict[str, Any]:
    step = -(-len(row["words"]) // _MOST_WORDS)
    return row | {"words": row["words"][::step], "reports": row["reports"][::step]}


def _first_label(policy: Policy, columns: list[dict[str, Any]]) -> dict[str, str]:
    """Return what the first report of the first channel is called, for the draws of the check."""
    for group in policy.groups:
        if group.disguised:
            if group.response is not None or len(group.names) > 1:
                return {}
            report = int(group.matrix_channel.outcomes[0, 0])
            labels = next(column["labels"] for column in columns if column["name"] == group.reports[0])
            return {language: own[report] for language, own in labels.items()}
    return {}


def _source(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
