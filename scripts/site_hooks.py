"""What `mkdocs build` does beyond the pages of docs/: see mkdocs.yml.

Pages outside docs/ (CONTRIBUTING.md and others, READMEs of protocols and services) become pages of the site,
and links to them lead there. Sequence diagrams are drawn.
The reference is made from the code: a page for each public package from its docstrings, a page for each
command from its options. Notebooks become pages with the outputs that they hold.
"""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import posixpath
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

import masquerade
from masquerade.cli.app import app

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sequence_diagram import draw_diagrams

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "other-survey-tools.md",
}
PROTOCOLS = "protocols"
READMES = {
    f"src/masquerade/{path}/README.md": f"{PROTOCOLS}/{path.removeprefix('protocols/').replace('/', '-')}.md"
    for path in (
        "protocols/frequency_mining",
        "protocols/secure_aggregation",
        "protocols/mixnet",
        "protocols/k_anonymity/threshold",
        "protocols/k_anonymity/suppression",
        "protocols/linkage",
        "protocols/vertical",
        "protocols/mpc",
        "protocols/people",
        "protocols/wire",
        "services/parties",
        "services/counting",
        "services/threshold",
        "services/common",
        "survey/collector",
        "survey/device",
        "survey/page",
    )
}
PACKAGES = {
    "masquerade": "The front, `import masquerade as mq`",
    "masquerade.channels": "Masks: known random channels",
    "masquerade.plan": "The best mask for a purpose",
    "masquerade.stats": "Percentages, differences, tests, regressions",
    "masquerade.learn": "Learners and their models",
    "masquerade.evaluate": "Models tested on disguised records",
    "masquerade.audit": "What an attacker really gets",
    "masquerade.anonymity": "k-anonymity, and grouping numbers",
    "masquerade.interop": "Files that other tools open",
    "masquerade.people": "People who keep their own records",
    "masquerade.parties": "Organisations that keep theirs",
    "masquerade.data": "Public data sets and example networks",
    "masquerade.sklearn": "scikit-learn estimators",
    "masquerade.testing": "Does a source keep its promises?",
    "masquerade.extend": "Names for authors of plug-ins",
    "masquerade.core.errors": "Errors",
}
API, COMMANDS, NOTEBOOKS = "reference/api", "reference/commands", "notebooks"
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version, and list the pages that are made here."""
    config.site_name = f"masquerade {masquerade.__version__}"
    listed = str(config.nav)
    further = [
        page for page in pages() if page not in listed
    ]  # a new page has its place before it is given one
    for entry in config.nav:
        if "How-to" in entry:
            entry["How-to"] += [page for page in further if page.startswith("howto/")]
        if "Reference" in entry:
            entry["Reference"].insert(1, {"Python": [f"{API}/{name}.md" for name in PACKAGES]})
            entry["Reference"].insert(2, {"Commands": [f"{COMMANDS}/{name}.md" for name in command_pages()]})
        if "Protocols" in entry:
            entry["Protocols"] += list(READMES.values())
        if "Gallery" in entry:
            entry["Gallery"] += [{"Notebooks": [f"{NOTEBOOKS}/{path.stem}.md" for path in notebooks()]}]
        if "Contribute" in entry:
            entry["Contribute"] += list(ELSEWHERE.values())
            entry["Contribute"] += [page for page in further if not page.startswith("howto/")]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for source, target in (ELSEWHERE | READMES).items():
        text = moved_links(
            (ROOT / source).read_text(encoding="utf-8"), source, posixpath.join("docs", target)
        )
        files.append(File.generated(config, target, content=text))
    for name, title in PACKAGES.items():
        files.append(File.generated(config, f"{API}/{name}.md", content=package_page(name, title)))
    for name, text in command_pages().items():
        files.append(File.generated(config, f"{COMMANDS}/{name}.md", content=text))
    for path in notebooks():
        kept = files.get_file_from_path(f"{NOTEBOOKS}/{path.name}")
        if kept is not None:
            files.remove(kept)
        text, pictures = notebook_page(path)
        files.append(File.generated(config, f"{NOTEBOOKS}/{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"{NOTEBOOKS}/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links that leave docs/ to the pages of the site, and draw sequence diagrams."""
    place = posixpath.join("docs", page.file.src_uri)
    return draw_diagrams(moved_links(markdown, place, place))


