"""A folder for another survey tool: what every package has, and the choice of the tool.

Every package contains the survey, its policy, and `responses.json`, which states how the tool stores reports:
`responses` needs it to read the tool's own export.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.packages import limesurvey, odk, surveyjs
from masquerade.survey.packages.common import POLICY, RESPONSES, SURVEY, TOOLS, json_bytes

BUILDERS: Final[dict[str, Callable[[Survey], tuple[dict[str, bytes], dict[str, Any], list[str]]]]] = {
    "limesurvey": limesurvey.build,
    "surveyjs": surveyjs.build,
    "odk": odk.build,
}


@dataclass(frozen=True)
class ToolPackage:
    """The files of a package by name, and remarks on what differs from masquerade's own page."""

    files: Mapping[str, bytes]
    remarks: tuple[str, ...] = ()

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write all files into a folder, which is created if necessary; each write is atomic."""
        place = Path(folder)
        existing = [name for name in self.files if (place / name).exists()]
        if existing and not overwrite:
            raise FileError(f"{place / existing[0]}: exists already; --overwrite replaces it.")
        for name, content in self.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(place / name, content)


def build_package(survey: Survey, tool: str) -> ToolPackage:
    """Build the package of a survey for another survey tool.

    Parameters
    ----------
    survey : Survey
        Survey to package.
    tool : str
        ``"limesurvey"``: a theme that disguises in the browser, and the survey to import. ``"surveyjs"``: a
        form, a page and a module that sends reports to a collector. ``"odk"``: an XLSForm for interviewers,
        with printed sheets for the respondents' draws.

    Returns
    -------
    ToolPackage
        Files by name, and remarks.

    Raises
    ------
    InputError
        If the tool cannot conduct this survey. The message states why.

    Examples
    --------
    >>> build_package(Survey.load("survey.yaml"), "surveyjs").write("package")  # doctest: +SKIP
    """
    builder = BUILDERS.get(tool)
    if builder is None:
        raise InputError(f"The tool must be one of {', '.join(TOOLS)}. Got {tool!r} instead.")
    contents, responses, remarks = builder(survey)
    responses = {"masquerade_package": 1, "tool": tool, "policy": survey.policy.id} | responses
    values = survey.spec.model_dump(exclude_unset=True, by_alias=True) | {"policy": POLICY}
    common = {
        SURVEY: yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=110).encode(),
        POLICY: (json.dumps(survey.policy.to_dict(), indent=1, ensure_ascii=False) + "\n").encode(),
        RESPONSES: json_bytes(responses),
    }
    return ToolPackage(contents | common, (*remarks, *_common_remarks(survey, tool)))


def _common_remarks(survey: Survey, tool: str) -> list[str]:
    """Return remarks on the parts of the survey file that the package changes or omits."""
    remarks = []
    if survey.spec.agree is not None and tool != "surveyjs":
        remarks.append("the box to agree is not included: ask for consent in the tool itself.")
    if survey.spec.screening is not None:
        remarks.append("the screening question is not included: ask it in the tool, before these questions.")
    shaped = [question.name for question in survey.questions if question.number is not None]
    if shaped:
        remarks.append(f"{', '.join(shaped)}: asked as ranges to choose from, not as a number.")
    if survey.free_texts:
        names = ", ".join(it.name for it in survey.free_texts)
        remarks.append(f"{names}: free text is not included: ask it in the tool, which stores it as written.")
    if survey.spec.order == "random":
        remarks.append("questions are in the order of the file, not in a random order.")
    return remarks
