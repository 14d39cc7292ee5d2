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

from masquerade.channels import policy_text
from masquerade.channels.policy import Policy
from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError, InputError

FORMAT = 1
SETTINGS, POLICY, HISTORY, STEPS, RESULTS = "project.json", "policy.yaml", "history", "steps.json", "results"
COUNTS = "counts.json"
PARTS = ("releases", "collected", "models", "survey")  # what was made or brought here; nothing clear
FRESH: dict[str, Any] = {"masquerade_studio": FORMAT, "data": None, "records": None, "people": None}
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
        try:
            (self.folder / HISTORY).mkdir(parents=True, exist_ok=True)
            (self.folder / RESULTS).mkdir(exist_ok=True)
        except OSError as error:
            reason = os.strerror(error.errno or 5).lower()
            raise FileError(f"{folder}: cannot be a project ({reason}); name a folder of yours.") from None
        if not (self.folder / SETTINGS).exists():
            self._write(SETTINGS, FRESH)
            self._keep("a new project")

    @property
    def settings(self) -> dict[str, Any]:
        """Return where the data are, and what was chosen."""
        found = self._read(SETTINGS)
        if not isinstance(found, dict) or found.get("masquerade_studio") != FORMAT:
            raise InputError(f"{self.folder / SETTINGS}: is no project of this version of masquerade.")
        return FRESH | found

    @property
    def policy_values(self) -> dict[str, Any]:
        """Return the policy as its file has it; no variables where there is none yet."""
        if not (self.folder / POLICY).exists():
            return {"masquerade": 1, "variables": {}}
        values = _parsed((self.folder / POLICY).read_text(encoding="utf-8"))
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
        counts = self._read(COUNTS) if (self.folder / COUNTS).exists() else {}
        return int(settings["people"] or counts.get(settings["data"]) or SOME_PEOPLE)

    def keep_count(self, data: str, rows: int) -> None:
        """Keep how many records a file has; that is no change to be taken back."""
        with self.lock:
            counts = self._read(COUNTS) if (self.folder / COUNTS).exists() else {}
            self._write(COUNTS, counts | {data: rows})

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
        return list(self._read(f"{HISTORY}/index.json")["words"])

    @property
    def at(self) -> int:
        """Return which version is in force."""
        return int(self._read(f"{HISTORY}/index.json")["at"])

    def go_to(self, version: int) -> None:
        """Put a version in force; those after it stay until something else is changed."""
        with self.lock:
            words = self.versions
            if not 0 <= version < len(words):
                raise InputError(f"There is no version {version}: they are numbered 0 to {len(words) - 1}.")
            kept = self._read(f"{HISTORY}/{version:06}.json")
            if kept["policy"] is None:
                (self.folder / POLICY).unlink(missing_ok=True)
            else:
                write_whole(self.folder / POLICY, kept["policy"])
            self._write(SETTINGS, kept["settings"])
            self._write(f"{HISTORY}/index.json", {"at": version, "words": words})

    def _keep(self, words: str) -> None:
        index = self.folder / HISTORY / "index.json"
        before = self.versions[: self.at + 1] if index.exists() else []
        policy = self.folder / POLICY
        text = policy.read_text(encoding="utf-8") if policy.exists() else None
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

    def result(self, name: str) -> Any:
        """Return the kept result of that name, None where there is none."""
        path = self.folder / RESULTS / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def keep_result(self, argv: Sequence[str], name: str, text: str, said: Sequence[str]) -> None:
        """Keep what a command printed, and that it was asked."""
        with self.lock:
            write_whole(self.folder / RESULTS / f"{name}.json", text)
            steps = [step for step in self.steps if step["result"] != name]
            self._write(STEPS, [*steps, {"command": list(argv), "result": name, "said": list(said)}])

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Return the commands whose results are kept, in the order in which they were asked."""
        return list(self._read(STEPS)) if (self.folder / STEPS).exists() else []

    def archive(self) -> bytes:
        """Return the project as a zip file: its files and releases, never the data they were made from."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            names = [SETTINGS, POLICY, STEPS, COUNTS, *sorted(self._inside(HISTORY, RESULTS, *PARTS))]
            for name in names:
                path = self.folder / name
                if path.is_file():
                    settings = self.settings | {"data": None} if name == SETTINGS else None
                    content = path.read_bytes() if settings is None else json.dumps(settings).encode()
                    file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        return buffer.getvalue()

    def _inside(self, *folders: str) -> Iterator[str]:
        for folder in folders:
            for path in (self.folder / folder).rglob("*"):
                if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                    yield path.relative_to(self.folder).as_posix()

    def _read(self, name: str) -> Any:
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise FileError(f"{path}: cannot be read as JSON; take the file from a copy.") from None

    def _write(self, name: str, values: Mapping[str, Any] | Sequence[Any]) -> None:
        write_whole(self.folder / name, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
