"""Permissions for steps to use files and databases outside the project's folder.

A project states where its data are. That path or address may have been written by another person, so it is
used only if the user named it in this run, or agreed to exactly that path or address. Permissions are not
stored. Passwords of the user's environment are not sent to an address that the user only agreed to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from masquerade.core.errors import InputError
from masquerade.studio.allow_list import ADDRESS, LOCAL, MEMO, StudioStep, read_step
from masquerade.studio.project_files import check_folder

SIDECAR = ".masquerade.json"  # the file next to a CSV that is read with it
OPEN_BY = frozenset(
    ":*?["
)  # a name with one of these may match several files, or name a source of another package
HERE = ("127.0.0.1", "::1", "localhost")
# disables what PostgreSQL's library reads from the environment and the home folder
NO_CREDENTIALS = {
    "PGPASSFILE": os.devnull,
    "PGSERVICEFILE": os.devnull,
    "PGSSLCERTMODE": "disable",
    "PGGSSENCMODE": "disable",
    "PGREQUIREAUTH": "none",
}


class NotAllowed(InputError):
    """A step needs files or addresses that the user has not allowed; `needs` lists them."""

    def __init__(self, message: str, needs: tuple[str, ...]) -> None:
        super().__init__(message)
        self.needs = needs


class Reach:
    """The files and databases that the steps of a project may use in this run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._named: set[str] = set()
        self._agreed: set[str] = set()
        self._found_memo = (folder / MEMO).exists()  # so it was not made in this run

    def name(self, text: str | Path) -> None:
        """Permit a file or an address that the user typed or chose, with the user's passwords."""
        self._named.add(_item(str(text)))

    def agree(self, text: str) -> None:
        """Permit a file or an address that the project names and the user agreed to, without passwords."""
        self._agreed.add(_item(text))

    def check(self, step: StudioStep) -> bool:
        """Raise InputError unless a step may run now; return True if it may use the user's passwords."""
        outside = [path for word in step.reads if (path := self._outside(word)) is not None]
        for word in step.writes:
            self._check_inside(word)
        if step.database is not None:
            outside.append(step.database)
        if "memo" in step.options and "new-memo" not in step.options:
            self.check_memo()
        self._check_permitted(outside)
        if step.command == ("survey", "export"):
            outside += self._needs_of_collector(step.arguments[0])
            self._check_permitted(outside)
        addresses = [item for item in outside if ADDRESS.fullmatch(item)]
        return bool(addresses) and self._named.issuperset(addresses)

    def check_memo(self) -> None:
        """Raise NotAllowed if the memo was in the folder before this run and the user has not allowed it."""
        path = str(self.folder / MEMO)
        if self._found_memo and path not in self._named | self._agreed:
            raise NotAllowed(
                f"{MEMO} was in the folder when the project was opened. Anyone with a copy of it can invert "
                "what it disguises: allow it only if you made it.",
                (path,),
            )

    def _check_permitted(self, outside: list[str]) -> None:
        missing = [item for item in dict.fromkeys(outside) if item not in self._named | self._agreed]
        if missing:
            raise NotAllowed(
                f"The project names {' and '.join(map(_describe, missing))}, outside its folder. It is used "
                "only if you allow it.",
                tuple(missing),
            )

    def check_command(self, argv: object) -> bool:
        """Parse a command and check it."""
        return self.check(read_step(argv))

    def _outside(self, word: str) -> str | None:
        """Return the real path of a file outside the folder, or None for a file inside it."""
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
                    f"{name}: is a link or inside a linked folder; a step may use only files of the project."
                )

    def _needs_of_collector(self, word: str) -> list[str]:
        """Return the databases and outside files that the settings of a collector name.

        Files need no permission if the settings are a file outside the project, which the user named.
        """
        from masquerade.services.common.settings import load  # noqa: PLC0415  (loads the services)
        from masquerade.survey.collector.settings import SurveySettings  # noqa: PLC0415

        settings = load(self.folder / word, SurveySettings)
        addresses = [place for place in (settings.store, settings.invitations) if isinstance(place, str)]
        if not all(map(ADDRESS.fullmatch, addresses)):
            raise InputError(
                f"{word}: the address of its database has more than user, host, port and database; "
                "run `masquerade survey export` on the command line instead."
            )
        if Path(word).is_absolute():
            return addresses
        if settings.listen.host not in HERE:
            raise InputError(f"{word}: a collector in a project may listen only at {' or '.join(HERE)}.")
        tls = settings.tls
        files = [settings.state, settings.survey, settings.invitations, settings.token_key]
        files += [settings.team_token, settings.export_token]
        files += [] if tls is None else [tls.certificate, tls.key, tls.authority]
        places = [Path(file).resolve() for file in files if isinstance(file, Path)]
        inside = [place for place in places if place.is_relative_to(self.folder)]
        check_folder(self.folder, [str(place.relative_to(self.folder)) for place in inside])
        return addresses + [str(place) for place in places if place not in inside]


def _item(text: str) -> str:
    if ADDRESS.fullmatch(text):
        return text
    if "://" in text:
        raise InputError(
            "An address looks like postgresql://user@host:5432/database. A password belongs in PGPASSWORD or "
            "~/.pgpass, never in the address."
        )
    return str(Path(text).expanduser().resolve())


def _describe(item: str) -> str:
    if item == LOCAL:
        return f"a table of the PostgreSQL server of this machine ({LOCAL})"
    return item


@contextmanager
def without_credentials() -> Iterator[None]:
    """Remove PostgreSQL's variables, with passwords, files and services, from the environment for a while."""
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
