"""The servers of a collection that the first version began, and the people who take part in it."""

from __future__ import annotations

import json

import pandas as pd
from tests.compatibility.deployments import deployed
from tests.compatibility.first_version import copied, expected
from tests.e2e.test_cli_app import ok, run
from tests.services.threshold.world import World

import masquerade as mq

SAID = expected("collection")


def status(node):
    return json.loads(ok("collect", "status", "--node", node, "--json").stdout)


def test_a_collection_goes_on_where_it_was(tmp_path):
    folder = deployed("collection", tmp_path)
    randomness, collector = folder / "randomness" / "randomness.yaml", folder / "collector" / "collector.yaml"
    with World(folder, files={"randomness": randomness, "collector": collector}).served():
        assert status(randomness) == SAID["randomness"]
        assert status(collector) == SAID["collector"]
        ok(
            *("collect", "submit", folder / "people.csv", "--collection", folder / "collection.yaml"),
            *("--credential", folder / "credentials", "--records", folder / "records"),
        )  # fmt: skip
        assert status(collector)["reports"] == SAID["randomness"]["evaluations"]
        ok("collect", "open", "--node", collector, "--out", tmp_path / "rows.csv")
    rows, before = (pd.read_csv(file, dtype=str) for file in (tmp_path / "rows.csv", folder / "opened.csv"))
    order = list(rows)
    pd.testing.assert_frame_equal(
        rows.sort_values(order, ignore_index=True), before.sort_values(order, ignore_index=True)
    )


def test_an_epoch_whose_key_was_lost_stays_lost(tmp_path):
    folder = deployed("collection", tmp_path)
    node = folder / "randomness" / "summer.yaml"
    with World(folder, files={"randomness": node}).served("randomness"):
        found = status(node)
        assert (found["state"], found["notice"]) == ("key_lost", SAID["summer"]["notice"])
        ok("collect", "close", "--node", node)
        assert status(node)["state"] == "closed"


def test_a_restored_copy_does_not_go_on(tmp_path):
    folder = deployed("collection", tmp_path, moved=True)
    result = run("collect", "collector", "serve", folder / "collector" / "collector.yaml")
    assert result.exit_code == 2
    assert "restored from a backup" in result.stderr


def test_settings_are_valid(tmp_path):
    folder = copied("collection", tmp_path)
    for kind in ("randomness", "collector", "office"):
        ok("config", "check", folder / kind / f"{kind}.yaml", "--kind", kind)
    ok("config", "check", folder / "collection.yaml", "--kind", "collection")


def test_opened_rows_still_say_that_rows_are_missing(tmp_path):
    opened = copied("collection", tmp_path) / "opened.csv"
    [refusal] = mq.tally(opened).check([mq.Query()])
    assert refusal.code == "incomplete"
    assert not mq.tally(opened, accept_incomplete=True).check([mq.Query()])