def on_page_content(html: str, **_: Any) -> str:
    """Let code that is wider than the screen be scrolled by keyboard, before any script has run."""
    return re.sub(r"(<pre[^>]*>(?:<span></span>)?)<code>", r'\1<code tabindex="0">', html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search window for whoever hears the page."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


# --- pages that lie elsewhere


def moved_links(markdown: str, source: str, target: str) -> str:
    """Return the text of `source` with links that hold at `target`, both paths of the repository.

    Files of the repository that are no pages are named, not linked.
    """

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        if path == "README.md":
            path = "docs/index.md"
        elif path in ELSEWHERE | READMES:
            path = posixpath.join("docs", (ELSEWHERE | READMES)[path])
        elif path.startswith(f"docs/{NOTEBOOKS}/") and path.endswith(".ipynb"):
            path = path.removesuffix(".ipynb") + ".md"
        elif not path.startswith("docs/"):
            return f"{match[1]} (`{path}`)"
        return f"[{match[1]}]({posixpath.relpath(path, posixpath.dirname(target))}{match[3] or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


# --- the reference of Python


def package_page(name: str, title: str) -> str:
    """Return the page of a public package: every public name with its docstring and pages that use it."""
    short = name.replace("masquerade", "mq") if name in shown_as_mq() else name
    lines = [f"# {name}", "", f"For people who write Python. {title}.", ""]
    lines += ["Examples begin with `import masquerade as mq`; each is run as a test.", ""]
    for public, where in public_names(name):
        lines += [f"::: {where}", "    options:", f"      heading: {short}.{public}", ""]
        used = [page for page in pages() if re.search(rf"\b{re.escape(public)}\b", code_of(page))]
        if used:
            links = " · ".join(f"[{title_of(page)}]({posixpath.relpath(page, API)})" for page in used[:3])
            lines += [f"Examples that run: {links}", ""]
    return "\n".join(lines)


def shown_as_mq() -> set[str]:
    """Return the packages that are reached from the front."""
    return {"masquerade", *(f"masquerade.{name}" for name in masquerade.__all__)}


def public_names(package: str) -> Iterator[tuple[str, str]]:
    """Yield the public names of a package, each with the place that defines it; modules are left out."""
    module = importlib.import_module(package)
    own = [name for name in vars(module) if getattr(vars(module)[name], "__module__", "") == package]
    for name in getattr(module, "__all__", own):
        thing = getattr(module, name)
        home = getattr(thing, "__module__", package)
        if get_origin(thing) is not None:  # an annotated type: it is documented where it is written
            continue
        if not inspect.ismodule(thing) and not name.startswith("_"):
            yield name, f"{home}.{getattr(thing, '__qualname__', name)}"


@cache
def pages() -> list[str]:
    """Return the pages of docs/, tutorials first, by their path."""
    found = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    return sorted(
        found, key=lambda page: (not page.startswith("tutorial"), not page.startswith("howto"), page)
    )


@cache
def code_of(page: str) -> str:
    """Return the Python of a page."""
    blocks = FENCE.findall((DOCS / page).read_text(encoding="utf-8"))
    return "\n".join(block for block in blocks if block.startswith("```python"))


def title_of(page: str) -> str:
    """Return the first heading of a page."""
    return (DOCS / page).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


# --- the reference of commands


@cache
def command_pages() -> dict[str, str]:
    """Return a page for each command of the first level, made from the commands themselves."""
    top = get_command(app)
    context = top.make_context("masquerade", [], resilient_parsing=True)
    names = top.list_commands(context)
    return {name: command_page(top.get_command(context, name), name, context) for name in names}


def command_page(command: Any, name: str, context: Any) -> str:
    """Return the page of a command and of those below it."""
    lines = [f"# masquerade {name}", "", "For whoever works on the command line.", ""]
    for path, one in walked(command, (name,), context):
        if len(path) > 1:
            lines += [f"## masquerade {' '.join(path)}", ""]
        lines += [escaped(inspect.cleandoc(one.help or "")), ""]
        if one.params or not hasattr(one, "list_commands"):  # a group may be a command itself
            lines += [
                "```sh",
                f"masquerade {' '.join(path)} {usage(one)}".rstrip(),
                "```",
                "",
                *options(one),
                "",
            ]
    return "\n".join(lines)


def walked(command: Any, path: tuple[str, ...], context: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and all commands below it."""
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from walked(command.get_command(context, name), (*path, name), context)


def usage(command: Any) -> str:
    """Return the arguments of a command as they are typed."""
    return " ".join(
        f"{typed_name(p)}{'...' if p.nargs == -1 else ''}" if p.required
        else f"[{typed_name(p)}]"
        for p in command.params if p.param_type_name == "argument"
    )  # fmt: skip


def typed_name(argument: Any) -> str:
    """Return what stands for an argument in a usage line."""
    return str(argument.metavar or argument.name).upper()


def options(command: Any) -> list[str]:
    """Return a table of the arguments and options of a command."""
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        written = (
            typed_name(parameter)
            if parameter.param_type_name == "argument"
            else ", ".join([*parameter.opts, *parameter.secondary_opts])
        )
        default = parameter.default
        said = "" if default in (None, (), [], False, "") or callable(default) else f" (default: {default})"
        rows.append(f"| `{written}` | {escaped(getattr(parameter, 'help', None) or '')}{said} |")
    return ["| option | what it does |", "|---|---|", *rows] if rows else []


def escaped(text: str) -> str:
    """Return a help text as Markdown: no cell ends, no tag begins; examples keep their lines."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\b", "").replace("[", "\\[")


# --- notebooks


@cache
def notebooks() -> list[Path]:
    """Return the notebooks in order."""
    return sorted((DOCS / NOTEBOOKS).glob("*.ipynb"))


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by name."""
    lines: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [source, ""]
            continue
        lines += ["```python", source, "```", ""]
        for output in cell["outputs"]:
            if "text" in output:
                lines += ["```text", "".join(output["text"]).rstrip(), "```", ""]
            elif "image/png" in output.get("data", {}):
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(output["data"]["image/png"])
                about = cell["metadata"].get("alt", "What the code above draws")
                lines += [f"![{about}]({name})", ""]
    lines += [f"The notebook itself is `docs/{NOTEBOOKS}/{path.name}` of the repository.", ""]
    return "\n".join(lines), pictures
