"""Plug-ins of other packages: entry points, found by group and name, loaded on demand.

A package declares its plug-ins in its ``pyproject.toml``::

    [project.entry-points."masquerade.learners"]
    majority = "my_package.majority:LEARNER"

There are five groups: ``masquerade.sources``, ``.channels``, ``.learners``, ``.commands`` and
``.session_kinds``. The package that uses a group defines what its entry points must refer to. Listing names
loads nothing. A plug-in that cannot be loaded raises an error that names its package.
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
    """A plug-in: its group, its name in the group, and the package that provides it."""

    group: Group
    name: str
    package: str
    entry: EntryPoint = field(repr=False)
    rival: str = ""  # another package with a plug-in of this name, so that the name is ambiguous

    @property
    def title(self) -> str:
        """Return the title of the plug-in for messages.

        >>> from importlib.metadata import EntryPoint
        >>> Plugin("session_kinds", "ring", "rings 1.0", EntryPoint("ring", "rings:RING", "")).title
        "The session kind 'ring' of the package rings 1.0"
        """
        return f"The {_kind(self.group)} {self.name!r} of the package {self.package}"

    def load(self) -> Any:
        """Return the object that the entry point refers to; raise PluginError if it cannot be loaded."""
        if self.rival:
            raise self.make_error(f"{self.rival} provides the same name; remove one of the two packages")
        try:
            return self.entry.load()
        except Exception as error:  # a foreign module may raise anything while it loads
            raise self.make_error(f"{type(error).__name__}: {error}") from error

    def make_error(self, why: str) -> PluginError:
        """Return an error that states why this plug-in cannot be used."""
        return PluginError(f"{self.title} cannot be used: {why.rstrip('.')}.")


def plugins(group: Group) -> Mapping[str, Plugin]:
    """Return the plug-ins of a group by name, sorted; nothing is loaded."""
    return _scan_entry_points(group, tuple(sys.path))


def load_plugin(group: Group, name: str, check: Callable[[Any], str | None] | None = None) -> Any:
    """Return the object of a plug-in.

    Parameters
    ----------
    group : str
        Group of plug-ins.
    name : str
        Name in the group.
    check : callable, optional
        Takes the loaded object and returns a problem, or None.

    Returns
    -------
    object
        The loaded object.

    Raises
    ------
    PluginError
        If the name is unknown, or the object cannot be loaded or is not valid.
    """
    available = plugins(group)
    if name not in available:
        raise PluginError(f"No package provides a {_kind(group)} {name!r}.{did_you_mean(name, available)}")
    value = available[name].load()
    problem = None if check is None else check(value)
    if problem is not None:
        raise available[name].make_error(problem)
    return value


def _kind(group: Group) -> str:
    return group.removesuffix("s").replace("_", " ")


@lru_cache(maxsize=len(GROUPS))
def _scan_entry_points(group: Group, path: tuple[str, ...]) -> Mapping[str, Plugin]:  # noqa: ARG001  (the key of the cache)
    from importlib.metadata import entry_points  # noqa: PLC0415  (slow to load, rarely needed)

    by_name: dict[str, Plugin] = {}
    for entry in entry_points(group=f"masquerade.{group}"):
        package = "unknown" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        earlier = by_name.get(entry.name)
        rival = "" if earlier is None or earlier.package == package else earlier.package
        by_name[entry.name] = Plugin(group, entry.name, package, entry, rival)
    return dict(sorted(by_name.items()))
