"""`masquerade survey`: a page that disguises in the respondent's browser, and its collector."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from contextlib import AbstractContextManager
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from masquerade.cli.options import Folder, Json, Overwrite, argument, flag, group, option, required
from masquerade.cli.output import check_target, emit, plain_table, render, say
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import counted

if TYPE_CHECKING:
    from masquerade.survey.collector.settings import SurveySettings
    from masquerade.survey.collector.store import SurveyStore

survey_app = group(
    "Ask a sensitive question: the respondent's own browser disguises the answer before it leaves."
)

LOCAL, PORT = "127.0.0.1", 8765

SurveyFile = Annotated[Path, argument("The survey file (YAML).", "SURVEY")]
Settings = Annotated[Path, argument("The settings of the collector (YAML).", "SETTINGS")]


@survey_app.command("init")
def init(
    folder: Folder,
    *,
    address: Annotated[
        str, option("Where pages will reach the collector, without a path.", "URL", "--collector")
    ] = f"http://{LOCAL}:{PORT}",
    invited: Annotated[
        bool,
        flag("Only invited people may answer, each once, by blind tokens; makes their key.", "--invited"),
    ] = False,
    source: Annotated[
        Path | None,
        option("Ask what this form asks: an XLSForm (.xlsx) or SurveyJS (.json).", "FILE", "--from"),
    ] = None,
) -> None:
    """Write a survey to begin with: policy.yaml, survey.yaml and collector.yaml.

    Of another program's form what cannot be asked is listed, and every question is disguised with γ = 3.
    Example: masquerade survey init work --from form.xlsx --collector https://survey.example.org
    """
    from masquerade.survey.collector.example import write_example  # noqa: PLC0415  (loads the web client)
    from masquerade.survey.forms.form_file import read_questionnaire  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    form = None if source is None else read_questionnaire(source)
    write_example(folder, address, invited=invited, questionnaire=form)
    Survey.load(folder / "survey.yaml")
    if form is not None:
        for line in form.left_out:
            say(f"not as in {source}: {line}")
        say(f"{counted(len(form.questions), 'question')} of {source}, each disguised with γ = 3.")
    say(
        f"wrote a survey into {folder}: edit policy.yaml and survey.yaml, try it with masquerade survey demo "
        f"{folder / 'survey.yaml'}, then masquerade survey serve {folder / 'collector.yaml'}."
    )


@survey_app.command("build")
def build_page(
    survey: SurveyFile,
    *,
    out: Annotated[
        Path, required("The folder for the page and what is printed.", "--out", "-o", metavar="FOLDER")
    ],
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Build the page, which stands alone, with its sha256, letter, sheets and vectors.

    The same file gives the same bytes everywhere. Example: masquerade survey build survey.yaml --out page
    """
    from masquerade.survey import Survey, build  # noqa: PLC0415

    built = build(Survey.load(survey))
    there = [name for name in built.files if (out / name).exists()]
    if there and not overwrite:
        raise FileError(f"{out / there[0]}: exists already; --overwrite replaces it.")
    built.write(out)
    if json:
        emit({"sha256": built.digest, "files": {name: len(content) for name, content in built.files.items()}})
        return
    emit(f"{built.digest}  survey.html\n")
    say(f"wrote {counted(len(built.files), 'file')} into {out}; its sha256 is above, to be published.")


@survey_app.command("serve")
def serve(settings: Settings) -> None:
    """Serve the page and collect its reports until told to stop; it may be started again at any time.

    Example: masquerade survey serve collector.yaml
    """
    from masquerade.survey.collector.collector import SurveyCollector  # noqa: PLC0415

    SurveyCollector(collector_settings(settings)).serve(say)


