"""Policies, disguised files, memos and models of the first version open in this one and say the same."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.feather as feather
import pytest
from tests.compatibility.first_version import FILES, copied, expected
from tests.e2e.test_cli_app import ok, run

import masquerade as mq
from masquerade.core.errors import PolicyMismatch

POLICIES = expected("policies")
MODELS = expected("models")
RECORDS = expected("records")


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_the_id_and_the_gammas_it_had(name):
    policy, said = mq.Policy.load(FILES / "policies" / name), POLICIES[name]
    figures = mq.privacy(policy)
    assert policy.id == said["id"]
    assert str(figures.record_gamma) == said["record_gamma"]
    disclosed = {(tuple(one.variables), str(one.gamma)) for one in figures.guarantee.disclosures}
    assert disclosed == {(tuple(variables), gamma) for variables, gamma in said["disclosed"]}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_is_saved_again_keeps_its_id(name, tmp_path):
    target = tmp_path / name
    mq.Policy.load(FILES / "policies" / name).save(target)
    assert ok("policy", "id", target).stdout.strip() == POLICIES[name]["id"]


def test_a_draft_is_still_to_be_decided():
    result = run("policy", "check", FILES / "records" / "draft.yaml")
    assert result.exit_code == 2
    assert "still to be decided" in result.stderr


@pytest.mark.parametrize("name", ["disguised.parquet", "disguised.arrow", "disguised.csv", "memoised.csv"])
@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_a_disguised_file_gives_the_counts_and_errors_it_gave(name, engine):
    if engine == "duckdb" and name.endswith("arrow"):
        engine = "auto"  # DuckDB reads no Arrow files
    policy = mq.Policy.load(FILES / "policies" / "survey.yaml")
    [table] = mq.tally(FILES / "records" / name, policy, engine=engine).answer(
        [mq.Query(by=("smoker", "cough"))]
    )
    np.testing.assert_allclose(table.values, RECORDS[name]["values"], rtol=1e-12)
    # the first version divided the variance of the records by n, not by n − 1
    then = np.sqrt(table.n / (table.n - 1)) * np.array(RECORDS[name]["stderr"])
    np.testing.assert_allclose(table.stderr(), then, rtol=1e-9)


@pytest.mark.parametrize("name", ["disguised.parquet", "disguised.arrow", "disguised.csv"])
def test_a_disguised_file_names_its_policy(name, tmp_path):
    other = mq.Policy.load(FILES / "policies" / "groups.yaml")
    with pytest.raises(PolicyMismatch, match=POLICIES["survey.yaml"]["id"][:8]):
        mq.tally(FILES / "records" / name, other)
    twice = run(
        "disguise",
        FILES / "records" / name,
        "-p",
        FILES / "policies" / "survey.yaml",
        "-o",
        tmp_path / "twice.csv",
    )
    assert twice.exit_code == 2


def test_what_was_simulated_is_still_marked_so():
    frame = pd.read_parquet(FILES / "records" / "pandas-simulated.parquet")
    assert frame.attrs["masquerade"] == {"policy": POLICIES["survey.yaml"]["id"], "simulated": "true"}
    policy = mq.Policy.load(FILES / "policies" / "survey.yaml")
    assert mq.tally(frame, policy).answer([mq.Query()])[0].n == 200


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_memo_gives_the_very_same_reports(ending, tmp_path):
    records = copied("records", tmp_path)
    (records / "memo.json").chmod(0o600)  # as it was written; Git keeps no such modes
    target = tmp_path / f"again.{ending}"
    ok(
        *("disguise", records / "people.csv", "--policy", FILES / "policies" / "survey.yaml"),
        *("--memo", records / "memo.json", "--id", "person", "--keep", "person", "--out", target),
    )  # fmt: skip
    again = pd.read_csv(target, dtype=str) if ending == "csv" else pd.read_parquet(target).astype(str)
    pd.testing.assert_frame_equal(again, pd.read_csv(records / "memoised.csv", dtype=str))
    assert json.loads((records / "memo.json").read_text())["releases"] == [POLICIES["survey.yaml"]["id"]]


def test_hierarchies_generalise_as_they_did(tmp_path):
    records, target = FILES / "records", tmp_path / "anonymous.csv"
    said = ok(
        *("anonymize", records / "people.csv", "-k", "5", "--quasi", "region,age"),
        *("--hierarchies", records / "hierarchies.yaml", "--out", target, "--json"),
    )  # fmt: skip
    assert json.loads(said.stdout)["utility"] == RECORDS["anonymised"]["utility"]
    assert sorted(target.read_text().splitlines()) == sorted(
        (records / "anonymous.csv").read_text().splitlines()
    )


def test_baskets_are_disguised_under_their_policy():
    policy = mq.Policy.load(FILES / "policies" / "baskets-joint.json")
    baskets = mq.read_baskets(FILES / "records" / "baskets.dat")
    assert mq.disguise(baskets, policy).policy_id == POLICIES["baskets-joint.json"]["id"]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "bif"])
def test_a_model_says_what_it_said(name, tmp_path):
    file = FILES / "models" / f"{name}.json"
    model, said = mq.learn.load(file), MODELS[name]
    assert model.summary().startswith(said["summary"])
    # rules now say what their selection does, trees what their errors are about
    assert name in {"rules", "tree", "pruned_tree"} or model.summary() == said["summary"]
    asked = pd.read_csv(FILES / "models" / "asked.csv", dtype=str)
    if "predicted" in said:
        assert [str(one) for one in model.predict(asked)] == said["predicted"]
    if "probabilities" in said:
        np.testing.assert_allclose(model.predict_proba(asked), said["probabilities"], rtol=1e-12)
    mq.learn.save(model, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(file.read_text())


def test_a_network_infers_what_it_inferred():
    network = mq.learn.load(FILES / "models" / "network.json")
    found = network.project().query("smoker", {"cough": "yes"})
    np.testing.assert_allclose(found.probabilities, MODELS["network"]["query"], rtol=1e-12)


def test_a_bif_file_is_the_network_it_was():
    network = mq.learn.read_bif(FILES / "models" / "network.bif")
    for node, probabilities in MODELS["bif"].items():
        np.testing.assert_allclose(network[node].probabilities, probabilities, rtol=1e-6)


@pytest.mark.parametrize("name", ["naive_bayes", "tree", "logistic"])
def test_the_command_predicts_with_a_model(name, tmp_path):
    target = tmp_path / "predicted.csv"
    ok(
        "predict",
        FILES / "models" / "asked.csv",
        "-m",
        FILES / "models" / f"{name}.json",
        "-o",
        target,
    )
    assert pd.read_csv(target, dtype=str)["cough"].tolist() == MODELS[name]["predicted"]


def test_a_saved_structure_is_taken_by_the_command(tmp_path):
    learnt = ok(
        *("learn", "network", FILES / "records" / "disguised.csv", "-p", FILES / "policies" / "survey.yaml"),
        *("--structure", FILES / "models" / "structure.json", "--out", tmp_path / "network.json"),
    )  # fmt: skip
    assert "P(cough | smoker)" in learnt.stdout


def test_arrow_metadata_stand_in_the_schema():
    metadata = feather.read_table(FILES / "records" / "disguised.arrow").schema.metadata
    assert metadata[b"masquerade.policy"].decode() == POLICIES["survey.yaml"]["id"]
