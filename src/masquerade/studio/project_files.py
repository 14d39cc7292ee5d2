"""Strict parsers of project files, because a project may come from an untrusted person."""

from __future__ import annotations

import json
import stat
from collections.abc import Collection, Iterable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import visible
from masquerade.studio.allow_list import read_step

FORMAT = 1
FRESH: dict[str, Any] = {"masquerade_studio": FORMAT, "data": None, "records": None, "people": None}
MOST_PEOPLE = 10**10
MOST_TEXT = 4000
RECORDS = ("data", "policy", "engine", "url", "collector")
# files that configure other programs in their working directory: Numba would load any cache named there
FOREIGN_SETTINGS = (".numba_config.yaml", "matplotlibrc")
# what Python, Jupyter and marimo read from the folder of a notebook
NOTEBOOK_SETTINGS = (
    *("*.dist-info", "*.egg-info", "*.egg", "pyproject.toml", ".marimo.toml", "marimo.toml", ".env"),
    *("jupyter*_config.json", "ipython*_config.json"),
)


def check_folder(folder: Path, names: Collection[str]) -> None:
    """Raise FileError if a file of a project is a link or a device, or configures other programs."""
    for name in FOREIGN_SETTINGS:
        if (folder / name).is_symlink() or (folder / name).exists():
            raise FileError(
                f"{folder / name}: configures other programs that run in that folder; a project must not "
                "contain it. Remove it."
            )
    for path in _walk(folder / name for name in names):
        kind = path.lstat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            what = "a link" if stat.S_ISLNK(kind) else "neither a file nor a folder"
            raise FileError(f"{path}: is {what}; a project may contain only regular files. Remove it.")
        if "\\" in path.name or not path.name.isprintable():  # "..\\x" in a zip file is a path on Windows
            raise FileError(f"{visible(str(path))}: is a path on other systems. Rename it.")


def check_notebook_folder(folder: Path) -> None:
    """Raise FileError if a folder contains modules or settings that a notebook opened in it would load."""
    endings = tuple(all_suffixes())
    for path in sorted(folder.iterdir()):
        inside = path.iterdir() if path.is_dir() else [path]
        code = any(file.name.endswith(endings) for file in inside)
        if code or any(path.match(name) for name in NOTEBOOK_SETTINGS):
            raise FileError(
                f"{path}: a notebook in this folder would run it as code or read it as settings. Move it "
                "to another folder first."
            )


def _walk(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the existing paths and everything below folders; do not follow links."""
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path.is_symlink() or path.exists():
            yield path
            if path.is_dir() and not path.is_symlink():
                waiting += path.iterdir()


def read_settings(values: Any, where: str) -> dict[str, Any]:
    """Return the settings in a file, with all keys present and each of its type."""
    if not isinstance(values, dict) or values.get("masquerade_studio") != FORMAT:
        raise InputError(f"{where}: is not a project of this version of masquerade.")
    settings = FRESH | values
    unknown = sorted(set(settings) - set(FRESH))
    if unknown:
        raise InputError(f"{where}: {unknown[0]!r} is not a setting of a project.")
    people = settings["people"]
    if people is not None and (type(people) is not int or not 0 < people <= MOST_PEOPLE):
        raise InputError(f"{where}: 'people' must be a whole number above 0, or null.")
    if settings["data"] is not None and not _is_name(settings["data"]):
        raise InputError(f"{where}: 'data' must be the path of a file, or null.")
    _check_records(settings["records"], where)
    return settings


def _check_records(records: Any, where: str) -> None:
    if records is None:
        return
    if not isinstance(records, dict) or not set(records) <= set(RECORDS) or not _is_name(records.get("data")):
        raise InputError(f"{where}: 'records' must name 'data', and may name {', '.join(RECORDS[1:])}.")
    wrong = [name for name, value in records.items() if value is not None and not _is_name(value)]
    if wrong:
        raise InputError(f"{where}: 'records.{wrong[0]}' must be a text of at most {MOST_TEXT:,} characters.")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MOST_TEXT and "\0" not in value


def read_counts(values: Any, where: str) -> dict[str, int]:
    """Return the number of records of each file."""
    if not isinstance(values, dict) or not all(
        type(rows) is int and 0 <= rows <= MOST_PEOPLE for rows in values.values()
    ):
        raise InputError(f"{where}: must name a whole number of records for every file.")
    return values


def read_draft(values: Any, where: str) -> tuple[list[str], dict[str, Any]]:
    """Return the command of a draft, which must be in the allow-list, and its output."""
    if isinstance(values, dict) and set(values) == {"command", "printed"}:
        argv, printed = values["command"], values["printed"]
        if isinstance(printed, dict) and read_step(argv).command == ("policy", "init"):
            return list(argv), printed
    raise InputError(f"{where}: is not a draft with its command.")


def read_index(values: Any, where: str) -> tuple[int, list[str]]:
    """Return the current version, and the description of each version."""
    if isinstance(values, dict) and set(values) == {"at", "words"}:
        at, words = values["at"], values["words"]
        texts = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if texts and type(at) is int and 0 <= at < len(words):
            return at, list(words)
    raise InputError(f"{where}: is not a list of versions with the current one.")


def read_version(values: Any, where: str) -> tuple[dict[str, Any], str | None]:
    """Return the settings of a version and the text of its policy, which is valid or None."""
    settings, policy = settings_of(values, where), values["policy"]
    if policy is not None:
        if not isinstance(policy, str):
            raise InputError(f"{where}: its policy is not a text.")
        from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy and pydantic)
        from masquerade.channels.policy import text as policy_text  # noqa: PLC0415

        parsed = policy_text.parse(policy, "yaml")
        if not isinstance(parsed, dict) or not isinstance(parsed.get("variables"), dict):
            raise InputError(f"{where}: its policy lists no 'variables'.")
        if parsed["variables"]:
            Policy.from_dict(parsed)
    return settings, policy


def settings_of(values: Any, where: str) -> dict[str, Any]:
    """Return the settings of a version."""
    if not isinstance(values, dict) or set(values) != {"settings", "policy"}:
        raise InputError(f"{where}: is not a version of a project.")
    return read_settings(values["settings"], where)


class HiddenPaths:
    """Replacement of local paths by file names, in a copy of a project for other people."""

    def __init__(self, folder: Path, paths: Iterable[str]) -> None:
        pairs = [(path, Path(path).name) for path in paths]
        pairs += [(f"{parent}/", "") for parent in {str(Path(path).parent) for path, _ in pairs} - {"/"}]
        pairs.append((f"{folder}/", ""))
        home = str(Path.home())
        pairs += [] if home == "/" else [(home, "~")]
        pairs.sort(key=lambda pair: -len(pair[0]))
        self._pairs = [(_escape(path), _escape(name)) for path, name in pairs]

    def replace(self, content: bytes) -> bytes:
        """Return the bytes of a JSON or YAML file without the paths."""
        for path, name in self._pairs:
            content = content.replace(path, name)
        return content


def _escape(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()
