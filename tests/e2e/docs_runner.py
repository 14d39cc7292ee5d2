"""Run a page of the documentation as a reader would: top to bottom, in an empty folder.

The fences and what becomes of them:

- ``python``   runs, all blocks of a page in one namespace. What it prints must be shown next, in a ``text``
  block or as a Markdown table.
- ``console``  lines after ``$`` run, and must succeed unless they end in ``# exit code N``. The lines below,
  if any, are what they print. A plain command of ours runs in this process; pipes and the rest run in a
  shell with the installed command on its path.
- ``yaml``, ``csv``  below a line that ends in a file's name (``…`people.csv`:``) are written to that file; a
  policy without a name must at least load.
- ``sh`` and fences without a language are for reading only; ``py`` and ``toml`` are files of the example
  package, which a test compares.

Shown output matches if it is the same up to the width of blanks; ``...`` stands for any text on its line, and
alone on a line for any lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command
from typer.testing import CliRunner

import masquerade as mq
from masquerade.cli.app import app

READ_ONLY = {"", "py", "sh", "toml"}
FILE_NAME = re.compile(r"`([\w-]+(?:\.[\w-]+)+)`:$")
EXIT_CODE = re.compile(r"\s+# exit code (\d+)$")
# whether a service that was just started has to be waited for depends on the machine
WAITING = re.compile(r"^masquerade: (?:\S+: )?waiting for '.*\n", re.MULTILINE)
SHELL = re.compile(r"[|<>;&$*]")
SECONDS = 600  # a machine ten times slower gets there too


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its lines, the file it is named for, and what is shown after it."""

    language: str
    text: str
    line: int
    file: str = ""
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command, the exit code it must have, and what it must print (None: not shown)."""

    text: str
    code: int
    shown: str | None


class DocumentationError(AssertionError):
    """A page that does not do what it says."""


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, each with the output that is shown for it."""
    found: list[Block] = []
    lines = text.split("\n")
    above, start = "", None
    for number, line in enumerate(lines):
        if start is None and line.startswith("```"):
            start = number
        elif start is not None and line == "```":
            body = "\n".join(lines[start + 1 : number])
            name = FILE_NAME.search(above)
            found.append(Block(lines[start][3:].strip(), body, start + 1, name[1] if name else ""))
            above, start = "", None
        elif start is None and line.strip():
            above = line.strip()
    if start is not None:
        raise DocumentationError(f"line {start + 1}: this fence is never closed.")
    return list(_with_output(found, lines))


def _with_output(found: Sequence[Block], lines: Sequence[str]) -> Iterator[Block]:
    taken = set()
    for place, block in enumerate(found):
        if block.line in taken:
            continue
        if block.language == "text":
            raise DocumentationError(f"line {block.line}: this output follows no python block.")
        shown = None
        if block.language == "python":
            following = found[place + 1] if place + 1 < len(found) else None
            if following is not None and following.language == "text":
                shown = following.text
                taken.add(following.line)
            else:
                shown = _table(lines[block.line + block.text.count("\n") + 2 :])
        yield Block(block.language, block.text, block.line, block.file, shown)


def _table(lines: Sequence[str]) -> str | None:
    """Return the Markdown table that comes first in these lines, if that is what comes first."""
    rest = list(lines)
    while rest and not rest[0].strip():
        del rest[0]
    end = next((i for i, line in enumerate(rest) if not line.startswith("|")), len(rest))
    return "\n".join(rest[:end]) if end else None


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    result: list[Command] = []
    joined = block.text.replace("\\\n", " ")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        text, _, shown = part.partition("\n")
        code = EXIT_CODE.search(text)
        result.append(
            Command(EXIT_CODE.sub("", text), int(code[1]) if code else 0, shown if shown.strip() else None)
        )
    if not joined.startswith("$ "):
        raise DocumentationError(f"line {block.line}: a console block starts with '$ '.")
    return result


