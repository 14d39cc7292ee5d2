"""The documentation does what it says: examples run, links lead somewhere, names and commands exist."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from tests.e2e.docs_runner import DocumentationError, blocks, commands, known_commands, run_page, words_of

import masquerade as mq
from masquerade.channels.policy.channel_models import KINDS, OwnSpec
from masquerade.core import errors

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*GUIDES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
FORMATS = ROOT / "docs" / "formats.md"
OF_OTHERS = {
    "--check",
    "--newest",
    "--strict",
    "--upgrade",
    "--help",
    "--version",
}  # options of ruff, mypy, twine and scripts, and those of all commands


def short(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def named_objects() -> dict[str, Any]:
    """Return what a page may call `mq.disguise`, `CountTable.stderr` and so on."""
    return {"mq": mq} | {name: getattr(mq, name) for name in mq.__all__}


@pytest.mark.parametrize("page", GUIDES, ids=short)
def test_the_examples_run(page, tmp_path):
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        found = page if not path else (page.parent / path).resolve()
        assert "://" not in target, f"{target}: pages link to files of ours only"
        assert found.exists(), f"{short(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", read(found), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def test_every_page_is_reachable_from_the_readme():
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        reached.add(page)
        targets = re.findall(r"\]\(([^)\s#]+\.md)\)", prose(page))
        left += [found for target in targets if (found := (page.parent / target).resolve()) not in reached]
    assert set(PAGES) <= reached


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_commands_and_options_exist(page):
    shown = [command.text for block in blocks(read(page)) if block.language == "console"
             for command in commands(block)]  # fmt: skip
    spoken = [code for code in inline_code(page) if code.startswith("masquerade ")]
    for text in shown + spoken:
        words = words_of(text)
        if words[0] != "masquerade":
            continue
        path: tuple[str, ...] = ()
        while len(words) > len(path) + 1 and (*path, words[len(path) + 1]) in known_commands():
            path = (*path, words[len(path) + 1])
        assert path or words[1:2] in (["--version"], ["--help"]), f"{short(page)}: {text}"
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known_commands()[path], f"{short(page)}: {text}"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_options_in_the_text_exist(page):
    known = set().union(*known_commands().values()) | OF_OTHERS
    for code in inline_code(page):
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
            assert option in known, f"{short(page)}: {option}"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z][\w-]*):", read(ROOT / "Makefile"), flags=re.MULTILINE))
    for target in re.findall(r"(?:^|`)make ([a-z][\w-]*)", read(page), flags=re.MULTILINE):
        assert target in targets, f"{short(page)}: make {target}"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_channels_in_the_text_are_channels(page):
    adapter = TypeAdapter(OwnSpec)
    for code in inline_code(page):
        if code.startswith("{kind:"):
            adapter.validate_python(yaml.safe_load(code))


def test_every_kind_of_channel_is_explained():
    shown = {match[1] for code in inline_code(ROOT / "docs/howto/disguise.md")
             if (match := re.match(r"\{kind: (\w+)", code))}  # fmt: skip
    assert shown == set(KINDS) - {"decide"}


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_signatures_are_those_of_the_code(page):
    for code in inline_code(page):
        match = re.fullmatch(r"([A-Za-z_]+(?:\.[A-Za-z_]+)+)\((.*)\)", code)
        first = code.partition(".")[0]
        if match is None or first not in named_objects():
            continue
        target: Any = named_objects()[first]
        for name in match[1].split(".")[1:]:
            assert hasattr(target, name), f"{short(page)}: {code}"
            target = getattr(target, name)
        given = ast.parse(f"shown({match[2]})", mode="eval").body if "…" not in match[2] else None
        if isinstance(given, ast.Call) and callable(target):
            parameters = inspect.signature(target).parameters.values()
            free = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
            known = {parameter.name for parameter in parameters}
            named = {keyword.arg for keyword in given.keywords if keyword.arg}
            assert free or named <= known, f"{short(page)}: {code}"


def test_every_error_is_explained():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, (errors.MasqueradeError, errors.MasqueradeWarning)):
            assert f"`{name}`" in read(FORMATS)


def test_the_licence_is_the_one_declared():
    assert 'license = "Apache-2.0"' in read(ROOT / "pyproject.toml")
    assert "END OF TERMS AND CONDITIONS" in read(ROOT / "LICENSE")


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "this is printed"),
        ("```python\nprint(1)\n```\n", "this is printed"),
        ("```python\nraise ValueError('no')\n```\n", "no"),
        ("```text\n1\n```\n", "follows no python block"),
        ("```python\n", "never closed"),
        ("```console\n$ exit 3\n```\n", "exit code 3"),
        ("```console\n$ echo one\ntwo\n```\n", "this is printed"),
        ("```yaml\nmasquerade: 7\n```\n", "format"),
        ("```fortran\nEND\n```\n", "no way to check"),
    ],
)
def test_a_page_that_lies_is_caught(page, complaint, tmp_path):
    written = tmp_path / "page.md"
    written.write_text(page, encoding="utf-8")
    with pytest.raises(DocumentationError, match=complaint):
        run_page(written, tmp_path)


def test_a_page_that_does_not_lie_passes(tmp_path):
    written = tmp_path / "page.md"
    written.write_text(
        "The file `a.csv`:\n\n```csv\nx\n1\n```\n"
        "\n```console\n$ cat a.csv\nx\n1\n$ exit 3  # exit code 3\n```\n"
        "\n```python\nprint('a   b 17')\nprint('c')\nprint('d')\n```\n\n```text\na b ...\n...\nd\n```\n"
        "\n```python\nprint('| x |')\n```\n\n| x |\n",
        encoding="utf-8",
    )
    run_page(written, tmp_path)
