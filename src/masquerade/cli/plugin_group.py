"""Groups of commands that other packages add to: all are listed, each is loaded when it is asked for."""

from __future__ import annotations

from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from masquerade.cli.output import say
from masquerade.core.errors import PluginError
from masquerade.core.plugins import Group, load_plugin, plugins


class PluginGroup(TyperGroup):
    """A group with the commands that other packages bring under an entry point group.

    Our own names come first and cannot be taken. A part that cannot be used costs its own command and a line
    where commands are listed, never the others.
    """

    plugin_group: ClassVar[Group] = "commands"

    def part(self, name: str) -> Any:
        """Return what becomes a command: a Typer application or a function."""
        return load_plugin(self.plugin_group, name, _problem)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return our commands, then those of other packages."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in plugins(self.plugin_group) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; where another package's cannot be used, say so and go on without it."""
        try:
            return super().get_command(ctx, cmd_name) or self._brought(cmd_name)
        except PluginError as error:
            say(f"warning: {error}")
            return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is run; here a part that cannot be used is an error."""
        if args and args[0] not in self.commands:
            self._brought(args[0])
        return super().resolve_command(ctx, args)

    def _brought(self, name: str) -> Any:
        if name not in plugins(self.plugin_group):
            return None
        part = self.part(name)
        if not isinstance(part, typer.Typer):
            application = typer.Typer(add_completion=False, rich_markup_mode="rich")
            application.command(name)(part)
            part = application
        command = typer.main.get_command(part)
        command.name = name
        return command


def _problem(part: Any) -> str | None:
    known = isinstance(part, typer.Typer) or callable(part)
    return None if known else f"it leads to a {type(part).__name__}, not to a Typer application or a function"
