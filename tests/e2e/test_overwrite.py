"""`--overwrite`, of every command that has it: a link is replaced, and what it leads to is left alone."""

from __future__ import annotations

import ast
from pathlib import Path

import click
import pytest
import typer
from tests.e2e.test_cli_app import ok, refused, world

import masquerade
from masquerade.cli.app import app

SOURCE = Path(masquerade.__file__).parent
# modules that open files for writing themselves, and why that is not by a name that a user gives
WRITERS = {
    "core/util/atomic.py": "is what the others write with",
    "audit/page_sampler.py": "a temporary folder of its own",
    "protocols/k_anonymity/threshold/sealed_keys.py": "overwrites a key in its place, to destroy it",
}


def commands(group, name: str = "") -> dict[str, click.Command]:
    """Return all commands by their names."""
    if not hasattr(group, "list_commands"):
        return {name.strip(): group}
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for one in group.list_commands(context):
        found |= commands(group.get_command(context, one), f"{name} {one}")
    return found


def outputs(folder: Path) -> dict[str, tuple[list[object], str]]:
    """Return, for commands that need little else, how they are called and the file that they write."""
    data, rules = world(folder)
    out = folder / "disguised.csv"
    if not out.exists():
        ok("disguise", data, "-p", rules, "-o", out)
    return {
        "disguise": ([data, "-p", rules, "-o"], "target.csv"),
        "estimate": ([out, "-p", rules, "--by", "smoker", "-o"], "target.csv"),
        "privacy": ([rules, "--plot"], "target.svg"),
        "policy init": ([data, "--out"], "target.yaml"),
        "policy schema": (["--out"], "target.json"),
        "report": ([out, "-p", rules, "--out"], "target.html"),
        "plan": ([rules, "--n", "1000", "--epsilon", "2", "--queries", "singles", "--report"], "target.html"),
        "audit policy": ([rules, "--out"], "target.html"),
        "anonymize": ([data, "-k", "2", "--quasi", "region", "--out"], "target.csv"),
    }


def test_overwrite_replaces_a_link_and_never_what_it_leads_to(tmp_path):
    """The attack: a link in a shared folder, with the name of an output, leads to somebody's file."""
    having = {
        name for name, command in commands(typer.main.get_command(app)).items()
        if any("--overwrite" in getattr(option, "opts", ()) for option in command.params)
    }  # fmt: skip
    assert len(having) > 20
    tried = {name: how for name, how in outputs(tmp_path).items() if name in having}
    assert len(tried) >= 6
    for name, (arguments, target) in tried.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        precious, link = folder / "precious", folder / target
        precious.write_text("precious")
        link.symlink_to(precious)
        assert "exists already" in refused(*name.split(), *arguments, link), name
        ok(*name.split(), *arguments, link, "--overwrite")
        assert precious.read_text() == "precious", name
        assert not link.is_symlink(), name
        assert link.stat().st_size > 0, name


def test_nothing_of_ours_writes_a_file_by_another_way():
    """Every command writes through `core.util.atomic`: so what holds there holds for each `--overwrite`."""
    writing = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _writes(node)
    }
    assert writing == WRITERS.keys()


def _writes(call: ast.Call) -> bool:
    """Return True if a call writes to a file by its name."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in {"write_text", "write_bytes"}:
        return True
    modes = [word.value for word in call.keywords if word.arg == "mode"] + call.args[:2]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return name in {"open", "fdopen"} and any(
        set(text) <= set("rwxabt+") and set(text) & set("wxa+") for text in texts
    )


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stdout"])
def test_a_device_is_not_replaced(name):
    before = Path(name).lstat()
    said = refused("policy", "schema", "--out", name, "--overwrite")
    assert "not a regular file" in said
    assert Path(name).lstat().st_mode == before.st_mode
