"""Mutated inputs for every decoder and loader: only errors of ours, in little time and memory.

The hostile inputs of the corpus first, then mutations for some ten seconds of a core; two million of them:
``make fuzz``, whose figures are kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from masquerade.core.errors import MasqueradeError
from tests.fuzz.run import MOST_MEMORY, MOST_SECONDS, Outcome, each_seed, fuzz
from tests.fuzz.targets import CORPUS, targets
from tests.vectors.message_vectors import message_classes

INPUTS = 40_000
KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "fuzz.json"


def told(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return what failed, so that it can be read and made again."""
    return [(target, why, data[:200].hex()) for target, why, data in outcome.failures]


def test_the_corpus_and_all_seeds_do_no_harm():
    outcome = each_seed()
    assert not told(outcome)
    assert outcome.refused > 50


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
    assert len(readers) == 4
    assert min(kept[name] for name in [*readers, "bif", "surveyjs"]) >= 100_000
    assert kept["xlsform"] + kept["xlsform-parts"] >= 100_000
    assert kept["xlsform-cells"] >= 100_000
    assert sum(times for name, times in kept.items() if name.startswith("interop-release-")) >= 100_000


def test_every_class_of_messages_is_a_target(tmp_path: Path):
    names = {name.partition(".")[2] for name in targets(tmp_path)}
    assert not [kind.__name__ for kind in message_classes() if kind.__name__ not in names]


def test_every_folder_of_the_corpus_is_a_targets(tmp_path: Path):
    known = targets(tmp_path)
    assert not [folder.name for folder in CORPUS.iterdir() if folder.name not in known]


@pytest.mark.parametrize("escapes", [RecursionError, KeyError, UnicodeDecodeError, MemoryError])
def test_an_error_that_is_not_ours_would_be_found(escapes, monkeypatch):
    def broken(_text):
        raise escapes(*(("utf-8", b"", 0, 1, "bad") if escapes is UnicodeDecodeError else ("x",)))

    monkeypatch.setattr("masquerade.core.util.json_text.parse_json", broken)
    assert not issubclass(escapes, MasqueradeError)
    monkeypatch.setattr("masquerade.services.common.client.parse_json", broken)
    outcome = fuzz(20, seed=1, only="json-object")
    assert {why.partition(":")[0] for _, why, _ in outcome.failures} == {escapes.__name__}