def run_page(page: Path, folder: Path) -> None:
    """Run every block of a page in `folder`; a `DocumentationError` says where it fails."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in blocks(page.read_text(encoding="utf-8")):
            try:
                _run(block, names, page)
            except Exception as error:
                end_services(folder)
                raise DocumentationError(f"{page.name}, line {block.line}: {error}") from error


def end_services(folder: Path) -> None:
    """End the services that a page has started and that it would have ended itself."""
    for file in folder.glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def _run(block: Block, names: dict[str, Any], page: Path) -> None:
    if block.language == "python":
        _compare(_python(block, names, page), block.shown or "")
    elif block.language == "console":
        for command in commands(block):
            _console(command)
    elif block.language in {"yaml", "csv"}:
        _file(block)
    elif block.language not in READ_ONLY:
        raise DocumentationError(f"no way to check a block of {block.language!r}.")


def _python(block: Block, names: dict[str, Any], page: Path) -> str:
    printed = io.StringIO()
    # empty lines first, so that a traceback names the line of the page
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)  # noqa: S102  (our own documentation)
    return printed.getvalue()


def _console(command: Command) -> None:
    own = command.text.startswith("masquerade ") and not SHELL.search(command.text)
    code, printed = _in_process(command.text) if own else _in_shell(command.text)
    if code != command.code:
        raise DocumentationError(f"{command.text!r} ends with exit code {code}:\n{printed}")
    if command.shown is not None:
        _compare(WAITING.sub("", printed), command.shown)


def _in_process(text: str) -> tuple[int, str]:
    """Run a command of ours without the second that a new process takes to load everything."""
    result = CliRunner().invoke(app, shlex.split(text)[1:])
    return result.exit_code, result.output


def _in_shell(text: str) -> tuple[int, str]:
    # the interpreter's own folder, not what it links to: that is where the command was installed
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(  # noqa: S603  (our own documentation)
        ["/bin/bash", "-o", "pipefail", "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": path, "PYTHONWARNINGS": "error"},
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def _file(block: Block) -> None:
    if block.file:
        Path(block.file).write_text(block.text + "\n", encoding="utf-8")
    if block.language == "csv":
        if not block.file:
            raise DocumentationError("a csv block needs the name of its file above it.")
    elif block.file and not block.text.startswith("party:"):  # the offer of a party is not a policy
        mq.Policy.load(block.file)
    elif block.text.startswith("masquerade:"):
        Path("unnamed.yaml").write_text(block.text, encoding="utf-8")
        mq.Policy.load("unnamed.yaml")
    else:
        yaml.safe_load(block.text)


def _compare(printed: str, shown: str) -> None:
    if not re.fullmatch(_pattern(shown), _plain(printed)):
        raise DocumentationError(f"the page shows\n{shown}\n--- but this is printed ---\n{printed}")


def _plain(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.strip().split("\n")]
    return "".join(f"{line}\n" for line in lines if line)


def _pattern(shown: str) -> str:
    lines = []
    for line in _plain(shown).splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(r"\s?.*?\s?".join(re.escape(part.strip()) for part in line.split("...")) + r"\n")
    return "".join(lines)


def words_of(command: str) -> list[str]:
    """Return the words of a shell command, without what comes after a pipe or a redirection."""
    words = shlex.split(command, comments=True)
    end = next((i for i, word in enumerate(words) if word in {"|", ">", ">>", "<", "&&", ";"}), len(words))
    return words[:end]


@cache
def known_commands(*, hidden: bool = True) -> dict[tuple[str, ...], set[str]]:
    """Return every command with its options, also those that its help does not show."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        shown = [one for one in command.params if hidden or not getattr(one, "hidden", False)]
        found[path] = {option for parameter in shown for option in parameter.opts} | {"--help", "-h"}
        if hasattr(command, "list_commands"):  # also those of other packages
            context = command.make_context("masquerade", [], resilient_parsing=True)
            for name in command.list_commands(context):
                walk(command.get_command(context, name), (*path, name))

    walk(get_command(app), ())
    return found
