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

from masquerade.cli.options import Folder, Json, Overwrite, argument, flag, group, option, required_option
from masquerade.cli.output import check_target, emit, join_names, plain_table, render, say
from masquerade.cli.policy_init import Choice, limit_from_options, split_names
from masquerade.cli.record_limit import AcceptGamma, confirm_record_gamma, confirm_total
from masquerade.core.errors import FileError, InputError
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import counted
from masquerade.frames.formats import offered_endings

if TYPE_CHECKING:
    from masquerade.survey.collector.settings import SurveySettings
    from masquerade.survey.collector.store import SurveyStore
    from masquerade.survey.forms.questionnaire import Questionnaire
    from masquerade.survey.forms.survey_file import Survey

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
        str, option("Address at which pages will reach the collector, without a path.", "URL", "--collector")
    ] = f"http://{LOCAL}:{PORT}",
    invited: Annotated[
        bool,
        flag("Admit only invited people, each once, by blind tokens; creates the key.", "--invited"),
    ] = False,
    source: Annotated[
        Path | None,
        option(
            "Import an XLSForm (.xlsx), SurveyJS form (.json) or LimeSurvey survey (.lss).", "FILE", "--from"
        ),
    ] = None,
    limit: Annotated[
        str | None,
        option(
            "With --from: the most that one person may reveal; by default 5%:50%.",
            "BEFORE:AFTER",
        ),
    ] = None,
    sensitive: Annotated[
        list[str] | None,
        option("With --from: questions to disguise, NAME or A,B,C; by default all.", "NAMES"),
    ] = None,
    clear: Annotated[
        list[str] | None,
        option("With --from: questions that are not sensitive and are sent in clear.", "NAMES"),
    ] = None,
    count: Annotated[
        str | None,
        option("With --from: tables to count, such as singles; by default 'singles, pairs'.", "TABLES"),
    ] = None,
    people: Annotated[
        int | None,
        option("With --from: number of people who will answer; by default 1,500.", "N", min=1),
    ] = None,
) -> None:
    """Write a survey to start from: policy.yaml, survey.yaml and collector.yaml.

    The policy limits what all answers of one person may reveal, divides this limit among the sensitive
    questions, and states the cost. Parts of an imported form that cannot be asked are listed.
    Example: masquerade survey init work --from form.xlsx --clear age --people 2000
    """
    from masquerade.cli.survey_init import draft_questionnaire  # noqa: PLC0415
    from masquerade.survey.collector.example import write_example  # noqa: PLC0415  (loads the web client)
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    choice = Choice(split_names(sensitive), split_names(clear), count, people)
    if source is None:
        if limit is not None or choice != Choice():
            raise InputError("--limit, --sensitive, --clear, --count and --people need a form: give --from.")
        form, questionnaire = None, None
    else:
        if folder.exists():  # before anything is planned
            raise FileError(f"{folder}: exists already; name a new folder.")
        form = read_questionnaire(source)
        questionnaire = form, draft_questionnaire(form, limit_from_options(limit), choice)
    write_example(folder, address, invited=invited, questionnaire=questionnaire)
    survey = Survey.load(folder / "survey.yaml")
    say(f"{describe_gamma(survey.record_gamma)} Its cost is in policy.yaml.")
    if survey.policy.clear_variables:
        say(f"sent in clear: {join_names(survey.policy.clear_variables)}")
    if form is not None:
        for line in form.left_out:
            say(f"differs from {source}: {line}")
        say(f"{counted(len(form.questions), 'question')} of {source}.")
    say(
        f"wrote a survey into {folder}: edit policy.yaml and survey.yaml, try it with masquerade survey try "
        f"{folder / 'survey.yaml'}, then masquerade survey serve {folder / 'collector.yaml'}."
    )


def read_questionnaire(path: Path) -> Questionnaire:
    """Return the questionnaire in an XLSForm (.xlsx), a SurveyJS form (.json) or a LimeSurvey .lss."""
    from masquerade.survey.forms import limesurvey, surveyjs, xlsform  # noqa: PLC0415

    readers = {".xlsx": xlsform.read, ".json": surveyjs.read, ".lss": limesurvey.read}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: must be an XLSForm (.xlsx), a SurveyJS form (.json) or a LimeSurvey survey (.lss)."
        )
    try:
        return reader(path)
    except InputError as error:
        reason = str(error)
        raise InputError(reason if reason.startswith(f"{path}:") else f"{path}: {reason}") from None


