"""People who generalise before submission: level after level over both servers, by the commands."""

from __future__ import annotations

import json
from collections import Counter

import pandas as pd
import pytest
import yaml
from tests.services.threshold.test_cli import ok, refused, run
from tests.services.threshold.world import FORM, K, World, sixty

from masquerade.core.errors import InputError
from masquerade.crypto.errors import SealBroken
from masquerade.services.threshold.collector import CollectorService
from masquerade.services.threshold.messages import ClientRecord, OpenTags
from masquerade.services.threshold.randomness_server import RandomnessService
from masquerade.services.threshold.settings import load_form, load_levels

ANY = {"any age": FORM["quasi"]["age"]}
HIERARCHIES = {"age": [ANY], "sex": [{"any": ["female", "male"]}]}


def at_level(world, level):
    """Set the level of both servers."""
    for name in ("randomness", "collector"):
        values = yaml.safe_load(world.files[name].read_text())
        values["epoch"]["level"] = level
        world.files[name].write_text(yaml.safe_dump(values))


def finest_that_opens(rows):
    """Return, from all rows in clear, what opens at each level: of those still closed k agree."""
    closed, opened = [(row["age"], row["sex"], row["region"]) for row in rows], []
    for coarser in (False, True):
        shown = [("any age", "any", region) if coarser else (age, sex, region) for age, sex, region in closed]
        sizes = Counter(shown)
        opened.append({quasi: size for quasi, size in sizes.items() if size >= K})
        closed = [row for row, quasi in zip(closed, shown, strict=True) if sizes[quasi] < K]
    return opened


def test_a_row_opens_at_the_finest_level_that_does_and_nobody_sends_more(tmp_path):
    few = [row for row in sixty() if row["region"] == "islands" or row["person"] < "P006"]
    world = World(tmp_path / "world", few, form={**FORM, "hierarchies": HIERARCHIES})
    files, credentials = world.files, tmp_path / "credentials"
    people = ("submit", files["rows"], "--collection", files["collection"], "--credential", credentials)
    finest, coarser = finest_that_opens(world.rows)
    assert finest == {("under 30", "female", "north"): 6}
    assert coarser == {("any age", "any", "islands"): 9}
    with world.served():
        ok("enrol", "--from", files["names"], "--office", files["office"], "--out", credentials)
        assert "the epoch is still open" in run(*people).stderr
        ok("close", "--node", files["randomness"])
        done = run(*people, "--json")
        assert (done.exit_code, json.loads(done.stdout)["delivered"]) == (1, 15)
        assert "classes of level 0 are not open yet" in done.stderr
        told = ok("open", "--node", files["collector"], "--out", tmp_path / "finest.csv").stderr
        assert "set 'level: 1' of the epoch" in " ".join(told.split())
        assert "level 1 has not started" in run(*people).stderr
        at_level(world, 1)
        world.restart("randomness")  # between the two, nobody takes one for the other's cheating
        assert "level 1 has not started" in run(*people).stderr
        world.restart("collector")
        early = run(*people)
        assert "level 0: 6 rows opened" in early.stderr
        assert "level 1: 9 evaluated, 0 reported" in early.stderr
        ok("close", "--node", files["randomness"])
        assert json.loads(ok(*people, "--json").stdout) == {
            "asked": 9, "delivered": 9, "waiting": 0, "level": 1, "opened": [6],
        }  # fmt: skip
        ok(*people)
        status = json.loads(ok("status", "--node", files["collector"], "--json").stdout)
        assert (status["evaluations"], status["reports"]) == (9, 9)
        told = json.loads(
            ok("open", "--node", files["collector"], "--out", tmp_path / "coarser.csv", "--json").stdout
        )
        assert (told["level"], told["coarser"], told["opened"]) == (1, False, 9)
        learnt = [item["kind"] for item in told["guarantee"]["disclosures"]]
        assert any(f"fewer than {K} of those still closed agreed" in kind for kind in learnt)
        tags_are_the_members_alone(world, credentials)
    for file, expected in (("finest.csv", finest), ("coarser.csv", coarser)):
        frame = pd.read_csv(tmp_path / file, keep_default_na=False)
        assert Counter(zip(frame["age"], frame["sex"], frame["region"], strict=True)) == expected


def tags_are_the_members_alone(world, credentials):
    """The tags of level 0 are those of the members' reports; signed, and of nobody else's."""
    to = world.collection()
    records = [ClientRecord.load(file) for file in credentials.glob("*.spring.record")]
    tags = to.fetch_open_tags(records[0].notice)
    assert len(tags) == 1
    inside = [record for record in records if any(tag in record.report for tag in tags)]
    assert len(inside) == 6
    signed = OpenTags.decode(to.exchange("collector", b"spring", place="opened"))
    with pytest.raises(SealBroken):
        OpenTags(signed.notice, signed.tags[16:], signed.signature).verify(to.identities["collector"])


def test_a_level_comes_after_the_one_before_it(tmp_path):
    world = World(tmp_path / "world", form={**FORM, "hierarchies": HIERARCHIES})
    at_level(world, 1)
    for name, server in (("randomness", RandomnessService), ("collector", CollectorService)):
        with pytest.raises(InputError, match="comes after 'spring'"):
            server(world.settings(name))
    at_level(world, 2)
    with pytest.raises(InputError, match="hierarchies end at level 1"):
        RandomnessService(world.settings("randomness"))
    form = world.folder / "form.yaml"
    assert load_levels(form).levels == 2
    assert load_form(form, 1).schema["sex"].categories == ("any",)
    values = yaml.safe_load(world.files["collection"].read_text())
    values["epoch"]["level"] = 1
    world.files["collection"].write_text(yaml.safe_dump(values))
    said = refused("submit", form, "--collection", world.files["collection"], "--credential", tmp_path)
    assert "people submit at all levels" in said
    form.write_text(form.read_text().replace("- female", "- fmale", 1))
    with pytest.raises(InputError, match="every category must be in exactly one group"):
        load_form(form)


def test_an_earlier_epoch_that_was_called_like_a_level_is_another_one(tmp_path):
    """Rows of two epochs differ by those of whoever came or left: nothing is asked without agreement."""
    form = {**FORM, "hierarchies": HIERARCHIES}
    rows = sixty()[: K + 1]
    earlier = World(tmp_path / "earlier", rows, epoch="spring-level-1")
    later = World(tmp_path / "later", rows, form=form, epoch="spring")
    records = tmp_path / "records"
    records.mkdir()

    def submit(world):
        return run(
            *("submit", world.files["rows"], "--collection", world.files["collection"]),
            *("--credential", world.folder / "credentials", "--records", records),
        )  # fmt: skip

    for world in (earlier, later):
        with world.served():
            out = ("--office", world.files["office"], "--out", world.folder / "credentials")
            ok("enrol", "--from", world.files["names"], *out)
            said = submit(world)
            status = json.loads(ok("status", "--node", world.files["randomness"], "--json").stdout)
        if world is earlier:
            assert status["evaluations"] == len(rows)
        else:
            assert "To agree to that, repeat this sentence" in " ".join(said.stderr.split())
            assert status["evaluations"] == 0
