"""The package for LimeSurvey: a survey to import (.lss), and a theme that disguises answers before sending.

LimeSurvey evaluates conditions again on what it receives, and would delete reports of follow-up questions. So
the survey has no conditions: the theme shows and hides questions itself.
"""

from __future__ import annotations

import json
import re
from html import escape as escape_html
from typing import Any, Final
from xml.sax.saxutils import escape

from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.packages.common import (
    check_reports_are_answers,
    check_without_tokens,
    help_text,
    question_text,
    tool_asset,
)
from masquerade.survey.page import page
from masquerade.survey.page.consequences import say_bound
from masquerade.survey.page.script_text import literal

SID: Final = "100001"  # LimeSurvey gives the survey another number if this one is taken
CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,19}")  # codes of questions in LimeSurvey
INCOMPLETE: Final = {
    "en": "Please answer every question.",
    "de": "Bitte beantworten Sie jede Frage.",
    "fr": "Veuillez répondre à toutes les questions.",
    "es": "Por favor, responda a todas las preguntas.",
}
README: Final = """\
LimeSurvey package of "{title}"

1. Copy the folder {theme} into upload/themes/survey/ of LimeSurvey, and install it: Configuration, Themes.
2. Import survey.lss: Create survey, Import. It selects the theme, one page and anonymous responses, and
   switches off the storage of times and addresses. Keep these settings: otherwise LimeSurvey also stores when
   and from where it received a response.
3. Answer it once yourself as a test, with the browser's network view open: what is sent is what was drawn.
4. Export the responses as CSV with question codes and answer codes, and write a file of reports:
   masquerade survey responses PACKAGE responses.csv --out reports.parquet

The theme extends "vanilla". Without its script nothing can be answered. Do not use the option "ajaxmode",
tokens, "save and resume later" or conditions of LimeSurvey on these questions: each would send or store true
answers. An administrator of LimeSurvey can replace the theme. Respondents can check masquerade's own page.
"""


def build(survey: Survey) -> tuple[dict[str, bytes], dict[str, Any], list[str]]:
    """Return the files, the layout of responses, and remarks."""
    check_without_tokens(survey, "LimeSurvey")
    check_reports_are_answers(survey, "LimeSurvey")
    theme = f"masquerade_{survey.policy.id[:8]}"
    codes = question_codes(survey)
    values = {name: [f"A{code + 1}" for code in range(len(survey.policy.schema[name]))] for name in codes}
    columns = [
        {
            "column": codes[name],
            "reports": [name],
            "codes": {text: [i] for i, text in enumerate(values[name])},
        }
        for name in survey.policy.observed
    ]
    title = survey.text(survey.spec.title)[survey.languages[0]]
    contents = {
        "survey.lss": survey_structure(survey, theme, codes).encode(),
        f"{theme}/config.xml": _config(survey, theme).encode(),
        f"{theme}/scripts/masquerade.js": _script(survey, values).encode(),
        f"{theme}/css/masquerade.css": tool_asset("limesurvey.css").encode(),
        "README.txt": README.format(title=title, theme=theme).encode(),
    }
    remarks = [
        f"{name}: is called {code} in LimeSurvey, which takes letters and digits only."
        for name, code in codes.items()
        if name != code
    ]
    return contents, {"columns": columns, "mode": "device"}, remarks


def question_codes(survey: Survey) -> dict[str, str]:
    """Return the code of each question in LimeSurvey: its name, or a number."""
    return {
        question.name: question.name if CODE.fullmatch(question.name) else f"Q{number}"
        for number, question in enumerate(survey.questions, start=1)
    }


def _script(survey: Survey, values: dict[str, list[str]]) -> str:
    """Return the sampler, the questions and the theme's own script as one script without modules."""
    built = page.build(survey).files
    sampler = re.sub(r"^export ", "", built["masquerade.js"].decode(), flags=re.MULTILINE)
    columns = list(survey.policy.observed)
    settings = {
        "mechanism": json.loads(built["mechanism.json"])["mechanism"],
        "incomplete": INCOMPLETE,
        "questions": [
            {
                "name": question.name,
                "box": f"masquerade-q{number}",
                "values": values[question.name],
                "column": columns.index(question.name),
                "shown": dict(question.shown),
                "notAsked": question.not_asked,
                "notOffered": list(question.not_offered),
            }
            for number, question in enumerate(survey.questions, start=1)
        ],
    }
    parts = ['"use strict";', "(() => {", sampler, f"const S = {literal(settings)};"]
    return "\n".join([*parts, tool_asset("limesurvey.js"), "})();", ""])


