"""Mutated inputs for every decoder and loader: only errors of ours, in little time and memory.

The hostile inputs of the corpus first, then mutations for some seconds of a core; two million of them:
``make fuzz``, whose figures are kept.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import masquerade
from masquerade.cli.settings_files import settings_types
from masquerade.core.errors import MasqueradeError
from masquerade.learn import model_file
from tests.fuzz.later_targets import NOT_FUZZED, READERS
from tests.fuzz.run import MOST_MEMORY, MOST_SECONDS, Outcome, each_seed, fuzz
from tests.fuzz.targets import CORPUS, targets
from tests.vectors.message_vectors import message_classes

INPUTS = 20_000
PACKAGE = Path(masquerade.__file__).parent
READING = ("load", "read", "open", "parse", "from_", "inspect", "peek")
KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "fuzz.json"


def told(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return what failed, so that it can be read and made again."""
    return [(target, why, data[:200].hex()) for target, why, data in outcome.failures]


def test_the_corpus_and_all_seeds_do_no_harm():
    outcome = each_seed()
    assert not told(outcome)
    assert outcome.refused > 50


def test_every_target_accepts_one_of_its_seeds(tmp_path: Path):
    """Mutations of what is refused anyway reach little of a reader."""
    refused = {}
    for target in targets(tmp_path).values():
        ends = []
        for data in target.seeds:
            try:
                target.run(data)
            except (MasqueradeError, *target.only) as error:
                ends.append(str(error))
        if len(ends) == len(target.seeds):
            refused[target.name] = ends[0]
    assert refused == {}


def test_mutated_inputs_do_no_harm(tmp_path: Path):
    outcome = fuzz(INPUTS, seed=20261116)
    assert not told(outcome)
    assert outcome.inputs == INPUTS
    assert outcome.by_target.keys() == targets(tmp_path).keys()


def test_two_million_inputs_did_no_harm(tmp_path: Path):
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept["inputs"] >= 2_000_000
    assert kept["by_target"].keys() <= targets(tmp_path).keys()
    assert min(kept["by_target"].values()) >= 1000
    assert not kept["failures"]
    assert kept["slowest_seconds"] <= MOST_SECONDS
    assert kept["memory_mib"] <= MOST_MEMORY / 2**20


def test_files_of_other_tools_were_tried_a_hundred_thousand_times(tmp_path: Path):
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["by_target"]
    readers = [name for name in targets(tmp_path) if name.startswith("interop-") and "release" not in name]
    assert len(readers) == 7
    assert min(kept[name] for name in [*readers, "bif", "surveyjs"]) >= 100_000
    assert kept["xlsform"] + kept["xlsform-parts"] >= 100_000
    assert kept["xlsform-cells"] >= 100_000
    assert sum(times for name, times in kept.items() if name.startswith("interop-release-")) >= 100_000


def test_every_class_of_messages_is_a_target(tmp_path: Path):
    names = {name.partition(".")[2] for name in targets(tmp_path)}
    assert not [kind.__name__ for kind in message_classes() if kind.__name__ not in names]


def test_every_function_that_reads_a_file_is_a_target(tmp_path: Path):
    """A reader that is added without a target, or without a reason, fails here."""
    readers = set(_file_readers())
    assert readers == READERS.keys() | NOT_FUZZED.keys()
    assert set(READERS.values()) <= targets(tmp_path).keys()


def test_every_kind_of_settings_and_of_models_is_a_target(tmp_path: Path):
    names = targets(tmp_path).keys()
    settings = {"form", *(f"settings-{kind}" for kind in settings_types() if kind != "form")}
    assert settings <= names
    read = {
        json.loads(target.seeds[0])["kind"]
        for name, target in targets(tmp_path).items()
        if name[:6] == "model-"
    }
    assert read == set(model_file.OWN)


def _file_readers():
    """Yield the functions of the package that read a file by its path, as dotted names."""
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        waiting = [(module, ast.parse(file.read_text(encoding="utf-8")))]
        while waiting:
            prefix, node = waiting.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.ClassDef):
                    waiting.append((f"{prefix}.{child.name}", child))
                elif isinstance(child, ast.FunctionDef) and child.name.startswith(READING):
                    given = [*child.args.args, *child.args.kwonlyargs]
                    types = [ast.unparse(one.annotation) for one in given if one.annotation is not None]
                    if any("Path" in text for text in types):
                        yield f"{prefix}.{child.name}"


def test_every_folder_of_the_corpus_is_a_targets(tmp_path: Path):
    known = targets(tmp_path)
    assert not [folder.name for folder in CORPUS.iterdir() if folder.name not in known]


@pytest.mark.parametrize("escapes", [RecursionError, KeyError, UnicodeDecodeError, MemoryError])
def test_an_error_that_is_not_ours_would_be_found(escapes, monkeypatch):
    def broken(_text):
        raise escapes(*(("utf-8", b"", 0, 1, "bad") if escapes is UnicodeDecodeError else ("x",)))

    assert not issubclass(escapes, MasqueradeError)
    monkeypatch.setattr("masquerade.services.common.client.parse_json", broken)
    outcome = fuzz(20, seed=1, only="json-object")
    assert {why.partition(":")[0] for _, why, _ in outcome.failures} == {escapes.__name__}


HARMFUL = """
import os, sys
from tests.fuzz import __main__ as program, run
from tests.fuzz.targets import Target

def harm(data):
    if data != b"seed":
        HARM

run.targets = lambda _: {"harmful": Target("harmful", harm, (b"seed",))}
sys.exit(program.main())
"""


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("os.abort()", "harmful: ended the process (signal SIGABRT)"),
        pytest.param("raise KeyError", "harmful: KeyError", marks=pytest.mark.slow),
    ],
)
def test_an_input_that_does_harm_is_kept_at_once(harm, message, tmp_path):
    arguments = ["--inputs", "9", "--keep", str(tmp_path / "kept"), "--out", str(tmp_path / "figures.json")]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", HARMFUL.replace("HARM", harm), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, message in done.stdout) == (1, True), done.stderr[-500:]
    kept = list((tmp_path / "kept" / "harmful").iterdir())
    assert kept
    assert b"seed" not in {path.read_bytes() for path in kept}
