"""A project: a folder of plain files, every change of it a version that can be taken back."""

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
COUNTS = "counts.json"
PARTS = ("releases", "collected", "models", "survey")  # what was made or brought here; nothing clear
OWN = (SETTINGS, POLICY, HISTORY, STEPS, RESULTS, COUNTS, *PARTS, "downloads", "people.memo")
MOST_RESULT = 1 << 26  # bytes
SOME_PEOPLE = 1000  # before anybody says how many there are, and no file was counted


@lru_cache(maxsize=4)
def _read_once(text: str) -> Any:
    return policy_text.parse(text, "yaml")


def _parsed(text: str) -> Any:
    """Return what a policy file says: the same text is parsed once, and the values are the caller's own."""
    return deepcopy(_read_once(text))


class Project:
    """The files of a project, read and written whole.

    `project.json` says where the data are, `policy.yaml` is the policy; `history` has both as they were after
    every change. `steps.json` lists the commands whose results are in `results`, each as the command printed
    it. No file holds clear data.
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
            raise FileError(f"{folder}: cannot be a project ({reason}); name a folder of yours.") from None
        if not (self.folder / SETTINGS).exists():
            self._write(SETTINGS, project_files.FRESH)
            self._keep("a new project")
        self.check()

    def check(self) -> None:
        """Raise InputError unless the files that every page reads are as the studio writes them."""
        _ = self.settings, self.at, self.people, self.steps

    @property
    def settings(self) -> dict[str, Any]:
        """Return where the data are, and what was chosen."""
        return project_files.read_settings(self._read(SETTINGS), str(self.folder / SETTINGS))

    @property
    def policy_values(self) -> dict[str, Any]:
        """Return the policy as its file has it; no variables where there is none yet."""
        if not (self.folder / POLICY).exists():
            return {"masquerade": 1, "variables": {}}
        values = _parsed(read_text(self.folder / POLICY))
        if not isinstance(values, dict) or not isinstance(values.get("variables"), dict):
            raise InputError(f"{self.folder / POLICY}: lists no 'variables'.")
        return values

    @property
    def policy(self) -> Policy | None:
        """Return the policy, None where nothing is in it yet."""
        values = self.policy_values
        return Policy.from_dict(values) if values["variables"] else None

    @property
    def people(self) -> int:
        """Return how many people there are: as somebody said, or as many as the file has records."""
        settings = self.settings
        return int(settings["people"] or self._counts.get(settings["data"]) or SOME_PEOPLE)

    @property
    def _counts(self) -> dict[str, int]:
        path = self.folder / COUNTS
        return project_files.read_counts(self._read(COUNTS), str(path)) if path.exists() else {}

    def keep_count(self, data: str, rows: int) -> None:
        """Keep how many records a file has; that is no change to be taken back."""
        with self.lock:
            self._write(COUNTS, self._counts | {data: rows})

    @contextmanager
    def changed(self, words: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield settings and policy to be changed; what is left of them is checked, and a new version.

        Changes of two pages follow each other: each begins with what the other left.
        """
        with self.lock:
            settings, values = self.settings, self.policy_values
            before = json.dumps([settings, policy_text.plain_values(values)])
            yield settings, values
            if json.dumps([settings, policy_text.plain_values(values)]) == before:
                return
            if values["variables"]:
                Policy.from_dict(values)  # a policy that cannot be one is refused before anything is written
                write_whole(self.folder / POLICY, policy_text.write(values, "yaml"))
            self._write(SETTINGS, settings)
            self._keep(words)

    # versions

    @property
    def versions(self) -> list[str]:
        """Return what was done, in order; the last version is the newest."""
        return self._index[1]

    @property
    def at(self) -> int:
        """Return which version is in force."""
        return self._index[0]

    @property
    def _index(self) -> tuple[int, list[str]]:
        name = f"{HISTORY}/index.json"
        return project_files.read_index(self._read(name), str(self.folder / name))

    def go_to(self, version: int) -> None:
        """Put a version in force; those after it stay until something else is changed."""
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
        """Return the name of a command's result: by its words, and the files that it reads as they are."""
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
        """Return the kept result of that name as its command printed it, None where there is none."""
        path = self.folder / RESULTS / f"{name}.json"
        if not RESULT.fullmatch(name) or not path.exists():
            return None
        return read_text(path, most=MOST_RESULT)

    def result(self, name: str) -> Any:
        """Return the values of the kept result of that name, None where there is none."""
        if self.result_text(name) is None:
            return None
        return read_json(self.folder / RESULTS / f"{name}.json", most=MOST_RESULT)

    def keep_result(self, argv: Sequence[str], name: str, text: str, said: Sequence[str]) -> None:
        """Keep what a command printed, and that it was asked."""
        with self.lock:
            write_whole(self.folder / RESULTS / f"{name}.json", text)
            steps = [_plain(step) for step in self.steps if step.result != name]
            self._write(STEPS, [*steps, {"command": list(argv), "result": name, "said": list(said)}])

    @property
    def steps(self) -> list[KeptStep]:
        """Return the commands whose results are kept, in the order in which they were asked.

        A list with a command that the studio does not write is refused.
        """
        return read_steps(self._read(STEPS)) if (self.folder / STEPS).exists() else []

    def archive(self) -> bytes:
        """Return the project as a zip file: its files and releases, never the data they were made from.

        Paths of files outside the folder are replaced by the names of the files.
        """
        counts = {Path(data).name: rows for data, rows in self._counts.items()}
        shared = {SETTINGS: self.settings | {"data": None}, COUNTS: counts}
        hidden = project_files.HiddenPaths(self.folder, self._outside_paths())
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            names = sorted([SETTINGS, POLICY, STEPS, COUNTS, *self._inside(HISTORY, RESULTS)])
            for name in [*names, *sorted(self._inside(*PARTS))]:
                path = self.folder / name
                if path.is_file() and not path.is_symlink():
                    content = _encode(shared[name]) if name in shared else path.read_bytes()
                    content = hidden.replace(content) if name in names else content
                    file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        return buffer.getvalue()

    def _outside_paths(self) -> set[str]:
        """Return the paths of files outside the folder that any file of the project names."""
        named: set[str | None] = {*self._counts, *(word for step in self.steps for word in step.step.reads)}
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
