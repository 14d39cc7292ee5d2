"""`masquerade learn`: a command for every learner of the catalogue, those of other packages too."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any

import masquerade as mq
from masquerade.cli import options as declared
from masquerade.cli import output
from masquerade.cli.data_source import Records, over_records, own_option
from masquerade.cli.options import Overwrite, PluginGroup, flag, group
from masquerade.core.errors import InputError
from masquerade.learn.catalogue import LEARNERS, Learner, Option, learner

Json = Annotated[bool, flag("Print the model as JSON instead of a summary.", "--json")]
Out = Annotated[str | None, declared.option("Save the model here too (.json).", "MODEL.json", "--out", "-o")]
Plot = Annotated[str | None, declared.option("Draw it into this file (.png, .svg or .pdf).", "FILE")]


def command_of(entry: Learner) -> Callable[..., None]:
    """Return the command of a learner: its options, where the records are, where the model goes."""
    needed = {names[0] for names in entry.needs if len(names) == 1}

    def run(records: Records, **typed: Any) -> None:
        own = {option.name: typed.pop(option.name) for option in entry.options}
        _run(entry, own, records, **typed)

    example = f"masquerade learn {entry.name} disguised.csv -p policy.yaml {entry.example}".rstrip()
    return over_records(
        run,
        [
            *(_parameter_of(option, needed=option.name in needed) for option in entry.options),
            own_option("records", Records),
            own_option("json", Json, default=False),
            *([] if entry.draw is None else [own_option("plot", Plot, None)]),
            own_option("out", Out, None),
            own_option("overwrite", Overwrite, default=False),
        ],
        f"{entry.help}\n\nExample: {example}",
    )


def _parameter_of(option: Option, *, needed: bool) -> Parameter:
    """Return an option of a learner as that of a command."""
    default = None if option.kind.typed == list[str] else option.default
    typed = option.kind.typed | None if default is None and not needed else option.kind.typed
    metavar, least = option.metavar or option.kind.metavar, option.kind.least
    told = declared.option(option.help, metavar, option.flag, min=least, show_default=not needed)
    return own_option(option.name, Annotated[typed, told], Parameter.empty if needed else default)


def _run(
    entry: Learner,
    own: dict[str, Any],
    records: Records,
    *,
    json: bool,
    out: str | None,
    overwrite: bool,
    plot: str | None = None,
) -> None:
    """Learn a model and give it out; all of its files are written, or none."""
    options = entry.read(own, records.policy.schema, lambda option: option.flag)
    if out is not None and not out.lower().endswith(".json"):
        raise InputError(f"{out}: a model is saved as JSON; its name ends in .json.")
    output.check_plot(plot, overwrite=overwrite)
    output.check_target(out, overwrite=overwrite)
    picture = None
    with records.opened("learning") as source:
        model = entry.learnt(source, options, records.advance)
        if plot is not None and entry.draw is not None:
            picture = output.picture_of(entry.draw(source, model), plot)
    # a model that cannot be JSON is refused before anything is written
    shown = output.as_json(model.to_dict()) if json else entry.summary(model, options) + "\n"
    if out is not None:
        output.check_target(out, overwrite=overwrite)
        mq.learn.save(model, out)
        output.say(f"the model is saved in {out}.")
    if plot is not None and picture is not None:
        output.write_whole(plot, picture, overwrite=overwrite)
        output.say(f"it is drawn in {plot}.")
    output.emit(shown)
    if records.unsure is not None:
        output.say(records.unsure)


class _Learners(PluginGroup):
    """The learner commands, with those of other packages."""

    plugin_group = "learners"

    def part(self, name: str) -> Any:
        return command_of(learner(name))


app = group("Learn a model from disguised (or clear) records.", cls=_Learners)
for _entry in LEARNERS.values():
    if _entry.command:
        app.command(_entry.name)(command_of(_entry))
