"""`masquerade gather`: disguised reports from people's own devices, and the collector that keeps them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

from masquerade.cli import survey
from masquerade.cli.options import Folder, Json, Overwrite, argument, flag, group, option, required
from masquerade.cli.output import check_target, emit, say
from masquerade.core.errors import FileError

gather_app = group(
    "Disguised reports from people's own devices: each draws for itself, and sends what it drew."
)

TermsFile = Annotated[Path, argument("The terms that were published (JSON).", "TERMS")]
RecordFile = Annotated[
    Path | None,
    option("Where the device keeps what it drew; without it, one file a policy in the user's state.", "FILE"),
]
Patience = Annotated[float, option("Seconds to try for if the collector does not answer.", min=0)]


@gather_app.command("init")
def init(
    folder: Folder,
    *,
    policy: Annotated[
        str | None,
        option("The policy that devices disguise by; without it an example.", "FILE", "--policy", "-p"),
    ] = None,
    address: Annotated[
        str, option("Where devices will reach the collector, without a path.", "URL", "--collector")
    ] = f"http://{survey.LOCAL}:{survey.PORT}",
    invited: Annotated[
        bool,
        flag("Only invited people may take part, each once, by blind tokens; makes their key.", "--invited"),
    ] = False,
) -> None:
    """Write what a gathering begins with: policy.yaml, survey.yaml (who asks, and for what), collector.yaml.

    Example: masquerade gather init work --policy policy.yaml --collector https://gather.example.org
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415
    from masquerade.survey.collector.example import write_example  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    chosen = None if policy is None else Policy.load(policy)
    write_example(folder, address, invited=invited, policy=chosen)
    Survey.load(folder / "survey.yaml")
    say(f"wrote {folder}: say in survey.yaml who asks and what for, then masquerade gather publish.")


@gather_app.command("publish")
def publish(
    settings: survey.Settings,
    *,
    out: Annotated[Path, required("Where to write the terms (JSON).", "--out", "-o")],
    authority: Annotated[
        Path | None,
        option("Who signs the collector's certificate (PEM), unless every device knows them.", "FILE"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the terms that devices take part by: one file, the same for everybody, and its sha256.

    Example: masquerade gather publish work/collector.yaml --out terms.json
    """
    from masquerade.core.util.atomic import write_whole  # noqa: PLC0415
    from masquerade.core.util.json_text import read_text  # noqa: PLC0415
    from masquerade.survey.device.publication import terms_text  # noqa: PLC0415
    from masquerade.survey.device.terms import Terms  # noqa: PLC0415
    from masquerade.survey.forms.survey_file import Survey  # noqa: PLC0415

    check_target(str(out), overwrite=overwrite)
    signers = None if authority is None else read_text(authority)
    text = terms_text(Survey.load(survey.collector_settings(settings).survey), signers)
    write_whole(out, text)
    emit(f"{Terms.parse(text).digest}  {out.name}\n")
    say(f"wrote the terms to {out}; their sha256 is above: publish both.")


@gather_app.command("show")
def show(terms: TermsFile) -> None:
    """Show who asks, what would leave this device, and what it would give away at most.

    Example: masquerade gather show terms.json
    """
    from masquerade.survey.device.terms import Terms  # noqa: PLC0415

    emit(Terms.load(terms).summary())


@gather_app.command("take-part")
def take_part(
    terms: TermsFile,
    *,
    row: Annotated[
        Path | None, option("The person's own row: a JSON object of labels by variable.", "FILE", "--row")
    ] = None,
    record: RecordFile = None,
    invitation: Annotated[str | None, option("The link or code that the person was sent.", "LINK")] = None,
    gamma: Annotated[
        float | None,
        option("Take part only if no report shifts odds about a variable by more.", "NUMBER", min=1),
    ] = None,
    patience: Patience = 60.0,
    json: Json = False,
) -> None:
    """Take part: disguise the row on this device, keep what was drawn, and send that once.

    Run it again to go on: nothing is drawn twice under a policy, and nothing counted twice.
    Example: masquerade gather take-part terms.json --row row.json
    """
    from masquerade.survey.device.participation import Participation, read_row  # noqa: PLC0415
    from masquerade.survey.device.terms import Terms  # noqa: PLC0415

    part = Participation(Terms.load(terms), record)
    if part.state is None and row is None:
        raise FileError("No report was drawn yet: give the row with --row.")
    drawn = row is not None and part.draw(read_row(row), most_gamma=gamma)
    if invitation is not None:
        part.use(invitation)
    sent = part.send(patience=patience)
    if json:
        emit({"drawn": drawn, "sent": sent, "state": part.state, "record": str(part.path)})
        return
    if sent:
        before = "" if drawn else ", as it was drawn before"
        say(f"the report was sent{before}; {part.path} remembers it: keep that file.")
    else:
        say(f"nothing was done: the report was {part.state} before.")


@gather_app.command("withdraw")
def withdraw(terms: TermsFile, *, record: RecordFile = None, patience: Patience = 60.0) -> None:
    """Have the collector delete this device's report, while the collection is open.

    Example: masquerade gather withdraw terms.json
    """
    from masquerade.survey.device.participation import Participation  # noqa: PLC0415
    from masquerade.survey.device.terms import Terms  # noqa: PLC0415

    found = Participation(Terms.load(terms), record).withdraw(patience=patience)
    say("the report is deleted." if found else "the collector has no report of this device.")


# a gatherer is the collector of a survey
for _name, _command in (
    ("serve", survey.serve),
    ("invite", survey.invite),
    ("status", survey.status),
    ("close", survey.close),
    ("export", survey.export_reports),
):
    _told = (inspect.getdoc(_command) or "").replace("masquerade survey", "masquerade gather")
    gather_app.command(_name, help=_told)(_command)
