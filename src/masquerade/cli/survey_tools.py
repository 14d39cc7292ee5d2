"""`masquerade survey package` and `responses`: surveys in LimeSurvey, SurveyJS and ODK."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from masquerade.cli.options import Json, Overwrite, argument, option, required_option
from masquerade.cli.output import check_target, emit, say
from masquerade.cli.record_limit import AcceptGamma, confirm_record_gamma
from masquerade.cli.survey import SurveyFile, survey_app
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import counted
from masquerade.frames.formats import offered_endings


@survey_app.command("package")
def package_survey(
    survey: SurveyFile,
    *,
    tool: Annotated[
        str,
        required_option(
            "The tool: limesurvey, surveyjs or odk (also KoBo, Enketo).", "--for", metavar="TOOL"
        ),
    ],
    out: Annotated[Path, required_option("The folder for the package.", "--out", "-o", metavar="FOLDER")],
    overwrite: Overwrite = False,
    accept_gamma: AcceptGamma = None,
    json: Json = False,
) -> None:
    """Build a package for another survey tool, which then stores or sends only reports.

    README.txt in the folder lists the next steps.

    Example: masquerade survey package survey.yaml --for limesurvey --out package
    """
    from masquerade.survey import Survey  # noqa: PLC0415
    from masquerade.survey.packages.package import build_package  # noqa: PLC0415

    loaded = Survey.load(survey)
    if not json:
        say(describe_gamma(loaded.record_gamma))
    confirm_record_gamma(loaded.policy, accept_gamma, loaded.follow_ups)
    built = build_package(loaded, tool)
    built.write(out, overwrite=overwrite)
    if json:
        emit({"tool": tool, "files": sorted(built.files), "remarks": list(built.remarks)})
        return
    for line in built.remarks:
        say(f"differs from {survey}: {line}")
    say(f"wrote {counted(len(built.files), 'file')} into {out}: README.txt has the next steps.")


@survey_app.command("responses")
def read_tool_responses(
    folder: Annotated[Path, argument("The folder of the package.", "PACKAGE")],
    source: Annotated[Path, argument("The tool's export (CSV with question and answer codes).", "EXPORT")],
    *,
    out: Annotated[str, required_option(f"Output file: {offered_endings()}.", "--out", "-o")],
    codebook: Annotated[
        Path | None, option("Also write a codebook (DDI Codebook 2.5, XML).", "FILE", "--codebook")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write the reports that LimeSurvey or ODK exported, shuffled and labelled, with their policy.

    Example: masquerade survey responses package responses.csv --out reports.parquet
    """
    from masquerade.survey.packages.responses import Responses  # noqa: PLC0415

    check_target(out, overwrite=overwrite)
    layout = Responses.load(folder)
    number, incomplete = layout.write(source, out, codebook_to=codebook, overwrite=overwrite)
    if json:
        emit({"reports": number, "incomplete": incomplete, "out": out})
        return
    if incomplete:
        say(f"{counted(incomplete, 'row')} without an answer to every question: omitted.")
    say(f"wrote {counted(number, 'report')} to {out}.")
