"""An epoch from end to end over HTTPS: who opens, who does not, and what is on which disk."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pyarrow.parquet as parquet
import pytest
from tests.services.threshold.world import CLASSES, K, World, labels, spoilt

import masquerade as mq
from masquerade.core.errors import QueryRefused
from masquerade.core.query import Query
from masquerade.crypto.errors import DecodingError
from masquerade.services.threshold.messages import ClientRecord
from masquerade.services.threshold.results import opened_rows, pack_opening, unpack_opening, write_rows


@pytest.fixture(scope="module")
def epoch(tmp_path_factory):
    """Sixty people's epoch, closed and opened; two more people send bad shares."""
    world = World(tmp_path_factory.mktemp("round") / "world")
    with world.served(), world.collection() as to:
        made = world.everybody(to)
        assert not any(one.deliver() for one in made[:2])  # the epoch is open: nothing leaves
        closed = world.operate("randomness", "close")
        assert closed["collector_told"], closed["problem"]
        assert all(one.deliver() for one in made)
        layout = world.layout(to)
        bad = [spoilt(layout, world.report(world.rows[i]["person"])) for i in (0, 20)]
        assert world.said("collector", "reports", b"".join(bad))[0] == 200
        with pytest.raises(QueryRefused) as refused:
            world.operate("collector", "result")
        assert refused.value.refusals[0].code == "not_opened"
        world.operate("collector", "open")
        yield world, to, layout


@pytest.fixture(scope="module")
def result(epoch):
    world, _, _ = epoch
    return world.operate("collector", "result")


def rows_of(result, form):
    frame = opened_rows(result, form).to_frame()
    return Counter(frame.itertuples(index=False, name=None))


def test_rows_of_classes_that_reach_k_open_and_no_others(epoch, result):
    world, to, _ = epoch
    large = {quasi for quasi, size in CLASSES.items() if size >= K}
    expected = Counter(
        tuple(labels(row).values()) for row in world.rows if (row["age"], row["sex"], row["region"]) in large
    )
    assert rows_of(result, to.form) == expected
    assert result["opened"] == sum(expected.values()) == 51
    assert result["evaluations"] == 60
    assert result["small_classes"] == {"1": 1, "4": 2}


def test_bad_shares_are_named_and_counted(result):
    assert result["received"] == 62
    assert result["more_reports_than_evaluations"] == 2
    assert result["bad_reports"] == 2
    named = {item["report"] for item in result["bad"]}  # by their places, which are random: not the last two
    assert len(named) == 2
    assert named <= set(range(1, 63))
    # the spoilt share has the x of a good report, whose row is open all the same
    assert {item["reason"] for item in result["bad"]} == {
        "its share does not lie on the polynomial of its class"
    }
    assert result["not_opened"]["the class has fewer than k good reports"] == 9


def test_opened_again_it_opens_the_same_and_takes_no_more(epoch, result):
    world, to, _ = epoch
    report = world.report("P000")
    assert world.raw("collector", "reports", report)[0] == 200  # it is there already
    altered = bytes([report[0] ^ 1]) + report[1:]
    assert world.said("collector", "reports", altered) == (409, "query_refused")
    world.operate("collector", "open")
    assert rows_of(world.operate("collector", "result"), to.form) == rows_of(result, to.form)
    world.restart("collector")
    again = world.operate("collector", "result")
    assert rows_of(again, to.form) == rows_of(result, to.form)
    assert again["received"] == 62
    assert world.said("collector", "reports", altered) == (409, "query_refused")


def test_sensitive_values_are_not_readable_on_the_collectors_disk(epoch, result):
    world, to, layout = epoch
    state = world.folder / "collector" / "state"
    everything = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    opened = unpack_opening(result["opening"]).sensitive.tobytes()
    small = [row for row in world.rows if row["region"] == "islands"]
    assert len(small) == 9
    for row in world.rows:
        _, sensitive = to.form.fill(labels(row))
        assert world.report(row["person"]) in everything  # we look where reports are
        assert sensitive not in everything
        assert (sensitive in opened) == (row not in small)  # where it can be read, this test sees it
    # one class twice: nothing but the header and the tag is shared
    found = [layout.read(world.report(row["person"]))[0] for row in small[:4]]
    assert len({one["tag"].tobytes() for one in found}) == 1
    for field in ("x", "y", "sealed"):
        assert len({one[field].tobytes() for one in found}) == 4


