"""The files and databases outside a project's folder that its steps may use: those that the person names.

A project says where its data are. That may be a path or an address that another person wrote, so it is used
only if the person at the machine named it in this run, or agreed to that very path or address. Nothing of
this is stored. To an address that the person only agreed to, no password of the person's environment is
sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from masquerade.core.errors import InputError
from masquerade.studio.allow_list import ADDRESS, LOCAL, StudioStep, read_step

SIDECAR = ".masquerade.json"  # is read next to a CSV
OPEN_BY = frozenset(
    ":*?["
)  # a name with one of these may stand for other files, or for a source of a package
# what PostgreSQL's library takes from the environment and from the home folder, turned off
NO_CREDENTIALS = {
    "PGPASSFILE": os.devnull,
    "PGSERVICEFILE": os.devnull,
    "PGSSLCERTMODE": "disable",
    "PGGSSENCMODE": "disable",
    "PGREQUIREAUTH": "none",
}


class NotAllowed(InputError):
    """A step needs files or addresses that the person has not named: `needs` lists them."""

    def __init__(self, message: str, needs: tuple[str, ...]) -> None:
        super().__init__(message)
        self.needs = needs


class Reach:
    """What the steps of a project may use in this run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._named: set[str] = set()
        self._agreed: set[str] = set()

    def name(self, text: str | Path) -> None:
        """Permit a file or an address that the person typed or chose, with the person's own passwords."""
        self._named.add(_item(str(text)))

    def agree(self, text: str) -> None:
        """Permit a file or an address that the project names and the person agreed to, without passwords."""
        self._agreed.add(_item(text))

    def check(self, step: StudioStep) -> bool:
        """Raise InputError unless a step may run now; return True if it may use the person's passwords."""
        outside = [path for word in step.reads if (path := self._outside(word)) is not None]
        for word in step.writes:
            self._check_inside(word)
        if step.database is not None:
            outside.append(step.database)
        self._check_permitted(outside)
        if step.command == ("survey", "export"):
            outside += self._needs_of_collector(step.arguments[0])
            self._check_permitted(outside)
        addresses = [item for item in outside if ADDRESS.fullmatch(item)]
        return bool(addresses) and self._named.issuperset(addresses)

    def _check_permitted(self, outside: list[str]) -> None:
        missing = [item for item in dict.fromkeys(outside) if item not in self._named | self._agreed]
        if missing:
            raise NotAllowed(
                f"The project names {' and '.join(map(_describe, missing))}, outside its folder. It is used "
                "only if you allow it.",
                tuple(missing),
            )

    def check_command(self, argv: object) -> bool:
        """Check the words of a command, as `check` does."""
        return self.check(read_step(argv))

    def _outside(self, word: str) -> str | None:
        """Return the real path of a file outside the folder, None for a file inside it."""
        if Path(word).is_absolute():
            return str(Path(word).resolve())
        self._check_inside(word)
        if OPEN_BY & set(word) and not (self.folder / word).is_file():
            raise InputError(f"{word}: is not the name of one file in the project's folder.")
        return None

    def _check_inside(self, word: str) -> None:
        for name in (word, word + SIDECAR):
            path = self.folder / name
            if path.resolve() != path:
                raise InputError(
                    f"{name}: is or lies behind a link; a step uses files of the project itself."
                )

    def _needs_of_collector(self, word: str) -> list[str]:
        """Return the places that the settings of a collector name: a database; a folder outside the project.

        A folder is the person's own affair where the settings are a file outside the project, which the
        person named.
        """
        from masquerade.services.common.settings import load  # noqa: PLC0415  (loads the services)
        from masquerade.survey.collector.settings import SurveySettings  # noqa: PLC0415

        settings = load(self.folder / word, SurveySettings)
        if settings.store is not None:
            if not ADDRESS.fullmatch(settings.store):
                raise InputError(
                    f"{word}: the address of its database has more than user, host, port and database; "
                    "`masquerade survey export` on the command line takes the reports."
                )
            return [settings.store]
        if Path(word).is_absolute() or settings.state is None:
            return []
        places = [Path(place).resolve() for place in (settings.state, settings.survey)]
        return [str(place) for place in places if not place.is_relative_to(self.folder)]


def _item(text: str) -> str:
    if ADDRESS.fullmatch(text):
        return text
    if "://" in text:
        raise InputError(
            "An address looks like postgresql://user@host:5432/database. A password is in PGPASSWORD or "
            "~/.pgpass, never in it."
        )
    return str(Path(text).expanduser().resolve())


def _describe(item: str) -> str:
    if item == LOCAL:
        return f"a table of the PostgreSQL server of this machine ({LOCAL})"
    return item


@contextmanager
def without_credentials() -> Iterator[None]:
    """Run without the passwords, files and services that PostgreSQL's variables name in the environment."""
    variables = {name: value for name, value in os.environ.items() if _is_postgres(name)}
    for name in variables:
        del os.environ[name]
    os.environ.update(NO_CREDENTIALS)
    try:
        yield
    finally:
        for name in [name for name in os.environ if _is_postgres(name)]:
            del os.environ[name]
        os.environ.update(variables)


def _is_postgres(name: str) -> bool:
    return name.startswith("PG") or name == "MASQUERADE_URL"