@survey_app.command("build")
def build_page(
    survey: SurveyFile,
    *,
    out: Annotated[
        Path,
        required_option("The folder for the page and the printed forms.", "--out", "-o", metavar="FOLDER"),
    ],
    overwrite: Overwrite = False,
    accept_gamma: AcceptGamma = None,
    json: Json = False,
) -> None:
    """Build the self-contained page, with its sha256, a letter to print, paper forms and test vectors.

    The same survey file gives the same bytes on every machine.

    Example: masquerade survey build survey.yaml --out page
    """
    from masquerade.survey import Survey, build  # noqa: PLC0415

    loaded = Survey.load(survey)
    remarks = announce_survey(loaded, quiet=json)
    confirm_record_gamma(loaded.policy, accept_gamma, loaded.follow_ups)
    built = build(loaded)
    there = [name for name in built.files if (out / name).exists()]
    if there and not overwrite:
        raise FileError(f"{out / there[0]}: exists already; --overwrite replaces it.")
    built.write(out)
    if json:
        sizes = {name: len(content) for name, content in built.files.items()}
        guarantee = describe_gamma(loaded.record_gamma)
        emit({"sha256": built.digest, "guarantee": guarantee, "warnings": remarks, "files": sizes})
        return
    emit(f"{built.digest}  survey.html\n")
    say(f"wrote {counted(len(built.files), 'file')} into {out}; its sha256 is above, to be published.")


@survey_app.command("serve")
def serve(settings: Settings, *, accept_gamma: AcceptGamma = None) -> None:
    """Serve the page and collect its reports until stopped; it may be restarted at any time.

    Example: masquerade survey serve collector.yaml
    """
    from masquerade.survey.collector.collector import SurveyCollector  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    announce_survey(survey)
    confirm_record_gamma(survey.policy, accept_gamma, survey.follow_ups)
    _confirm_versions(chosen, survey, accept_gamma)
    SurveyCollector(chosen).serve(say)


def _confirm_versions(chosen: SurveySettings, survey: Survey, accepted: str | None) -> None:
    """Ask the operator to accept what all versions of an amended survey reveal about a person.

    An invitation admits one report, under one version. In an open survey a person may answer every version,
    and each answer is another draw.
    """
    from masquerade.disguising.earlier_draws import epsilon_of  # noqa: PLC0415  (loads Arrow)
    from masquerade.survey.collector.store import SurveyStore, is_postgres  # noqa: PLC0415

    location = chosen.place
    if survey.spec.issuer is not None or not (is_postgres(location) or Path(location).exists()):
        return
    with SurveyStore(location, chosen.invitations, chosen.accept) as store:
        answered, versions = store.count_reports(), store.versions()
    earlier = [versions[name] for name in answered if name != survey.policy.id and versions[name].disguised]
    if earlier:
        number = counted(len(earlier), "earlier version")
        say(f"people who answered {number} may answer this one too: another draw, and γ multiplies.")
        total = sum(map(epsilon_of, earlier), epsilon_of(survey.policy))
        instead = "Keep the earlier policy, or invite people: an invitation admits one report"
        confirm_total(survey.policy, total, accepted, instead)


