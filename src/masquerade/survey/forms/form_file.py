"""A form of another program, by its file's ending."""

from __future__ import annotations

from pathlib import Path

from masquerade.core.errors import InputError
from masquerade.survey.forms import surveyjs, xlsform
from masquerade.survey.forms.questionnaire import Questionnaire


def read_questionnaire(path: str | Path) -> Questionnaire:
    """Return the questionnaire in an XLSForm (.xlsx) or a SurveyJS form (.json)."""
    readers = {".xlsx": xlsform.read, ".json": surveyjs.read}
    reader = readers.get(Path(path).suffix.lower())
    if reader is None:
        raise InputError(f"{path}: must be an XLSForm (.xlsx) or a SurveyJS form (.json).")
    try:
        return reader(Path(path))
    except InputError as error:
        told = str(error)
        raise InputError(told if told.startswith(f"{path}:") else f"{path}: {told}") from None
