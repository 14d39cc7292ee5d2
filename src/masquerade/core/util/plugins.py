"""Parts that other packages bring along: entry points, found by group and name, loaded when asked for.

A package that wants to take part names what it brings in its own ``pyproject.toml``::

    [project.entry-points."masquerade.learners"]
    majority = "my_package.majority:LEARNER"

There are five groups: ``masquerade.sources``, ``.channels``, ``.learners``, ``.commands`` and
``.session_kinds``. What an entry point must lead to is said by the package that uses the group. Looking for
names loads nothing; a part that cannot be loaded is an error that names the package it comes from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from masquerade.core.errors import PluginError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["sources", "channels", "learners", "commands", "session_kinds"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A part that another package brings along: its group, its name there, and the package it comes from."""

    group: Group
    name: str
    package: str
    entry: EntryPoint = field(repr=False)
    rival: str = ""  # another package that brings a part of this name, so that neither can be meant

    @property
    def title(self) -> str:
        """Return which part this is, for messages.

        >>> from importlib.metadata import EntryPoint
        >>> Plugin("session_kinds", "ring", "rings 1.0", EntryPoint("ring", "rings:RING", "")).title
        "The session kind 'ring' of the package rings 1.0"
        """
        return f"The {_kind(self.group)} {self.name!r} of the package {self.package}"

    def load(self) -> Any:
        """Return what the entry point leads to."""
        if self.rival:
            raise self.refused(f"{self.rival} brings one of that name too; remove one of the two packages")
        try:
            return self.entry.load()
        except Exception as error:  # whatever a stranger's module does while it loads
            raise self.refused(f"{type(error).__name__}: {error}") from error

    def refused(self, why: str) -> PluginError:
        """Return the error that this part cannot be used."""
        return PluginError(f"{self.title} cannot be used: {why.rstrip('.')}.")


def plugins(group: Group) -> Mapping[str, Plugin]:
    """Return what other packages bring for a group, by name, in order; nothing is loaded."""
    return _found(group, tuple(sys.path))


def load_plugin(group: Group, name: str, check: Callable[[Any], str | None] | None = None) -> Any:
    """Return the part of a name; `check` says what is wrong with what was loaded, or None.

    Raises a `PluginError` where there is no such name, where it cannot be loaded or is not what it should be.
    """
    known = plugins(group)
    if name not in known:
        raise PluginError(f"No package brings a {_kind(group)} {name!r}.{did_you_mean(name, known)}")
    part = known[name].load()
    problem = None if check is None else check(part)
    if problem is not None:
        raise known[name].refused(problem)
    return part


def _kind(group: Group) -> str:
    return group.removesuffix("s").replace("_", " ")


@lru_cache(maxsize=len(GROUPS))
def _found(group: Group, path: tuple[str, ...]) -> Mapping[str, Plugin]:  # noqa: ARG001  (what is found depends on it)
    from importlib.metadata import entry_points  # noqa: PLC0415  (slow to load, and seldom needed)

    found: dict[str, Plugin] = {}
    for entry in entry_points(group=f"masquerade.{group}"):
        package = "unknown" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        earlier = found.get(entry.name)
        rival = "" if earlier is None or earlier.package == package else earlier.package
        found[entry.name] = Plugin(group, entry.name, package, entry, rival)
    return dict(sorted(found.items()))