@survey_app.command("invite")
def invite(
    settings: Settings,
    *,
    number: Annotated[int, option("Number of links.", None, "--n", min=1)] = 1,
    uses: Annotated[
        int, option("Number of reports that each link admits, such as one per member of a class.", min=1)
    ] = 1,
    out: Annotated[
        str | None, option("Write the links to this file, one per line.", "FILE", "--out", "-o")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make invitation links; each admits one report, or --uses reports.

    No link can be matched with an answer.

    Example: masquerade survey invite collector.yaml --n 500 --out links.txt
    """
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    if survey.spec.issuer is None:
        raise InputError(
            "This survey is open to the public: survey.yaml has no 'issuer'. See survey init --invited."
        )
    check_target(out, overwrite=overwrite)
    with _store(settings) as store:
        codes = store.invite(number, uses)
    lines = "".join(f"{survey.spec.collector}/#{code}\n" for code in codes)
    emit(lines, out, overwrite=overwrite)
    whom = "one person" if uses == 1 else f"a group of {uses:,}"
    if uses > 1:
        say(f"each link admits {uses:,} reports: one person who has it can send several of them.")
    if out is not None:
        say(f"wrote {counted(number, 'link')} to {out}: send each to {whom}, and keep no copy.")


@survey_app.command("status")
def status(settings: Settings, *, json: Json = False) -> None:
    """Show the number of reports, and estimated shares with 95% intervals.

    While the survey is open, the numbers come from the running collector, which updates them in batches.
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
        source = show_nothing(store, chosen.batch) if store.closed_on is None else show_all(store)
        values = figures(source, survey, store.versions(), store.quotas)
    if values["closed"] is None:
        try:
            values = fetch_figures(chosen)
        except PartyUnreachable as error:
            say(str(error))
    emit(values if json else _format_figures(values))


@survey_app.command("close")
def close(
    settings: Settings,
    *,
    erase: Annotated[
        bool, flag("Also delete all reports and invitations, after their retention period.", "--erase")
    ] = False,
    json: Json = False,
) -> None:
    """Close the survey permanently: no report is accepted or withdrawn any more.

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
    out: Annotated[str, required_option(f"Output file: {offered_endings()}.", "--out", "-o")],
    codebook: Annotated[
        Path | None, option("Also write a codebook (DDI Codebook 2.5, XML).", "FILE", "--codebook")
    ] = None,
    texts: Annotated[
        str | None, option("Also write the free-text answers, in a file separate from the reports.", "FILE")
    ] = None,
    version: Annotated[
        str | None, option("For an amended survey: the first characters of a policy's id.", "ID", "--version")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write the reports, shuffled and labelled, with their policy in or next to the file.

    mq.tally, masquerade estimate and masquerade report read the file directly. While the survey is open, the
    running collector returns the reports of full batches, if its settings have an export_token.
    Example: masquerade survey export collector.yaml --out reports.parquet --codebook reports.xml
    """
    from masquerade.survey.collector.collector import open_store  # noqa: PLC0415
    from masquerade.survey.collector.collector_client import fetch_reports  # noqa: PLC0415
    from masquerade.survey.collector.export import export, write_texts  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    for file in (out, texts):
        check_target(file, overwrite=overwrite)
    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    with open_store(chosen, survey) as store:
        published = fetch_reports(chosen) if store.closed_on is None else None
        number = export(
            store,
            out,
            version,
            survey=survey,
            codebook_to=codebook,
            overwrite=overwrite,
            published=published,
        )
        written = None if texts is None else write_texts(store, texts, overwrite=overwrite)
    if published is not None:
        say(f"the survey is open: these are its full batches of {chosen.batch} reports or more.")
    if json:
        emit(
            {"reports": number, "out": out, "codebook": None if codebook is None else str(codebook)}
            | ({} if texts is None else {"texts": texts, "written": written})
        )
    else:
        beside = "" if codebook is None else f", and their codebook to {codebook}"
        say(f"wrote {counted(number, 'report')} to {out}{beside}.")
        if written is not None:
            say(f"wrote {counted(written, 'text')} of people to {texts}: they may show who wrote them.")


@survey_app.command("report")
def report(
    settings: Settings,
    *,
    out: Annotated[str, required_option("The file for the report (.html).", "--out", "-o")],
    language: Annotated[
        str | None, option("One of the survey's languages; by default the first.", "LANGUAGE", "--language")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the estimates of a closed survey with the questions' texts, in the survey's language.

    It is one page to print.

    Example: masquerade survey report collector.yaml --out report.html
    """
    from masquerade.survey.collector.collector import open_store  # noqa: PLC0415
    from masquerade.survey.collector.figures import figures, show_all  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415
    from masquerade.survey.page.report import write_report  # noqa: PLC0415

    check_target(out, overwrite=overwrite)
    chosen = collector_settings(settings)
    survey = Survey.load(chosen.survey)
    check_language(survey, language)
    with open_store(chosen, survey) as store:
        values = figures(show_all(store), survey, store.versions(), store.quotas, language)
    emit(write_report(values, survey), out, overwrite=overwrite)
    say(f"wrote the report of {counted(values['reports'], 'report')} to {out}.")


def check_language(survey: Survey, language: str | None) -> None:
    """Raise InputError if a survey does not have a language."""
    if language not in (None, *survey.languages):
        raise InputError(f"--language must be one of {join_names(survey.languages)}. Got {language!r}.")


@survey_app.command("dossier")
def dossier(
    survey: SurveyFile,
    *,
    out: Annotated[str, required_option("The file for the dossier (.html).", "--out", "-o")],
    language: Annotated[
        str | None, option("One of the survey's languages; by default the first.", "LANGUAGE", "--language")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the dossier for an ethics committee: protocol, information, risks, and how data flow.

    It is one page to print.

    Example: masquerade survey dossier survey.yaml --out dossier.html
    """
    from masquerade.survey import Survey  # noqa: PLC0415
    from masquerade.survey.page.dossier import write_dossier  # noqa: PLC0415

    check_target(out, overwrite=overwrite)
    loaded = Survey.load(survey)
    check_language(loaded, language)
    announce_survey(loaded)
    emit(write_dossier(loaded, language), out, overwrite=overwrite)
    say(f"wrote the dossier to {out}: read it as the committee will, and fill in what it lists as missing.")


@survey_app.command("try")
@survey_app.command("demo", hidden=True)
def try_survey(
    file: Annotated[
        Path | None, argument("A survey file (YAML) to try; by default an example.", "[SURVEY]")
    ] = None,
    *,
    port: Annotated[
        int | None,
        option("The port; by default 8765, or a free port if that is in use.", None, "--port", min=1),
    ] = None,
    people: Annotated[
        int, option("Number of synthetic people who answer.", "N", "--people", "--n", min=0)
    ] = 300,
    once: Annotated[bool, flag("Stop when the synthetic people have answered.", "--once")] = False,
) -> None:
    """Serve an example or your own survey, with a QR code, and have synthetic people answer it.

    Nothing is stored.

    Example: masquerade survey try work/survey.yaml
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
        write_example(folder, address, copied=None if file is None else Survey.load(file))
        values = {
            **load(folder / "collector.yaml", SurveySettings).model_dump(),
            "limits": {"per_minute": 10**9},
        }
        collector = SurveyCollector(SurveySettings.model_validate(values))
        token = (folder / "team.token").read_text().strip()
        failures: list[Exception] = []

        def fill() -> None:
            try:
                answer_as_people(collector.survey, address, people)
                if once:
                    collector.store.end()
                collector.publish()
                emit(_format_figures(loads(collector.publication.figures_json)))
            except Exception as error:  # noqa: BLE001  (raised again when the service has ended)
                failures.append(error)
            if once or failures:
                os.kill(os.getpid(), signal.SIGINT)

        def announce(line: str) -> None:
            if "listens at" in line:
                emit(f"{in_terminal(address + '/')}Answer at {address}/ and see what comes in at "
                     f"{address}/team#{token}\nCtrl-C stops it; nothing is stored.\n")  # fmt: skip
                threading.Thread(target=fill, daemon=True).start()

        collector.serve(announce)
        if failures:
            raise failures[0]


def announce_survey(survey: Survey, *, quiet: bool = False) -> list[str]:
    """Print the bound on everything that a person sends, and remarks on the survey; return the remarks."""
    from masquerade.survey.forms.remarks import survey_remarks  # noqa: PLC0415

    remarks = survey_remarks(survey)
    if not quiet:
        say(describe_gamma(survey.record_gamma))
        if survey.clear_variables:
            say(f"sent in clear: {join_names(survey.clear_variables)}")
        if survey.free_texts:
            names = join_names([it.name for it in survey.free_texts])
            say(f"sent word for word, as people write it: {names}")
        for remark in remarks:
            say(f"warning: {remark}")
    return remarks


def collector_settings(file: Path) -> SurveySettings:
    """Load and check the settings of a collector."""
    from masquerade.cli.settings_files import load_settings  # noqa: PLC0415  (too large for the memory of devices)

    found: SurveySettings = load_settings(file, "survey")
    return found


def _free_port() -> int:
    """Return the default port, or a free port if the default port is in use."""
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


def _format_figures(found: dict[str, Any]) -> str:
    state = f"closed on {found['closed']}" if found["closed"] else "open"
    batch = found["batch"]
    if found["reports"] is None:
        number = f"no full batch of {batch} reports yet"
    else:
        number = counted(found["reports"], "report") + (f" in batches of {batch} or more" if batch else "")
    used = "" if found["begun"] is None else f", {found['begun']:,} used"
    invited = f", {counted(found['invited'], 'invitation')}{used}" if found["invited"] else ""
    withdrawn = f", {found['withdrawn']:,} withdrawn" if found["withdrawn"] else ""
    parts: list[Any] = [f"{found['title']}: {number}{withdrawn}{invited}; {state}.", found["guarantee"]]
    for it in found["quotas"]:
        reached = f"{it['most']:,} at most" if it["count"] is None else f"{it['count']:,} of {it['most']:,}"
        parts.append(f"quota {it['variable']} = {it['answer']}: {reached}; {it['meaning']}")
    for version in found["estimates"]:
        if len(found["estimates"]) > 1:
            pooled = version["policy"] == "pooled"
            parts.append("all versions together" if pooled else f"version {version['policy'][:12]}")
        for question in version["questions"]:
            if "among" in question:
                parts.append(question["among"])
            table = plain_table(question["text"], ["answer"], ["share", "95% interval"])
            for it in question.get("shares", []):
                table.add_row(it["answer"], f"{it['share']:.1%}", f"{it['low']:.1%} to {it['high']:.1%}")
            parts.append(question.get("refused", table))
            if question.get("doubt") is not None:
                parts.append(
                    f"warning: these reports do not fit this policy (p = {question['doubt']:.2g}): "
                    "inattentive or forged answers?"
                )
    shares = [
        it["share"]
        for version in found["estimates"]
        for question in version["questions"]
        for it in question.get("shares", [])
    ]
    if shares and (min(shares) < 0 or max(shares) > 1):
        parts.append("(below 0% or above 100%: the estimate is unbiased, and the truth is near that end)")
    return render(*parts)
