"""`masquerade gather`: disguised reports from people's own devices, and the collector that stores them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

from masquerade.cli import survey
from masquerade.cli.options import Folder, Json, Overwrite, argument, flag, group, option, required_option
from masquerade.cli.output import check_target, emit, say
from masquerade.cli.record_limit import DEFAULT, AcceptGamma, OwnLimit, confirm_record_gamma
from masquerade.core.errors import FileError

gather_app = group("Gather reports from people's own devices, each of which disguises its answers itself.")

TermsFile = Annotated[Path, argument("The published terms (JSON).", "TERMS")]
RecordFile = Annotated[
    Path | None,
    option("File for the drawn report; by default one file per policy in the user's state folder.", "FILE"),
]
Patience = Annotated[float, option("Seconds to retry if the collector does not answer.", min=0)]


@gather_app.command("init")
def init(
    folder: Folder,
    *,
    policy: Annotated[
        str | None,
        option("The policy under which devices disguise; by default an example.", "FILE", "--policy", "-p"),
    ] = None,
    address: Annotated[
        str,
        option("Address at which devices will reach the collector, without a path.", "URL", "--collector"),
    ] = f"http://{survey.LOCAL}:{survey.PORT}",
    invited: Annotated[
        bool,
        flag("Admit only invited people, each once, by blind tokens; creates the key.", "--invited"),
    ] = False,
) -> None:
    """Write the files to start from: policy.yaml, survey.yaml (who asks, and why) and collector.yaml.

    Example: masquerade gather init work --policy policy.yaml --collector https://gather.example.org
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415
    from masquerade.survey.collector.example import write_example  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    chosen = None if policy is None else Policy.load(policy)
    write_example(folder, address, invited=invited, policy=chosen)
    Survey.load(folder / "survey.yaml")
    say(f"wrote {folder}: state in survey.yaml who asks and why, then run masquerade gather publish.")


@gather_app.command("publish")
def publish(
    settings: survey.Settings,
    *,
    out: Annotated[Path, required_option("File for the terms (JSON).", "--out", "-o")],
    authority: Annotated[
        Path | None,
        option("Authority of the collector's certificate (PEM), unless every device trusts it.", "FILE"),
    ] = None,
    accept_gamma: AcceptGamma = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the terms of participation, one file that is the same for all devices, and its sha256.

    Example: masquerade gather publish work/collector.yaml --out terms.json
    """
    from masquerade.core.util.atomic import write_whole  # noqa: PLC0415
    from masquerade.core.util.json_text import read_text  # noqa: PLC0415
    from masquerade.survey.device.publication import terms_text  # noqa: PLC0415
    from masquerade.survey.device.terms import DeviceTerms  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    check_target(str(out), overwrite=overwrite)
    signers = None if authority is None else read_text(authority)
    asked = Survey.load(survey.collector_settings(settings).survey)
    confirm_record_gamma(asked.policy, accept_gamma, asked.follow_ups)
    text = terms_text(asked, signers)
    write_whole(out, text)
    emit(f"{DeviceTerms.parse(text).digest}  {out.name}\n")
    say(f"wrote the terms to {out}; their sha256 is above: publish both.")


@gather_app.command("show")
def show(terms: TermsFile) -> None:
    """Show who asks, what would leave this device, and the most that it would reveal.

    Example: masquerade gather show terms.json
    """
    from masquerade.survey.device.terms import DeviceTerms  # noqa: PLC0415

    emit(DeviceTerms.load(terms).summary())


@gather_app.command("take-part")
def take_part(
    terms: TermsFile,
    *,
    row: Annotated[
        Path | None, option("The person's row: a JSON object of labels by variable.", "FILE", "--row")
    ] = None,
    record: RecordFile = None,
    invitation: Annotated[str | None, option("The link or code that the person received.", "LINK")] = None,
    limit: OwnLimit = DEFAULT,
    clear: Annotated[
        list[str] | None, option("Variables that may be sent in clear, NAME or A,B,C.", "NAMES", "--clear")
    ] = None,
    patience: Patience = 60.0,
    json: Json = False,
) -> None:
    """Participate: disguise the row on this device, store the drawn report, and send it once.

    What the whole report reveals is shown first, and nothing is drawn above the limit.
    Run the command again to continue: nothing is drawn twice under one policy, or counted twice.
    Example: masquerade gather take-part terms.json --row row.json
    """
    from masquerade.survey.device.participation import Participation, read_row  # noqa: PLC0415
    from masquerade.survey.device.terms import DeviceTerms  # noqa: PLC0415

    part = Participation(DeviceTerms.load(terms), record)
    if part.state is None:
        if row is None:
            raise FileError("No report was drawn yet: give the row with --row.")
        say(part.disclosure(limit))
    named = [name.strip() for text in clear or () for name in text.split(",")]
    drawn = row is not None and part.draw(read_row(row), limit=limit, clear=named)
    if invitation is not None:
        part.use(invitation)
    sent = part.send(patience=patience)
    if json:
        emit({"drawn": drawn, "sent": sent, "state": part.state, "record": str(part.path)})
        return
    if sent:
        before = "" if drawn else ", as drawn before"
        say(f"the report was sent{before}; it is stored in {part.path}: keep that file.")
    else:
        say(f"nothing to do: the report was already {part.state}.")


@gather_app.command("withdraw")
def withdraw(terms: TermsFile, *, record: RecordFile = None, patience: Patience = 60.0) -> None:
    """Ask the collector to delete this device's report, while the collection is open.

    Example: masquerade gather withdraw terms.json
    """
    from masquerade.survey.device.participation import Participation  # noqa: PLC0415
    from masquerade.survey.device.terms import DeviceTerms  # noqa: PLC0415

    found = Participation(DeviceTerms.load(terms), record).withdraw(patience=patience)
    say("the report is deleted." if found else "the collector has no report of this device.")


# the server is the same as for surveys
for _name, _command in (
    ("serve", survey.serve),
    ("invite", survey.invite),
    ("status", survey.status),
    ("close", survey.close),
    ("export", survey.export_reports),
):
    _help = (inspect.getdoc(_command) or "").replace("masquerade survey", "masquerade gather")
    gather_app.command(_name, help=_help)(_command)
