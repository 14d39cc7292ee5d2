"""A policy shows itself: summary, table, page of a notebook, plot."""

import math

import masquerade as mq
from masquerade.core.util.display import markdown_of

SCHEMA = {"a": ["x", "y"], "b": ["u", "v"], "c": [1, 2], "d": ["no", "yes"]}
POLICY = mq.Policy.build(
    SCHEMA, {("a", "b"): mq.channels.symmetric(4, "0.3"), "d": mq.channels.binary("1/4")}
)


def test_a_policy_lists_its_variables_and_the_whole_record():
    frame = POLICY.to_frame().set_index("variable")
    assert frame["released"].to_dict() == {"a": "with b", "b": "with a", "c": "clear", "d": "disguised"}
    assert frame.loc["d", "gamma"] == 3
    assert frame.loc["a", "gamma"] == frame.loc["b", "gamma"] == 7  # of their one report
    assert frame.loc["d", "epsilon"] == math.log(3)
    assert math.isnan(frame.loc["c", "gamma"])
    text = POLICY.summary()
    assert text.startswith("Policy(4 variables, 3 disguised")
    assert text.endswith("whole record: γ = 21 (ε = 3.04); no limit is stated")
    assert "<table>" in POLICY._repr_html_()
    assert "| d | 2 | disguised |" in markdown_of(POLICY)


def test_a_policy_plots_its_variables_also_without_channels():
    assert [tick.get_text() for tick in POLICY.plot().get_yticklabels()] == ["a", "b", "d"]
    clear = mq.Policy.build(SCHEMA, {})
    assert clear.plot().figure
    assert "nothing is disguised" in clear.summary()
