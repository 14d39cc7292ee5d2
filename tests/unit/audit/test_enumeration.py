"""Every interval of a sampler is walked: what is right is proved, whatever is wrong is found."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.survey.programs import node

import masquerade as mq
from masquerade.audit.enumeration import walk
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.kernels.draw import DrawTable, draw_table

CHANNELS = {
    "binary": mq.channels.binary("1/4"),
    "symmetric": mq.channels.symmetric(5, "0.3"),
    "subset selection": mq.channels.subset_selection(6, epsilon=1),
    "identity": mq.channels.identity(3),
    "a power of two": mq.channels.matrix([["1/2", "1/2"], ["1/4", "3/4"]]),
    "one with zeros": mq.channels.matrix([["1/2", "1/2", "0"], ["0", "1/3", "2/3"], ["1/7", "2/7", "4/7"]]),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_what_the_sampler_draws_is_what_the_channel_says(name):
    found = walk(CHANNELS[name])
    assert found.proved
    assert found.gamma == CHANNELS[name].gamma
    assert found.intervals == np.count_nonzero(CHANNELS[name].weights)


def with_end(table: DrawTable, by: int) -> DrawTable:
    """Return a table whose first interval of row 0 ends elsewhere, and all that follows from it."""
    last = table.last.copy()
    last[0, 0] = np.uint64(int(last[0, 0]) + by)
    return replace(table, last=last)


@pytest.mark.parametrize("by", [1, -1, 1 << 40])
def test_an_end_that_is_off_by_a_single_word_is_found(by):
    channel = CHANNELS["symmetric"]
    found = walk(channel, with_end(channel.draw_table, by))
    assert not found.proved
    assert "probabilities of the words differ" in found.wrong


def test_a_screen_by_top_bytes_that_decides_otherwise_is_found():
    channel = CHANNELS["symmetric"]
    first = channel.draw_table.first.copy()
    first[2, 3] = (first[2, 3] + 1) % 5
    found = walk(channel, replace(channel.draw_table, first=first))
    assert not found.proved
    assert "differ" in found.wrong


def test_a_search_that_starts_in_the_wrong_place_is_found():
    channel = CHANNELS["subset selection"]
    start = channel.draw_table.start.copy()
    start[1, 128] = 0
    start[1, 129] = 0
    assert not walk(channel, replace(channel.draw_table, start=start)).proved


def test_the_table_of_another_channel_is_found():
    other = mq.channels.symmetric(5, "0.31")
    assert not walk(CHANNELS["symmetric"], draw_table(other.outcomes, other.weights, other.reports)).proved


def small_policy():
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
                "region": {"categories": list("nsewc"), "channel": {"kind": "symmetric", "p": 0.3}},
                "sex": {"categories": ["f", "m"]},
                **{f"q{i}": {"categories": ["yes", "no"]} for i in range(4)},
            },
            "blocks": [{"variables": [f"q{i}" for i in range(4)], "report": "q", "k": 2, "gamma": 3}],
        }
    )


def test_an_audit_of_a_policy_says_what_is_proved_and_what_is_clear():
    found = mq.audit.audit_policy(small_policy())
    assert not found.contradicted
    proved = {finding.about: finding for finding in found.of("proved")}
    assert {"smoker", "region", "q0 + q1 + q2 + q3", "whole record", "on Spark"} <= set(proved)
    assert proved["smoker"].value == pytest.approx(np.log(3))
    assert [finding.about for finding in found.of("at risk")] == ["sex"]
    assert "survey page" in {finding.about for finding in (*found.of("proved"), *found.of("not covered"))}
    assert "γ = 3 (ε = 1.10), proved by enumeration (4 intervals)" in found.summary()


def test_a_page_without_node_is_named_as_not_covered(monkeypatch):
    monkeypatch.setattr("masquerade.audit.page_sampler.shutil.which", lambda _: None)
    (page,) = mq.audit.audit_policy(small_policy()).of("not covered")
    assert "Node is not installed" in page.says


def test_a_page_that_draws_otherwise_is_found(monkeypatch):
    real = mq.audit.page_sampler.channel_rows

    def shifted(channel):
        rows = real(channel)
        return [rows[0], str(int(rows[1]) + 1), rows[2]] if isinstance(rows[0], int) else rows

    monkeypatch.setattr("masquerade.audit.page_sampler.channel_rows", shifted)
    node()  # left out, and said so, where there is none
    found = mq.audit.audit_policy(small_policy())
    assert [finding.about for finding in found.of("contradicted")] == ["survey page"]


def test_an_audit_shows_itself_in_words_values_and_a_page():
    findings = (
        Finding(about="b", verdict="proved", says="is <fine>", value=1.5),
        Finding(about="a", verdict="contradicted", says="is not", repair="mend it", low=float("inf")),
    )
    table = AuditTable("Table", ("name", "figure", "said"), (("x", 0.25, True), ("y", None, False)))
    found = Audit("An audit", findings, (table,), ("the rest",))
    assert found.exit_code == 1
    assert [finding.about for finding in found.sorted_findings] == ["a", "b"]
    assert found.summary().startswith(
        "An audit\nA CLAIM IS CONTRADICTED. 2 findings: 1 contradicted, 1 proved."
    )
    assert found.to_dict()["findings"][0]["low"] is None
    assert "is &lt;fine&gt;" in found.to_html()
    assert list(found.to_frame()["about"]) == ["a", "b"]
    assert found.with_(not_covered=("more",)).not_covered == ("the rest", "more")


def test_gamma_counted_in_words_is_exact():
    assert walk(mq.channels.binary("1/3")).gamma == Fraction(2)
