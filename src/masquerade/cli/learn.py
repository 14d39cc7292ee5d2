"""`masquerade learn`: a command for every learner of the catalogue, those of other packages too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import masquerade as mq
from masquerade.cli.data_source import Given, Place
from masquerade.cli.options import (
    AcceptIncomplete,
    Clear,
    Engine,
    Overwrite,
    Person,
    PolicyFile,
    Reports,
    Url,
    Verbose,
    Weights,
)
from masquerade.cli.output import (
    as_json,
    check_target,
    emit,
    picture_of,
    say,
    warnings_said,
    watched,
    write_whole,
)
from masquerade.cli.plugin_group import PluginGroup
from masquerade.core.errors import InputError
from masquerade.learn.catalogue import LEARNERS, Learner, Option, learner

if TYPE_CHECKING:
    from masquerade.core.tally import Tally

PLOT_ENDINGS = (".png", ".svg", ".pdf")
Json = Annotated[bool, typer.Option("--json", help="Print the model as JSON instead of a summary.")]
Out = Annotated[
    str | None, typer.Option("--out", "-o", help="Save the model here too (.json).", metavar="MODEL.json")
]
Plot = Annotated[
    str | None, typer.Option(help="Draw it into this file (.png, .svg or .pdf).", metavar="FILE")
]
# what every learner command takes after its own options
SHARED: dict[str, tuple[Any, Any]] = {
    "weights": (Weights, None),
    "person": (Person, None),
    "clear": (Clear, False),
    "accept_incomplete": (AcceptIncomplete, False),
    "engine": (Engine, "auto"),
    "url": (Url, None),
    "verbose": (Verbose, False),
    "json": (Json, False),
    "plot": (Plot, None),
    "out": (Out, None),
    "overwrite": (Overwrite, False),
}


def command_of(entry: Learner) -> Callable[..., None]:
    """Return the command of a learner: its options, where the records are, where the model goes."""
    needed = {names[0] for names in entry.needs if len(names) == 1}
    parameters = [
        Parameter("data", Parameter.POSITIONAL_OR_KEYWORD, annotation=Reports),
        Parameter("policy", Parameter.KEYWORD_ONLY, annotation=PolicyFile),
        *(parameter_of(option, needed=option.name in needed) for option in entry.options),
        *(
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in SHARED.items()
            if name != "plot" or entry.draw is not None
        ),
    ]

    def command(data: list[str], **typed: Any) -> None:
        own = {option.name: typed.pop(option.name) for option in entry.options}
        run(entry, own, data, **typed)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    example = f"masquerade learn {entry.name} disguised.csv -p policy.yaml {entry.example}".rstrip()
    command.__doc__ = f"{entry.help}\n\nExample: {example}"
    return command


def parameter_of(option: Option, *, needed: bool) -> Parameter:
    """Return an option of a learner as that of a command."""
    repeated = option.kind.typed == list[str]
    default = None if repeated else option.default
    typed = option.kind.typed | None if default is None and not needed else option.kind.typed
    told = typer.Option(
        option.flag,
        help=option.help,
        metavar=option.metavar or option.kind.metavar,
        min=option.kind.least,
        show_default=not needed,
    )
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        annotation=Annotated[typed, told],
        default=Parameter.empty if needed else default,
    )


def run(
    entry: Learner,
    own: dict[str, Any],
    data: list[str],
    *,
    policy: str,
    weights: str | None,
    person: str | None,
    clear: bool,
    accept_incomplete: bool,
    engine: Any,
    url: str | None,
    verbose: bool,
    json: bool,
    out: str | None,
    overwrite: bool,
    plot: str | None = None,
) -> None:
    """Learn a model and give it out; all of its files are written, or none."""
    loaded = mq.Policy.load(policy)
    options = entry.read(own, loaded.schema, lambda option: option.flag)
    given = Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete)
    results = Results(out, overwrite, json, plot)
    results.check()
    with warnings_said(), watched("learning") as watch, given.opened(watch) as (source, unsure):
        model = entry.learnt(source, options)
        picture = results.drawn(entry, source, model)
    results.give(model, picture, entry.summary(model, options))
    if unsure is not None:
        say(unsure)


@dataclass(frozen=True, slots=True)
class Results:
    """Where a model goes: a summary or JSON to standard output, a file, a picture."""

    out: str | None
    overwrite: bool
    json: bool
    plot: str | None = None

    def check(self) -> None:
        """Refuse, before any work, files that cannot or must not be written."""
        if self.out is not None and not self.out.lower().endswith(".json"):
            raise InputError(f"{self.out}: a model is saved as JSON; its name ends in .json.")
        if self.plot is not None and not self.plot.lower().endswith(PLOT_ENDINGS):
            raise InputError(f"{self.plot}: a plot ends in {' or '.join(PLOT_ENDINGS)}.")
        for target in filter(None, (self.out, self.plot)):
            check_target(Path(target), overwrite=self.overwrite)

    def drawn(self, entry: Learner, source: Tally, model: Any) -> bytes | None:
        """Return the picture of a model, if one is wanted."""
        if self.plot is None or entry.draw is None:
            return None
        return picture_of(entry.draw(source, model), self.plot)

    def give(self, model: Any, picture: bytes | None, text: str) -> None:
        """Write the files, then print the model; a model that cannot be JSON is refused first."""
        shown = as_json(model.to_dict()) if self.json else text + "\n"
        if self.out is not None:
            check_target(Path(self.out), overwrite=self.overwrite)
            mq.learn.save(model, self.out)
            say(f"the model is saved in {self.out}.")
        if self.plot is not None and picture is not None:
            write_whole(Path(self.plot), picture, overwrite=self.overwrite)
            say(f"it is drawn in {self.plot}.")
        emit(shown)


class Learners(PluginGroup):
    """The learner commands, with those of other packages."""

    plugin_group = "learners"

    def part(self, name: str) -> Any:
        """Return the command of another package's learner."""
        return command_of(learner(name))


app = typer.Typer(
    cls=Learners,
    help="Learn a model from disguised (or clear) records.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _entry in LEARNERS.values():
    if _entry.command:
        app.command(_entry.name)(command_of(_entry))