@survey_app.command("invite")
def invite(
    settings: Settings,
    *,
    number: Annotated[int, option("How many invitations.", None, "--n", min=1)] = 1,
    out: Annotated[
        str | None, option("Write the links to this file, one a line.", "FILE", "--out", "-o")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make links for so many people; each admits one, and no link can be joined with what was answered.

    Example: masquerade survey invite collector.yaml --n 500 --out links.txt
    """
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    if survey.spec.issuer is None:
        raise InputError(
            "This survey is open to anybody: survey.yaml has no 'issuer'. See survey init --invited."
        )
    check_target(out, overwrite=overwrite)
    with _store(settings) as store:
        codes = store.invite(number)
    lines = "".join(f"{survey.spec.collector}/#{code}\n" for code in codes)
    emit(lines, out, overwrite=overwrite)
    if out is not None:
        say(f"wrote {counted(number, 'link')} to {out}: send each to one person, and keep no copy.")


@survey_app.command("status")
def status(settings: Settings, *, json: Json = False) -> None:
    """Show how many reports there are, and estimated shares with 95% intervals.

    While the survey is open the running collector is asked, and its numbers move in batches.
    Example: masquerade survey status collector.yaml
    """
    from masquerade.services.common.problems import PartyUnreachable  # noqa: PLC0415
    from masquerade.survey.collector.collector import open_store  # noqa: PLC0415  (loads the web server)
    from masquerade.survey.collector.collector_client import fetch_figures  # noqa: PLC0415
    from masquerade.survey.collector.figures import figures, show_all, show_nothing  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    with open_store(chosen, survey) as store:
        source = show_nothing(store, chosen.batch) if store.closed is None else show_all(store)
        values = figures(source, survey, store.versions(), store.quotas)
    if values["closed"] is None:
        try:
            values = fetch_figures(chosen)
        except PartyUnreachable as error:
            say(str(error))
    emit(values if json else _shown(values))


@survey_app.command("close")
def close(
    settings: Settings,
    *,
    erase: Annotated[
        bool, flag("Delete all reports and invitations as well: after their time is over.", "--erase")
    ] = False,
    json: Json = False,
) -> None:
    """Close the survey for good: no report is taken any more, and none withdrawn.

    Example: masquerade survey close collector.yaml
    """
    from masquerade.survey.collector.store import today  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    promised = Survey.load(collector_settings(settings).survey).spec.closes
    if promised is not None and today() <= promised:
        say(f"warning: the page says that people may withdraw until {promised}; from now on they cannot.")
    with _store(settings) as store:
        store.end()
        erased = store.erase() if erase else 0
        counts = store.counts()
    if json:
        emit({"closed": counts["closed"], "reports": counts["reports"], "erased": erased})
        return
    gone = (
        f"; {counted(erased, 'report')} deleted" if erase else f" with {counted(counts['reports'], 'report')}"
    )
    say(f"closed on {counts['closed']}{gone}.")


@survey_app.command("export")
def export_reports(
    settings: Settings,
    *,
    out: Annotated[str, required("Where to: .csv, .parquet, .arrow, .sav, .dta or .xlsx.", "--out", "-o")],
    codebook: Annotated[
        Path | None, option("Write a codebook beside it (DDI Codebook 2.5, XML).", "FILE", "--codebook")
    ] = None,
    version: Annotated[
        str | None, option("Of an amended survey: the beginning of a policy's id.", "ID", "--version")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write the reports, shuffled and labelled, with their policy inside or beside the file.

    It goes straight into mq.tally, masquerade estimate and report. While the survey is open the running
    collector gives the reports of whole batches, if its settings have an export_token.
    Example: masquerade survey export collector.yaml --out reports.parquet --codebook reports.xml
    """
    from masquerade.survey.collector.collector import open_store  # noqa: PLC0415
    from masquerade.survey.collector.collector_client import fetch_reports  # noqa: PLC0415
    from masquerade.survey.collector.export import export  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    check_target(out, overwrite=overwrite)
    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    with open_store(chosen, survey) as store:
        published = fetch_reports(chosen) if store.closed is None else None
        number = export(
            store,
            out,
            version,
            survey=survey,
            codebook_to=codebook,
            overwrite=overwrite,
            published=published,
        )
    if published is not None:
        say(f"the survey is open: these are its batches of {chosen.batch} reports or more.")
    if json:
        emit({"reports": number, "out": out, "codebook": None if codebook is None else str(codebook)})
    else:
        beside = "" if codebook is None else f", and their codebook to {codebook}"
        say(f"wrote {counted(number, 'report')} to {out}{beside}.")


@survey_app.command("demo")
def demo(
    own: Annotated[
        Path | None, argument("A survey file (YAML) to try; without it an example.", "[SURVEY]")
    ] = None,
    *,
    port: Annotated[
        int | None,
        option("The port to serve at; by default 8765, or another if that is taken.", None, "--port", min=1),
    ] = None,
    people: Annotated[int, option("How many made-up people answer.", None, "--n", min=0)] = 300,
    once: Annotated[bool, flag("Stop when the made-up people have answered.", "--once")] = False,
) -> None:
    """Serve a ready example or a survey of yours, with a QR code, and let made-up people answer it.

    Nothing of it is kept. Example: masquerade survey demo work/survey.yaml
    """
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.survey.collector.collector import SurveyCollector  # noqa: PLC0415
    from masquerade.survey.collector.example import answer_as_people, write_example  # noqa: PLC0415
    from masquerade.survey.collector.settings import SurveySettings  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415
    from masquerade.survey.page.qr import in_terminal  # noqa: PLC0415

    address = f"http://{LOCAL}:{_free_port() if port is None else port}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "survey"
        write_example(folder, address, copied=None if own is None else Survey.load(own))
        values = {
            **load(folder / "collector.yaml", SurveySettings).model_dump(),
            "limits": {"per_minute": 10**9},
        }
        collector = SurveyCollector(SurveySettings.model_validate(values))
        token = (folder / "team.token").read_text().strip()
        failures: list[Exception] = []

        def filled() -> None:
            try:
                answer_as_people(collector.survey, address, people)
                if once:
                    collector.store.end()
                collector.publish()
                emit(_shown(loads(collector.publication.figures_json)))
            except Exception as error:  # noqa: BLE001  (raised again when the service has ended)
                failures.append(error)
            if once or failures:
                os.kill(os.getpid(), signal.SIGINT)

        def announced(line: str) -> None:
            if "listens at" in line:
                emit(f"{in_terminal(address + '/')}Answer at {address}/ and see what comes in at "
                     f"{address}/team#{token}\nCtrl-C ends it; nothing is kept.\n")  # fmt: skip
                threading.Thread(target=filled, daemon=True).start()

        collector.serve(announced)
        if failures:
            raise failures[0]


def collector_settings(file: Path) -> SurveySettings:
    """Return the settings of a collector, after checking all of them."""
    from masquerade.cli.nodes import checked  # noqa: PLC0415  (loads what devices have no room for)

    found: SurveySettings = checked(file, "survey")
    return found


def _free_port() -> int:
    """Return the usual port of the demo, or another if somebody has it."""
    from masquerade.services.common.example_deployment import free_ports  # noqa: PLC0415

    try:
        with socket.create_server((LOCAL, PORT)):
            return PORT
    except OSError:
        return free_ports(["survey"])["survey"]


def _store(settings: Path) -> AbstractContextManager[SurveyStore]:
    from masquerade.survey.collector.store import SurveyStore  # noqa: PLC0415

    chosen = collector_settings(settings)
    return SurveyStore(chosen.place, chosen.invitations, chosen.accept)


def _shown(found: dict[str, Any]) -> str:
    state = f"closed on {found['closed']}" if found["closed"] else "open"
    batch = found["batch"]
    if found["reports"] is None:
        number = f"no whole batch of {batch} reports yet"
    else:
        number = counted(found["reports"], "report") + (f" in batches of {batch} or more" if batch else "")
    used = "" if found["begun"] is None else f", {found['begun']:,} used"
    invited = f", {counted(found['invited'], 'invitation')}{used}" if found["invited"] else ""
    withdrawn = f", {found['withdrawn']:,} withdrawn" if found["withdrawn"] else ""
    parts: list[Any] = [f"{found['title']}: {number}{withdrawn}{invited}; {state}."]
    for it in found["quotas"]:
        reached = f"{it['most']:,} at most" if it["count"] is None else f"{it['count']:,} of {it['most']:,}"
        parts.append(f"quota {it['variable']} = {it['answer']}: {reached}; {it['meaning']}")
    for version in found["estimates"]:
        if len(found["estimates"]) > 1:
            pooled = version["policy"] == "pooled"
            parts.append("all versions together" if pooled else f"version {version['policy'][:12]}")
        for question in version["questions"]:
            table = plain_table(question["text"], ["answer"], ["share", "95% interval"])
            for it in question.get("shares", []):
                table.add_row(it["answer"], f"{it['share']:.1%}", f"{it['low']:.1%} to {it['high']:.1%}")
            parts.append(question.get("refused", table))
            if question.get("doubt") is not None:
                parts.append(
                    f"warning: these reports hardly come from this policy (p = {question['doubt']:.2g}): "
                    "inattention, or made-up reports?"
                )
    ends = [
        it[end]
        for version in found["estimates"]
        for question in version["questions"]
        for it in question.get("shares", [])
        for end in ("low", "high")
    ]
    if ends and (min(ends) < 0 or max(ends) > 1):
        parts.append("(below 0% or above 100%: unbiased, and says that the truth is near that end)")
    return render(*parts)
