"""The package for SurveyJS: a form, a page, and a module that disguises on completion."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from masquerade.core.util.formatting import category_text
from masquerade.survey.forms.information import consent_digest
from masquerade.survey.forms.survey_file import Survey, SurveyQuestion
from masquerade.survey.packages.common import (
    check_without_tokens,
    help_text,
    json_bytes,
    offered_codes,
    question_text,
    tool_asset,
)
from masquerade.survey.page import page
from masquerade.survey.page.consequences import say_bound

AGREED: Final = "masquerade_agreed"  # the name of the box to tick, whose value is not sent
README: Final = """\
SurveyJS package of "{title}"

1. Copy from the npm packages survey-core and survey-js-ui into a folder `vendor`:
   survey.core.min.js, survey.i18n.min.js, survey-core.fontless.min.css, survey-js-ui.min.js.
   (The style sheet with fonts would load them from a third party; the page allows no such address.)
2. Serve this folder over HTTPS, and run the collector ({collector}): masquerade survey serve collector.yaml.
3. In a page of your own, use masquerade-surveyjs.js as index.html does, with your own renderer of SurveyJS.

Answers are disguised when the form is completed; only reports leave the browser. Switch off what SurveyJS can
store or send before that: storeDataInLocalStorage, surveyPostId, onPartialSend, file uploads, analytics.
masquerade's own page can also be checked, shows what was sent, and offers to withdraw; this page does not.
"""


def build(survey: Survey) -> tuple[dict[str, bytes], dict[str, Any], list[str]]:
    """Return the files, the layout of responses, and remarks."""
    check_without_tokens(survey, "SurveyJS")
    built = page.build(survey).files
    first = survey.languages[0]
    title = survey.text(survey.spec.title)
    settings = json.loads(built["mechanism.json"]) | {
        "collector": survey.spec.collector,
        "languages": list(survey.languages),
        "agreed": consent_digest(survey.spec),
        "questions": [
            {"name": question.name, "shown": dict(question.shown), "notAsked": question.not_asked}
            for question in survey.questions
        ],
    }
    index = tool_asset("surveyjs.html").replace("%LANGUAGE%", first).replace("%TITLE%", escape(title[first]))
    script = re.search(r'<script type="module">(.*?)</script>', index, re.DOTALL)
    digest = hashlib.sha256(b"" if script is None else script[1].encode()).digest()
    allowed = f"sha256-{base64.b64encode(digest).decode()}"
    index = index.replace("%SCRIPT%", allowed).replace("%COLLECTOR%", survey.spec.collector)
    contents = {
        "index.html": index.encode(),
        "form.json": json_bytes(form_values(survey)),
        "mechanism.json": json_bytes(settings),
        "masquerade.js": built["masquerade.js"],
        "masquerade-surveyjs.js": tool_asset("surveyjs.js").encode(),
        "README.txt": README.format(title=title[first], collector=survey.spec.collector).encode(),
    }
    return contents, {"columns": []}, []


def form_values(survey: Survey) -> dict[str, Any]:
    """Return the survey as a SurveyJS form, in all languages."""
    spec = survey.spec
    elements: list[dict[str, Any]] = [
        {"type": "html", "name": "masquerade_consent", "html": _texts(survey, _as_html(survey))}
    ]
    if spec.agree is not None:
        box = {"value": "yes", "text": _texts(survey, survey.text(spec.agree))}
        hidden = {"type": "checkbox", "name": AGREED, "titleLocation": "hidden", "isRequired": True}
        elements.append({**hidden, "choices": [box]})
    pages = [{"name": "consent", "elements": elements}]
    pages += [
        {"name": f"page{number}", "elements": [_element(survey, question)]}
        for number, question in enumerate(survey.questions, start=1)
    ]
    return {
        "title": _texts(survey, survey.text(spec.title)),
        "locale": survey.languages[0],
        "showProgressBar": True,
        "clearInvisibleValues": "onHidden",
        "pages": pages,
    }


def _element(survey: Survey, question: SurveyQuestion) -> dict[str, Any]:
    categories = [category_text(label) for label in survey.policy.schema[question.name].categories]
    choices = [
        {
            "value": categories[code],
            "text": _texts(survey, {it: question.answers[it][code] for it in survey.languages}),
        }
        for code in offered_codes(question)
    ]
    element: dict[str, Any] = {
        "type": "radiogroup",
        "name": question.name,
        "title": _texts(survey, {it: question_text(question, it) for it in survey.languages}),
        "isRequired": True,
        "choices": choices,
    }
    helped = {it: help_text(survey, question, it) for it in survey.languages}
    if any(helped.values()):
        element["description"] = _texts(survey, helped)
    if question.shown:
        element["visibleIf"] = " and ".join(
            f"{{{name}}} anyof {_format_list(survey, name, codes)}" for name, codes in question.shown.items()
        )
    return element


def _format_list(survey: Survey, name: str, codes: tuple[int, ...]) -> str:
    labels = [category_text(survey.policy.schema[name].categories[code]) for code in codes]
    return "[" + ", ".join("'" + label.replace("'", "\\'") + "'" for label in labels) + "]"


def _texts(survey: Survey, texts: Mapping[str, str]) -> Any:
    """Return a text as SurveyJS has it: one, or one per language with the first as the default."""
    first, *others = survey.languages
    if not others:
        return texts[first]
    return {"default": texts[first]} | {language: texts[language] for language in survey.languages}


def _as_html(survey: Survey) -> dict[str, str]:
    """Return consent, bound and contact as paragraphs."""
    consent, contact = survey.text(survey.spec.consent), survey.text(survey.spec.contact)
    texts = {}
    for language in survey.languages:
        parts = [*consent[language].split("\n\n"), *say_bound(survey, language), contact[language]]
        texts[language] = "".join(f"<p>{escape(part.strip())}</p>" for part in parts if part.strip())
    return texts
