"""Canaries through pipelines that are sound, and through pipelines with one fault each."""

import json

import pandas as pd
import pytest
from tests.unit.audit import faults

import masquerade as mq
from masquerade.core.errors import FileError, InputError

N = 4000


@pytest.fixture(scope="module")
def world():
    policy = faults.policy()
    frame, key = mq.audit.make_canaries(policy, N)
    return policy, frame, key


def read(world, pipeline, **options):
    policy, frame, key = world
    return mq.audit.read_canaries(pipeline(frame, policy), policy, key, **options)


def test_canaries_are_twins_with_names_of_their_own(world):
    _, frame, key = world
    assert len(frame) == N == len(set(frame["canary"]))
    counts = frame.drop(columns="canary").value_counts()
    assert (counts % 2 == 0).all()
    assert tuple(frame["canary"]) == key.names


def test_a_sound_pipeline_is_not_contradicted(world):
    found = read(world, faults.sound, claims=("shuffled",))
    assert not found.contradicted
    by = {finding.about: finding for finding in found.findings}
    # ±5 standard errors of a logit of 4,000 canaries, 0.0365, around a limit 1.96 of them below ε
    assert -0.3 < by["smoker"].low - by["smoker"].value < 0.13
    assert by["sex"].verdict == "at risk"  # clear, as the policy says
    assert by["rows"].says == f"all {N:,} canaries came back, each once"


@pytest.mark.parametrize("name", faults.PIPELINES)
def test_a_fault_is_found_and_named(world, name):
    pipeline, about, words = faults.PIPELINES[name]
    found = read(world, pipeline, claims=("shuffled",))
    said = [finding.says for finding in found.of("contradicted") if finding.about == about]
    assert any(words in text for text in said), found.summary()


def test_a_memo_that_is_off_is_found_and_one_that_is_on_is_not(world, tmp_path):
    policy, frame, key = world
    pipeline = faults.remembered(tmp_path / "memo")
    runs = [pipeline(frame, policy) for _ in range(2)]
    on = mq.audit.read_canaries(runs[0], policy, key, second=runs[1], claims=("memo", "shuffled"))
    assert not on.contradicted
    off = mq.audit.read_canaries(runs[0], policy, key, second=faults.sound(frame, policy), claims=("memo",))
    assert [finding.about for finding in off.of("contradicted")] == ["memo"]
    # without the claim two equal runs are a seed that is used again
    again = mq.audit.read_canaries(runs[0], policy, key, second=runs[1])
    assert [finding.about for finding in again.of("contradicted")] == ["second run"]


def test_rows_without_names_are_matched_by_their_order_or_said_not_to_be(world):
    policy, frame, key = world
    kept = mq.disguise(frame, policy)
    ordered = mq.audit.read_canaries(kept, policy, key)
    assert "smoker" in {finding.about for finding in ordered.of("not contradicted")}
    mixed = mq.audit.read_canaries(mq.disguise(frame, policy, shuffle=True), policy, key)
    assert [finding.about for finding in mixed.of("not covered")] == ["canaries"]
    assert not mixed.contradicted


def test_canaries_are_found_among_people(world):
    policy, frame, key = world
    people = frame.sample(500, random_state=1).assign(canary=[f"p{i}" for i in range(500)])
    both = faults.sound(pd.concat([frame, people], ignore_index=True), policy)
    assert not mq.audit.read_canaries(both, policy, key, claims=("shuffled",)).contradicted


def test_blocks_joint_channels_and_strata_are_read_too():
    values = {
        "masquerade": 1,
        "variables": {
            "sex": {"categories": ["f", "m"]},
            "drug": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
            **{name: {"categories": ["yes", "no"]} for name in ("a", "b", "c", "d", "e")},
        },
        "joint": [{"variables": ["a", "b"], "channel": {"kind": "symmetric", "p": 0.5}}],
        "blocks": [{"variables": ["c", "d", "e"], "report": "r", "k": 2, "gamma": 3}],
    }
    policy = mq.Policy.from_dict(values)
    frame, key = mq.audit.make_canaries(policy, N)
    released = mq.disguise(frame, policy, keep=["canary"], shuffle=True)
    found = mq.audit.read_canaries(released, policy, key, claims=("shuffled",))
    assert not found.contradicted, found.summary()
    assert {"a + b", "c + d + e: blocks", "c + d + e: 4 classes"} <= {one.about for one in found.findings}


def test_a_key_is_private_and_is_read_again(world, tmp_path):
    policy, frame, key = world
    key.save(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    released = faults.sound(frame, policy)
    assert not mq.audit.read_canaries(released, policy, tmp_path / "key", claims=("shuffled",)).contradicted
    (tmp_path / "bad").write_text(json.dumps({"masquerade_canaries": 1}), encoding="utf-8")
    (tmp_path / "bad").chmod(0o600)
    for name in ("bad", "none"):
        with pytest.raises(FileError, match=name):
            mq.audit.Canaries.load(tmp_path / name)


def test_what_cannot_be_is_refused(world):
    policy, frame, key = world
    for wrong, words in (
        (lambda: mq.audit.make_canaries(policy, 10), "200 or more"),
        (lambda: mq.audit.make_canaries(policy, N, column="smoker"), "column of the policy"),
        (lambda: mq.audit.read_canaries(frame, faults.another_policy(), key), "a different policy"),
        (lambda: mq.audit.read_canaries(frame, policy, key, claims=("mixed",)), "one of memo, shuffled"),
    ):
        with pytest.raises(InputError, match=words):
            wrong()
