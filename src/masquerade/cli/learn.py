"""`masquerade learn`: one command per registered learner, including learners of other packages."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any

import masquerade as mq
from masquerade.cli import options as declared
from masquerade.cli import output
from masquerade.cli.data_source import RecordOptions, keyword_option, over_records
from masquerade.cli.options import Overwrite, PluginGroup, flag, group
from masquerade.core.errors import InputError
from masquerade.learn.catalogue import LEARNERS, learner
from masquerade.learn.learner_types import Learner, Option

Json = Annotated[bool, flag("Print the model as JSON instead of a summary.", "--json")]
Out = Annotated[str | None, declared.option("Also save the model (.json).", "MODEL.json", "--out", "-o")]
Plot = Annotated[str | None, declared.option("Plot the model into this file (.png, .svg or .pdf).", "FILE")]


def command_of(entry: Learner) -> Callable[..., None]:
    """Return the command of a learner, with its own options and the options for records and output."""
    needed = {names[0] for names in entry.needs if len(names) == 1}

    def run(records: RecordOptions, **typed: Any) -> None:
        values = {option.name: typed.pop(option.name) for option in entry.options}
        _run(entry, values, records, **typed)

    example = f"masquerade learn {entry.name} disguised.csv -p policy.yaml {entry.example}".rstrip()
    return over_records(
        run,
        [
            *(_parameter_of(option, needed=option.name in needed) for option in entry.options),
            keyword_option("records", RecordOptions),
            keyword_option("json", Json, default=False),
            *([] if entry.draw is None else [keyword_option("plot", Plot, None)]),
            keyword_option("out", Out, None),
            keyword_option("overwrite", Overwrite, default=False),
        ],
        f"{entry.help}\n\nExample: {example}",
    )


def _parameter_of(option: Option, *, needed: bool) -> Parameter:
    """Convert an option of a learner to a parameter of its command."""
    default = None if option.kind.typed == list[str] else option.default
    typed = option.kind.typed | None if default is None and not needed else option.kind.typed
    metavar, least = option.metavar or option.kind.metavar, option.kind.least
    typer_option = declared.option(option.help, metavar, option.flag, min=least, show_default=not needed)
    return keyword_option(option.name, Annotated[typed, typer_option], Parameter.empty if needed else default)


def _run(
    entry: Learner,
    values: dict[str, Any],
    records: RecordOptions,
    *,
    json: bool,
    out: str | None,
    overwrite: bool,
    plot: str | None = None,
) -> None:
    """Learn a model, then print it and write its files; write no file if learning or drawing fails."""
    options = entry.read(values, records.policy.schema, lambda option: option.flag)
    if out is not None and not out.lower().endswith(".json"):
        raise InputError(f"{out}: a model is saved as JSON: its name must end in .json.")
    output.check_plot(plot, overwrite=overwrite)
    output.check_target(out, overwrite=overwrite)
    picture = None
    with records.open_source("learning") as source:
        model = entry.fit(source, options, records.advance)
        if plot is not None and entry.draw is not None:
            picture = output.picture_of(entry.draw(source, model), plot)
    # raises, before anything is written, if the model cannot be saved as JSON
    shown = output.as_json(model.to_dict()) if json else entry.summary(model, options) + "\n"
    if out is not None:
        output.check_target(out, overwrite=overwrite)
        mq.learn.save(model, out)
        output.say(f"the model is saved in {out}.")
    if plot is not None and picture is not None:
        output.write_whole(plot, picture, overwrite=overwrite)
        output.say(f"the plot is in {plot}.")
    output.emit(shown)
    if records.origin_note is not None:
        output.say(records.origin_note)


class _Learners(PluginGroup):
    """The group of learners, including those of other packages."""

    plugin_group = "learners"

    def part(self, name: str) -> Any:
        return command_of(learner(name))


app = group("Learn a model from disguised (or clear) records.", cls=_Learners)
for _entry in LEARNERS.values():
    if _entry.command:
        app.command(_entry.name)(command_of(_entry))
