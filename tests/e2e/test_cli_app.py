"""The command as a whole: help, versions, usage errors; and the small world the other tests share."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import masquerade
from masquerade.cli import output
from masquerade.cli.app import OWN, app, own_command

HIDDEN = "Zyzzyva"  # a clear value that must never be shown
PEOPLE = """\
id,name,smoker,region,visits,married
1,Ann,yes,n,0,true
2,Bob,no,s,1,false
3,Cyd,no,e,2,true
4,Dee,yes,w,0,false
5,Eve,no,n,0,true
6,Flo,no,s,1,true
"""
POLICY = """\
masquerade: 1
limit: {gamma: 1000000000000}  # several draws of the same people
clear: accepted
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  region: {categories: [n, s, e, w], channel: {kind: symmetric, p: 0.3}}
  visits: {categories: [0, 1, 2]}
  married: {categories: [true, false], channel: {kind: binary, p: 0.1}}
"""
COLUMNS = ["smoker", "region", "visits", "married"]


def world(folder: Path, *, people: str = PEOPLE, policy: str = POLICY) -> tuple[Path, Path]:
    """Write people and a policy; return both paths."""
    data, rules = folder / "people.csv", folder / "policy.yaml"
    data.write_text(people, encoding="utf-8")
    rules.write_text(policy, encoding="utf-8")
    return data, rules


def run(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def ok(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command that must succeed."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def refused(*arguments: object, stdin: str | None = None) -> str:
    """Run a command that must be refused: one line, exit code 2, no result; return the line."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("masquerade: ")
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1
    return result.stderr


def files(folder: Path) -> set[str]:
    """Return the names of all files, hidden ones too."""
    return {path.name for path in folder.iterdir()}


def process(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-c", "from masquerade.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=600, **options)  # noqa: S603


def test_version():
    assert ok("--version").stdout == f"masquerade {masquerade.__version__}\n"


@pytest.mark.parametrize(
    "command",
    ["", "disguise", "estimate", "privacy", "demo", "policy", "policy init", "policy check", "policy schema"],
)
def test_help_of_every_command(command):
    assert "Usage: masquerade" in ok(*command.split(), "--help").stdout.replace(
        "Usage: root", "Usage: masquerade"
    )


def test_help_loads_nothing_heavy_and_the_list_of_commands_none_of_them():
    heavy = ("numpy", "pyarrow", "numba", "matplotlib", "pydantic", "pandas")
    code = (
        "import sys; from masquerade.cli.app import OWN, app, own_command\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "places = [place.partition(':')[0] for place, _ in OWN.values()]\n"
        "commands = {place if '.' in place else 'masquerade.cli.' + place for place in places}\n"
        "loaded = commands & {*sys.modules} - {'masquerade.cli.app'}\n"
        "for name in OWN: own_command(name)\n"
        f"loaded |= {{*{heavy!r}}} & {{*sys.modules}}\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", OWN)
def test_a_command_says_itself_what_the_list_says_of_it(name):
    assert " ".join(own_command(name).help.partition("\n\n")[0].split()) == OWN[name][1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["disgiuse"], "Did you mean 'disguise'? See: "),
        (["disguise"], "Missing"),
        (["disguise", "people.csv"], "--policy"),
        (["estimate", "d.csv", "-p", "p.yaml", "--level", "high"], "--level"),
        (["estimate", "d.csv", "-p", "p.yaml", "--kind", "census"], "--kind"),
        (["privacy"], "Name a policy file, or a ledger with --ledger FILE."),
        (["privacy", "p.yaml", "--nonsense"], "--nonsense"),
        (["policy", "chekc"], "check"),
    ],
)
def test_usage_errors_are_one_line(arguments, said):
    assert said in refused(*arguments)


def test_an_unforeseen_error_shows_no_message(monkeypatch, tmp_path):
    data, rules = world(tmp_path)

    def fail(*_args: object, **_kwargs: object) -> None:
        raise KeyError(HIDDEN)

    monkeypatch.setattr(masquerade, "disguise_file", fail, raising=False)
    result = run("disguise", data, "-p", rules, "-o", tmp_path / "out.csv")
    assert result.exit_code == 70
    assert "internal error (KeyError at " in result.stderr
    assert HIDDEN not in result.output
    assert result.stderr.count("\n") == 1


def test_the_demo_prints_its_text_and_writes_its_report(tmp_path):
    told = json.loads(ok("demo", "--out", tmp_path / "demo", "--n", 2000, "--json").stdout)
    assert told["text"]
    assert Path(told["report"]).is_file()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("patience", "appears"), [(0.0, True), (60.0, False)])
def test_progress_appears_on_a_terminal_after_a_while(monkeypatch, patience, appears):
    monkeypatch.setattr(output, "PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.progress("disguising") as advance:
        advance(1, 2)
        until = time.monotonic() + (600 if appears else 0.1)
        while "disguising" not in sys.stderr.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert ("disguising" in sys.stderr.getvalue()) is appears


def test_progress_is_silent_in_a_pipe(monkeypatch):
    monkeypatch.setattr(output, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with output.progress("disguising") as advance:
        advance(1, None)
        time.sleep(0.05)
    assert sys.stderr.getvalue() == ""


def test_a_broken_pipe_is_quiet(tmp_path):
    data, rules = world(tmp_path, people=PEOPLE + "9,Ida,no,s,1,true\n" * 200_000)
    reader, writer = os.pipe()
    os.close(reader)
    code = "from masquerade.cli import main; main()"
    command = [sys.executable, "-c", code, "disguise", str(data), "-p", str(rules), "-o", "-"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)  # noqa: S603
    os.close(writer)
    assert done.returncode == 141
    said = done.stderr.decode()  # nothing, or one line if the pipe still took the header and so perhaps rows
    assert not said or (said.count("\n") == 1 and "rows may have been written to standard output" in said)
