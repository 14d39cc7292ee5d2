"""Code that others publish is named by its content: actions by commit, images by digest, never by a tag."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.y*ml"))
CONTAINERS = sorted(path for path in (ROOT / "deploy").rglob("*") if "ontainerfile" in path.name)
COMPOSE = sorted((ROOT / "deploy").glob("*.y*ml"))
COMMIT = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
DIGEST = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")


def values_of(key: str, node: Any) -> Iterator[Any]:
    """Yield every value of a key, at any depth."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from values_of(key, value)
    elif isinstance(node, list):
        for value in node:
            yield from values_of(key, value)


def movable_actions(text: str) -> list[str]:
    """Return the actions of a workflow that a tag or branch names, and images that no digest names."""
    tree = yaml.safe_load(text)
    actions = [use for use in values_of("uses", tree) if not use.startswith("./")]
    images = [image for key in ("image", "container") for image in values_of(key, tree)]
    images = [image for image in images if isinstance(image, str)]
    images += [use.removeprefix("docker://") for use in actions if use.startswith("docker://")]
    actions = [use for use in actions if not use.startswith("docker://")]
    return [use for use in actions if not COMMIT.fullmatch(use)] + [
        image for image in images if not DIGEST.fullmatch(image)
    ]


def movable_bases(text: str) -> list[str]:
    """Return the images that a container file starts or copies from and that no digest names."""
    stages, movable = {"scratch"}, []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0].upper() not in {"FROM", "COPY", "ADD", "RUN"}:
            continue
        named = [word.partition("=")[2] for word in words if word.startswith("--from=")]
        named += re.findall(r"\bfrom=([^,\s]+)", " ".join(words)) if words[0].upper() == "RUN" else []
        if words[0].upper() == "FROM":
            plain = [word for word in words[1:] if not word.startswith("--")]
            named.append(plain[0])
            stages |= {plain[2]} if len(plain) > 2 else set()
        elif words[0].upper() == "ADD":  # fetches addresses: nothing here does
            named += [word for word in words[1:] if "://" in word]
        movable += [name for name in named if name not in stages and not DIGEST.fullmatch(name)]
    return movable


def movable_services(text: str) -> list[str]:
    """Return the images of a compose file that come from a registry by a tag."""
    services = yaml.safe_load(text)["services"]
    return [
        str(service.get("image"))
        for service in services.values()
        if not DIGEST.fullmatch(str(service.get("image")))
        and not ("build" in service and service.get("pull_policy") == "build")
    ]


@pytest.mark.parametrize(
    ("text", "movable"),
    [
        ("jobs: {a: {steps: [{uses: actions/checkout@v4}]}}", ["actions/checkout@v4"]),
        ("jobs: {a: {steps: [{uses: actions/checkout@11bd719}]}}", ["actions/checkout@11bd719"]),
        ("jobs: {a: {uses: o/r/.github/workflows/w.yml@main}}", ["o/r/.github/workflows/w.yml@main"]),
        ("jobs: {a: {container: 'python:3.13', steps: []}}", ["python:3.13"]),
        ("jobs: {a: {services: {db: {image: 'postgres:17'}}}}", ["postgres:17"]),
        ("jobs: {a: {steps: [{uses: 'docker://alpine:3'}, {uses: ./local}]}}", ["alpine:3"]),
        (f"jobs: {{a: {{steps: [{{uses: o/r@{'a' * 40}}}]}}}}", []),
    ],
)
def test_an_action_or_image_by_tag_is_seen(text, movable):
    assert movable_actions(text) == movable


@pytest.mark.parametrize(
    ("text", "movable"),
    [
        ("FROM python:3.13-slim AS build\nFROM build\n", ["python:3.13-slim"]),
        ("ARG BASE=python\nFROM --platform=linux/amd64 $BASE\n", ["$BASE"]),
        ("FROM scratch\nCOPY --from=busybox:1 /bin /bin\n", ["busybox:1"]),
        ("FROM scratch\nRUN --mount=from=uv:1,source=/uv true\n", ["uv:1"]),
        ("FROM scratch\nADD https://example.org/x /x\n", ["https://example.org/x"]),
        (f"FROM a:1@sha256:{'0' * 64} AS b\nCOPY --from=b /x /x\n", []),
    ],
)
def test_a_base_image_by_tag_is_seen(text, movable):
    assert movable_bases(text) == movable


def test_a_compose_image_that_a_registry_may_give_is_seen():
    assert movable_services("services: {a: {image: masquerade, build: .}}") == ["masquerade"]
    assert movable_services("services: {a: {image: 'postgres:17'}}") == ["postgres:17"]
    assert not movable_services("services: {a: {image: m, build: ., pull_policy: build}}")


def test_actions_and_images_of_this_project_are_named_by_their_content():
    assert WORKFLOWS
    assert CONTAINERS
    assert COMPOSE
    for files, movable in (
        (WORKFLOWS, movable_actions),
        (CONTAINERS, movable_bases),
        (COMPOSE, movable_services),
    ):
        for path in files:
            assert not movable(path.read_text(encoding="utf-8")), path


def test_one_action_has_one_commit_and_says_its_version():
    uses = [
        line.partition("uses:")[2].strip()
        for path in WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert uses
    assert all(re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use) for use in uses)
    assert len(set(uses)) == len({use.partition("@")[0] for use in uses})


def test_hooks_before_a_commit_run_local_tools_alone():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in hooks["repos"]} == {"local"}


def test_the_page_starts_no_image_that_was_not_built_here():
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    runs = re.findall(r"^docker run .*$", page, flags=re.MULTILINE)
    assert runs
    assert all("--pull never" in run for run in runs)
