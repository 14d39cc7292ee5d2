"""Labels and names that a terminal would obey, or that begin a formula: shown escaped in every output."""

import json
import warnings

import pandas as pd
import pytest

import masquerade as mq
from masquerade.anonymity.measures import check
from masquerade.cli import output
from masquerade.core.errors import MasqueradeError
from masquerade.core.util.formatting import visible
from masquerade.report.anonymity import anonymity_html
from masquerade.report.breach_plot import breach_plot

EVIL = "a\x1b[31mred\r\x07\u202e\x9bevil"
DOLLARS = "$x_$ 5$ \\frac$"
SCHEMA = {EVIL: [EVIL, "b"], DOLLARS: [DOLLARS, "$b"], "c": [DOLLARS, EVIL]}
FRAME = pd.DataFrame(
    {
        EVIL: [EVIL, "b"] * 200,
        DOLLARS: [DOLLARS, "$b", "$b", DOLLARS] * 100,
        "c": [DOLLARS, EVIL, DOLLARS, DOLLARS] * 100,
    }
)
POLICY = mq.Policy.build(SCHEMA, {EVIL: mq.channels.binary("0.2")})


def obeyed(text):
    """Return the signs of a text that are not shown but obeyed."""
    return {sign for sign in text if sign != "\n" and visible(sign) != sign}


@pytest.fixture(scope="module")
def source():
    return mq.tally(mq.simulate(FRAME, POLICY, 1), POLICY)


@pytest.fixture(scope="module")
def results(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = mq.plan(POLICY.schema, privacy=2, n=1000)
        return [
            source.answer([mq.Query(by=(EVIL, DOLLARS))])[0],
            mq.learn.bayesian_network(source, {DOLLARS: (EVIL,), EVIL: (), "c": (EVIL,)}),
            mq.learn.structure(source, order=[EVIL, DOLLARS, "c"], max_parents=2),
            mq.learn.naive_bayes(source, "c"),
            mq.learn.decision_tree(source, "c"),
            mq.stats.shares(source, EVIL),
            mq.stats.associations(source),
            mq.privacy(POLICY),
            plan,
            source.schema,
            source,
        ]


def test_nothing_of_a_label_is_obeyed_in_text_or_html(results):
    assert obeyed(EVIL) == {"\x1b", "\r", "\x07", "\u202e", "\x9b"}
    for result in results:
        shown = [repr(result)]
        shown += [
            getattr(result, way)() for way in ("summary", "explain", "_repr_html_") if hasattr(result, way)
        ]
        for text in shown:
            assert not obeyed(text), type(result).__name__
    assert any("\\x1b[31mred" in repr(result) for result in results)


def test_pictures_draw_dollars_and_obey_nothing(results, tmp_path):
    drawn = [result.plot for result in results if hasattr(result, "plot")]
    plan = results[8]
    drawn += [plan.plot_queries, plan.plot_detectable, lambda: breach_plot(mq.privacy(POLICY))]
    assert len(drawn) > 8
    for draw in drawn:
        draw().figure.savefig(tmp_path / "picture.svg")
        assert not obeyed((tmp_path / "picture.svg").read_text())
    page = anonymity_html(check(FRAME, ["c"], sensitive=[EVIL, DOLLARS]), EVIL)
    assert not obeyed(page)


def test_errors_and_the_command_show_signs_written_out(source, capsys):
    for wrong in (
        lambda: source.answer([mq.Query(by="zz")]),
        lambda: source.answer([mq.Query(by="c", where={EVIL: "zz"})]),
        lambda: mq.tally(FRAME[["c"]], schema=mq.Schema({EVIL: ["b"]})),
    ):
        with pytest.raises(MasqueradeError) as said:
            wrong()
        assert not obeyed(str(said.value))
    output.say(f"no column {EVIL}")
    table = output.plain_table(EVIL, [EVIL])
    table.add_row(EVIL)
    output.emit(output.render(table, EVIL))
    output.emit({EVIL: EVIL})
    told = capsys.readouterr()
    assert not obeyed(told.out + told.err)
    assert json.loads(told.out[told.out.index("{") :]) == {EVIL: EVIL}
