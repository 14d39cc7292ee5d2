"""A survey as LimeSurvey exports it, in the layout of version 3 and of version 6."""

from __future__ import annotations

from xml.sax.saxutils import escape

TEXTS = {
    "smokes": ("Do you <b>smoke</b>?", "Rauchen Sie?"),
    "often": ("How often?<br/>On average", "Wie oft?"),
    "feel": ("How do you feel", "Wie geht es Ihnen"),
    "SQ001": ("in the morning", "morgens"),
    "SQ002": ("at night", "nachts"),
    "when": ("When do you smoke?", "Wann rauchen Sie?"),
    "work": ("At work", "Bei der Arbeit"),
    "age": ("How old are you?", "Wie alt sind Sie?"),
    "told": ("Has {TOKEN:FIRSTNAME} told anybody?", "Jemandem gesagt?"),
    "rate": ("Rate it", "Bewerten Sie"),
    "weight": ("What do you weigh?", "Was wiegen Sie?"),
}
# qid, parent, group, type, code, order, relevance, other
QUESTIONS = [
    ("5", "0", "2", "L", "told", "1", '((smokes.NAOK == "Y") or (often.NAOK == "A2"))', "N"),
    ("1", "0", "1", "Y", "smokes", "1", "1", "N"),
    ("2", "0", "1", "L", "often", "2", '((123456X1X1.NAOK == "Y"))', "Y"),
    ("3", "0", "1", "F", "feel", "3", 'often.NAOK != "A1" && smokes == "Y"', "N"),
    ("4", "0", "1", "M", "when", "4", "1", "N"),
    ("6", "0", "2", "N", "age", "2", "1", "N"),
    ("7", "0", "2", "X", "hello", "3", "1", "N"),
    ("8", "0", "2", "5", "rate", "4", "", "N"),
    ("9", "0", "2", "N", "weight", "5", "1", "N"),
    ("10", "0", "2", "T", "remarks", "6", "1", "N"),
]
SUBQUESTIONS = [
    ("32", "3", "1", "T", "SQ002", "2", "1", "N"),
    ("31", "3", "1", "T", "SQ001", "1", "1", "N"),
    ("41", "4", "1", "T", "work", "1", "1", "N"),
]
ANSWERS = {
    "2": {"A1": ("Daily", "Täglich"), "A2": ("Weekly", "Wöchentlich"), "A3": ("Rarely", "Selten")},
    "3": {"G": ("Good", "Gut"), "B": ("Bad", "Schlecht")},
    "5": {"Y": ("Yes", "Ja"), "N": ("No", "Nein"), "-99": ("No answer", "Keine Angabe")},
}
NAMES = ("qid", "parent_qid", "gid", "type", "title", "question_order", "relevance", "other")
LANGUAGES = ("en", "de-informal")


def limesurvey_file(*, localized: bool, group_condition: str = "1", most: int = 10) -> str:
    """Return the text of an .lss file; `localized` with texts in tables of their own (LimeSurvey 4 on)."""
    questions = QUESTIONS[:most]
    limits = {"min_num_value_n": "16", "max_num_value_n": "99"}
    tables: dict[str, list[dict[str, str]]] = {
        "question_attributes": [
            {"qid": "9", "attribute": name, "value": value, "language": ""} for name, value in limits.items()
        ],
        "surveys": [{"sid": "123456", "language": "en", "format": "G"}],
        "surveys_languagesettings": [
            {"surveyls_language": language, "surveyls_title": title}
            for language, title in zip(LANGUAGES, ("Smoking", "Rauchen"), strict=True)
        ],
        "groups": [
            {"gid": "2", "group_order": "2", "grelevance": group_condition},
            {"gid": "1", "group_order": "1", "grelevance": ""},
        ],
    }
    for table, rows in (("questions", questions), ("subquestions", SUBQUESTIONS)):
        for values in rows:
            row = dict(zip(NAMES, values, strict=True))
            texts = TEXTS.get(row["title"], ("Hello", "Hallo"))
            if localized:
                tables.setdefault(table, []).append(row)
                tables.setdefault("question_l10ns", []).extend(
                    {"qid": row["qid"], "question": text, "help": "", "language": language}
                    for language, text in zip(LANGUAGES, texts, strict=True)
                )
            else:
                tables.setdefault(table, []).extend(
                    row | {"question": text, "language": language}
                    for language, text in zip(LANGUAGES, texts, strict=True)
                )
    number = 0
    for qid, answers in ANSWERS.items():
        for place, (code, texts) in enumerate(answers.items(), start=1):
            number += 1
            row = {"qid": qid, "code": code, "sortorder": str(place), "scale_id": "0"}
            each = [
                {"answer": text, "language": language}
                for language, text in zip(LANGUAGES, texts, strict=True)
            ]
            if localized:
                tables.setdefault("answers", []).append(row | {"aid": str(number)})
                tables.setdefault("answer_l10ns", []).extend({"aid": str(number)} | one for one in each)
            else:
                tables.setdefault("answers", []).extend(row | one for one in each)
    parts = "".join(_table(name, rows) for name, rows in tables.items())
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<document>\n<LimeSurveyDocType>Survey</LimeSurveyDocType>\n'
        f"<DBVersion>{623 if localized else 366}</DBVersion>\n{parts}</document>\n"
    )


def _table(name: str, rows: list[dict[str, str]]) -> str:
    lines = "".join(
        "<row>" + "".join(f"<{key}>{escape(text)}</{key}>" for key, text in row.items()) + "</row>\n"
        for row in rows
    )
    return f"<{name}><rows>\n{lines}</rows></{name}>\n"