def test_what_happens_once_lies_where_no_backup_brings_it_back(epoch):
    world, _, _ = epoch
    states = {name: world.folder / name / "state" for name in ("randomness", "collector")}
    assert (states["randomness"] / "once" / "evaluations.sqlite").exists()
    (kept,) = (states["collector"] / "once").glob("epoch-*")
    assert {path.name for path in kept.iterdir()} == {"reports.sqlite"}  # no log, which has an order
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept.iterdir())
    for state in states.values():  # nothing of it beside that folder
        assert {path.name for path in state.iterdir()} <= {
            *("once", "lock", "address", "releases.jsonl"),  # the last: what an operator agreed to
            *("state.sqlite", "state.sqlite-wal", "state.sqlite-shm"),
        }


def test_the_record_holds_neither_the_row_nor_what_hides_it_once_the_report_is_made(epoch):
    world, to, _ = epoch
    for row in world.rows[:5]:
        record = ClientRecord.load(world.record(row["person"]))
        assert record.delivered
        assert record.kept == b""
        assert to.form.fill(labels(row))[1] not in world.record(row["person"]).read_bytes()
        assert world.record(row["person"]).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_are_written_with_what_is_missing(epoch, result, tmp_path, ending):
    _, to, _ = epoch
    rows, target = opened_rows(result, to.form), tmp_path / f"rows.{ending}"
    write_rows(rows, target)
    frame = pd.read_csv(target, keep_default_na=False) if ending == "csv" else pd.read_parquet(target)
    assert Counter(frame.itertuples(index=False, name=None)) == rows_of(result, to.form)
    told = (
        (tmp_path / "rows.csv.masquerade.json").read_text()
        if ending == "csv"
        else str(parquet.read_schema(target).metadata)
    )
    assert "11 of 62 reports did not open" in told
    assert "11 of 62 reports did not open" in mq.tally(target, schema=rows.schema).check([Query()])[0].reason


def test_the_tally_of_opened_rows_says_that_it_is_incomplete(epoch, result):
    _, to, _ = epoch
    rows = opened_rows(result, to.form)
    with pytest.raises(QueryRefused) as refused:
        rows.answer([Query(("illness",))])
    assert refused.value.refusals[0].code == "incomplete"
    assert rows.counts(Query(("illness",))).sum() == 51
    accepted = opened_rows(result, to.form, accept_incomplete=True)
    assert accepted.answer([Query(("illness",))])[0].values.sum() == pytest.approx(51)


def test_the_guarantee_names_the_conditions(result):
    guarantee = result["guarantee"]
    text = " ".join(guarantee["assumptions"])
    assert "each person is enrolled once" in text
    assert "gives nobody a second credential" in text
    assert "network addresses" in text
    coalitions = [list(one) for one in guarantee["excluded_coalitions"]]
    assert ["collector", "enrolment office"] in coalitions
    assert ["collector", "randomness server"] in coalitions


def test_logs_hold_no_body_no_address_no_name_and_no_time_of_a_report(tmp_path, capfd):
    world = World(tmp_path / "world")
    some = world.rows[:K]
    with world.served(), world.collection() as to:
        made = world.everybody(to, some)
        world.operate("randomness", "close")
        assert all(one.deliver() for one in made)
        assert world.operate("collector", "open")["opened"] == K
    logged = capfd.readouterr().err
    assert all(f'"place":"{place}"' in logged for place in ("enrol", "operate/open"))
    assert not any(f'"place":"{place}"' in logged for place in ("evaluate", "reports"))  # nor a time
    assert "127.0.0.1" not in logged
    for row in some:
        report = world.report(row["person"])
        assert not any(text in logged for text in (row["person"], row["age"], report.hex()[:24]))


def test_an_opening_survives_the_way_to_its_operator(result):
    opening = unpack_opening(result["opening"])
    assert pack_opening(opening) == result["opening"]
    assert opening.received == 62
    for damage in ({"class_of": ""}, {"verdicts": "?"}, {"terms": "00"}, {"small": 3}):
        with pytest.raises(DecodingError):
            unpack_opening({**result["opening"], **damage})
    with pytest.raises(DecodingError):
        unpack_opening({})