def _config(survey: Survey, theme: str) -> str:
    title = escape(survey.text(survey.spec.title)[survey.languages[0]])
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<config>
  <metadata>
    <name>{theme}</name>
    <title>masquerade: {title}</title>
    <type>theme</type>
    <author>masquerade</author>
    <license>Apache-2.0</license>
    <version>1.0.0</version>
    <apiVersion>3.0</apiVersion>
    <description>Disguises answers in the browser, by the policy {survey.policy.id[:12]}.</description>
    <extends>vanilla</extends>
  </metadata>
  <compatibility><version>7.0</version><version>6.0</version><version>5.0</version></compatibility>
  <files>
    <css><add>css/masquerade.css</add></css>
    <js><add>scripts/masquerade.js</add></js>
  </files>
  <options><ajaxmode>off</ajaxmode></options>
  <engine>
    <optionspage>core</optionspage>
    <viewdirectory>views</viewdirectory>
    <filesdirectory>files</filesdirectory>
  </engine>
</config>
"""


def survey_structure(survey: Survey, theme: str, codes: dict[str, str]) -> str:
    """Return the survey as LimeSurvey imports it: mandatory lists of answers on one page."""
    languages, spec = survey.languages, survey.spec
    title, consent, contact = (survey.text(one) for one in (spec.title, spec.consent, spec.contact))
    settings = {
        "sid": SID, "gsid": "1", "active": "N", "language": languages[0],
        "additional_languages": " ".join(languages[1:]), "template": theme, "format": "A",
        "anonymized": "Y", "savetimings": "N", "datestamp": "N", "ipaddr": "N", "refurl": "N",
        "allowprev": "N", "allowsave": "N", "publicstatistics": "N", "printanswers": "N", "showwelcome": "Y",
    }  # fmt: skip
    tables: dict[str, list[dict[str, str]]] = {
        "answers": [], "answer_l10ns": [],
        "groups": [{"gid": "1", "sid": SID, "group_order": "1", "randomization_group": "", "grelevance": ""}],
        "group_l10ns": [
            {"id": str(number), "gid": "1", "group_name": title[it], "description": "", "language": it}
            for number, it in enumerate(languages, start=1)
        ],
        "questions": [], "question_l10ns": [], "question_attributes": [],
        "surveys": [settings],
        "surveys_languagesettings": [
            {
                "surveyls_survey_id": SID,
                "surveyls_language": it,
                "surveyls_title": title[it],
                "surveyls_welcometext": _html(
                    "\n\n".join((consent[it], " ".join(say_bound(survey, it)), contact[it]))
                ),
            }
            for it in languages
        ],
    }  # fmt: skip
    for number, question in enumerate(survey.questions, start=1):
        qid = str(number)
        tables["questions"].append(
            {
                "qid": qid, "parent_qid": "0", "sid": SID, "gid": "1", "type": "L",
                "title": codes[question.name], "other": "N", "mandatory": "Y", "question_order": qid,
                "scale_id": "0", "same_default": "0", "relevance": "1",
            }
        )  # fmt: skip
        tables["question_attributes"].append(
            {"qid": qid, "attribute": "cssclass", "value": f"masquerade-q{number}", "language": ""}
        )
        for it in languages:
            helped = help_text(survey, question, it)
            tables["question_l10ns"].append(
                {
                    "id": str(len(tables["question_l10ns"]) + 1), "qid": qid,
                    "question": _html(question_text(question, it)), "help": _html(helped), "language": it,
                }
            )  # fmt: skip
        for code in range(len(survey.policy.schema[question.name])):
            aid = str(len(tables["answers"]) + 1)
            tables["answers"].append(
                {
                    "aid": aid, "qid": qid, "code": f"A{code + 1}", "sortorder": str(code + 1),
                    "assessment_value": "0", "scale_id": "0",
                }
            )  # fmt: skip
            for it in languages:
                tables["answer_l10ns"].append(
                    {
                        "id": str(len(tables["answer_l10ns"]) + 1), "aid": aid,
                        "answer": escape_html(question.answers[it][code]), "language": it,
                    }
                )  # fmt: skip
    listed = "".join(f"  <language>{escape(it)}</language>\n" for it in languages)
    body = "".join(_table(name, rows) for name, rows in tables.items())
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<document>\n <LimeSurveyDocType>Survey</LimeSurveyDocType>\n'
        f" <DBVersion>623</DBVersion>\n <languages>\n{listed} </languages>\n{body}</document>\n"
    )


def _table(name: str, rows: list[dict[str, str]]) -> str:
    fields = "".join(f"   <fieldname>{key}</fieldname>\n" for key in rows[0])
    lines = "".join(
        "   <row>\n"
        + "".join(f"    <{key}>{escape(text)}</{key}>\n" for key, text in row.items())
        + "   </row>\n"
        for row in rows
    )
    return f" <{name}>\n  <fields>\n{fields}  </fields>\n  <rows>\n{lines}  </rows>\n </{name}>\n"


def _html(text: str) -> str:
    """Return a text as HTML; braces are separated, since LimeSurvey runs expressions in them."""
    safe = escape_html(text.strip()).replace("{", "{ ").replace("}", " }")
    return safe.replace("\n\n", "<br/><br/>").replace("\n", "<br/>")
