"""Projects: folders of plain files in which every change is a version that can be undone."""

from __future__ import annotations

import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_json, read_text
from masquerade.studio import project_files
from masquerade.studio.allow_list import RESULT, KeptStep, read_steps

SETTINGS, POLICY, HISTORY, STEPS, RESULTS = "project.json", "policy.yaml", "history", "steps.json", "results"
COUNTS, DRAFT = "counts.json", "draft.json"
PARTS = ("releases", "collected", "models", "survey")  # created or imported files; no clear data
OWN = (SETTINGS, POLICY, HISTORY, STEPS, RESULTS, COUNTS, DRAFT, *PARTS, "downloads", "people.memo")
MOST_RESULT = 1 << 26  # bytes
SOME_PEOPLE = 1000  # default number of people, before a file is counted


@lru_cache(maxsize=4)
def _read_once(text: str) -> Any:
    return policy_text.parse(text, "yaml")


def _parse_policy(text: str) -> Any:
    """Parse a policy file, with a cache by its text; return a copy that the caller may change."""
    return deepcopy(_read_once(text))


class Project:
    """The files of a project, read and written atomically.

    `project.json` states where the data are; `policy.yaml` is the policy; `history` has copies of both after
    every change. `steps.json` lists the commands whose results are in `results`, each as the command printed
    it. No file contains clear data.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.lock = threading.RLock()
        project_files.check_folder(self.folder, OWN)
        try:
            (self.folder / HISTORY).mkdir(parents=True, exist_ok=True)
            (self.folder / RESULTS).mkdir(exist_ok=True)
        except OSError as error:
            reason = os.strerror(error.errno or 5).lower()
            raise FileError(
                f"{folder}: cannot be a project ({reason}); name a folder that you can write to."
            ) from None
        if not (self.folder / SETTINGS).exists():
            self._write(SETTINGS, project_files.FRESH)
            self._keep("a new project")
        self.check()

    def check(self) -> None:
        """Raise InputError if a file that every page reads does not have the studio's form."""
        _ = self.settings, self.at, self.people, self.steps, self.draft

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings: the location of the data, and the choices."""
        return project_files.read_settings(self._read(SETTINGS), str(self.folder / SETTINGS))

    @property
    def policy_values(self) -> dict[str, Any]:
        """Return the content of the policy file; without variables if there is no policy."""
        if not (self.folder / POLICY).exists():
            return {"masquerade": 1, "variables": {}}
        values = _parse_policy(read_text(self.folder / POLICY))
        if not isinstance(values, dict) or not isinstance(values.get("variables"), dict):
            raise InputError(f"{self.folder / POLICY}: lists no 'variables'.")
        return values

    @property
    def policy(self) -> Policy | None:
        """Return the policy, or None if it has no variables."""
        values = self.policy_values
        return Policy.from_dict(values) if values["variables"] else None

    @property
    def people(self) -> int:
        """Return the number of people: as set by the user, or the number of records of the file."""
        settings = self.settings
        return int(settings["people"] or self._counts.get(settings["data"]) or SOME_PEOPLE)

    @property
    def _counts(self) -> dict[str, int]:
        path = self.folder / COUNTS
        return project_files.read_counts(self._read(COUNTS), str(path)) if path.exists() else {}

    def keep_count(self, data: str, rows: int) -> None:
        """Store the number of records of a file; this is not a version that can be undone."""
        with self.lock:
            self._write(COUNTS, self._counts | {data: rows})

    @property
    def draft(self) -> tuple[list[str], dict[str, Any]] | None:
        """Return the command of the latest draft and its output, or None."""
        path = self.folder / DRAFT
        return project_files.read_draft(self._read(DRAFT), str(path)) if path.exists() else None

    def keep_draft(self, argv: Sequence[str], printed: Mapping[str, Any]) -> None:
        """Store the guarantee and costs of a draft; the policy itself is a version of the project."""
        with self.lock:
            self._write(DRAFT, {"command": list(argv), "printed": dict(printed)})

    @contextmanager
    def edit(self, words: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield settings and policy for editing; then check them and store them as a new version.

        Changes from two pages are applied in sequence: the second starts from the result of the first.
        """
        with self.lock:
            settings, values = self.settings, self.policy_values
            before = json.dumps([settings, policy_text.plain_values(values)])
            yield settings, values
            if json.dumps([settings, policy_text.plain_values(values)]) == before:
                return
            if values["variables"]:
                Policy.from_dict(values)  # raises if the policy is not valid, before anything is written
                write_whole(self.folder / POLICY, policy_text.write(values, "yaml"))
            self._write(SETTINGS, settings)
            self._keep(words)

    # versions

    @property
    def versions(self) -> list[str]:
        """Return the descriptions of all versions, the newest last."""
        return self.version_index[1]

    @property
    def at(self) -> int:
        """Return the number of the current version."""
        return self.version_index[0]

    @property
    def version_index(self) -> tuple[int, list[str]]:
        """Return the number of the current version and all descriptions, of one moment.

        A job may add a version between two calls.
        """
        name = f"{HISTORY}/index.json"
        return project_files.read_index(self._read(name), str(self.folder / name))

    def go_to(self, version: int) -> None:
        """Make a version current; later versions remain until the next change."""
        with self.lock:
            words = self.versions
            if not 0 <= version < len(words):
                raise InputError(f"There is no version {version}: they are numbered 0 to {len(words) - 1}.")
            name = f"{HISTORY}/{version:06}.json"
            settings, policy = project_files.read_version(self._read(name), str(self.folder / name))
            if policy is None:
                (self.folder / POLICY).unlink(missing_ok=True)
            else:
                write_whole(self.folder / POLICY, policy)
            self._write(SETTINGS, settings)
            self._write(f"{HISTORY}/index.json", {"at": version, "words": words})

    def _keep(self, words: str) -> None:
        index = self.folder / HISTORY / "index.json"
        before = self.versions[: self.at + 1] if index.exists() else []
        policy = self.folder / POLICY
        text = read_text(policy) if policy.exists() else None
        self._write(f"{HISTORY}/{len(before):06}.json", {"settings": self.settings, "policy": text})
        self._write(f"{HISTORY}/index.json", {"at": len(before), "words": [*before, words]})

    # steps and results

    def result_id(self, argv: Sequence[str]) -> str:
        """Return the name of a command's result: a hash of its words and of the files it reads."""
        states = []
        for word in argv:
            path = self.folder / word
            if word and not word.startswith("-") and path.is_file():
                if path.suffix in {".yaml", ".yml", ".json"}:
                    states.append(sha256(path.read_bytes()).hexdigest())
                else:
                    found = path.stat()
                    states.append(f"{found.st_size} {found.st_mtime_ns}")
        return sha256(json.dumps([list(argv), states]).encode()).hexdigest()[:16]

    def result_text(self, name: str) -> str | None:
        """Return the stored result of that name as its command printed it, or None."""
        path = self.folder / RESULTS / f"{name}.json"
        if not RESULT.fullmatch(name) or not path.exists():
            return None
        return read_text(path, most=MOST_RESULT)

    def result(self, name: str) -> Any:
        """Return the values of the stored result of that name, or None."""
        if self.result_text(name) is None:
            return None
        return read_json(self.folder / RESULTS / f"{name}.json", most=MOST_RESULT)

    def keep_result(self, argv: Sequence[str], name: str, text: str, said: Sequence[str]) -> None:
        """Store a command and its output."""
        with self.lock:
            write_whole(self.folder / RESULTS / f"{name}.json", text)
            steps = [_plain(step) for step in self.steps if step.result != name]
            self._write(STEPS, [*steps, {"command": list(argv), "result": name, "said": list(said)}])

    @property
    def steps(self) -> list[KeptStep]:
        """Return the commands whose results are stored, in the order in which they were run.

        A list with a command that is not in the allow-list is refused.
        """
        return read_steps(self._read(STEPS)) if (self.folder / STEPS).exists() else []

    def archive(self) -> bytes:
        """Return the project as a zip file: its files and releases, never the clear data.

        Paths of files outside the folder are replaced by the names of the files.
        """
        counts = {Path(data).name: rows for data, rows in self._counts.items()}
        shared = {SETTINGS: self.settings | {"data": None}, COUNTS: counts}
        hidden = project_files.HiddenPaths(self.folder, self._outside_paths())
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            names = sorted([SETTINGS, POLICY, STEPS, COUNTS, DRAFT, *self._inside(HISTORY, RESULTS)])
            for name in [*names, *sorted(self._inside(*PARTS))]:
                path = self.folder / name
                if path.is_file() and not path.is_symlink():
                    content = _encode(shared[name]) if name in shared else path.read_bytes()
                    content = hidden.replace(content) if name in names else content
                    file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        return buffer.getvalue()

    def _outside_paths(self) -> set[str]:
        """Return the paths of files outside the folder that any file of the project names."""
        drafted = [] if self.draft is None else self.draft[0]
        steps = (word for step in self.steps for word in step.step.reads)
        named: set[str | None] = {*self._counts, *drafted, *steps}
        versions = {name: self._read(name) for name in self._inside(HISTORY) if name[-9:-5].isdecimal()}
        earlier = [project_files.settings_of(values, name) for name, values in versions.items()]
        for settings in [self.settings, *earlier]:
            records = settings["records"] or {}
            named |= {settings["data"], *(records.get(key) for key in ("data", "policy", "collector"))}
        return {path for path in named if path and Path(path).is_absolute()}

    def _inside(self, *folders: str) -> Iterator[str]:
        for folder in folders:
            for path in (self.folder / folder).rglob("*"):
                if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                    yield path.relative_to(self.folder).as_posix()

    def _read(self, name: str) -> Any:
        return read_json(self.folder / name)

    def _write(self, name: str, values: Mapping[str, Any] | Sequence[Any]) -> None:
        write_whole(self.folder / name, _encode(values))


def _encode(values: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _plain(step: KeptStep) -> dict[str, Any]:
    return {"command": step.command, "result": step.result, "said": step.said}
