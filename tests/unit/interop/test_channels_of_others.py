"""PRAM matrices of sdcMicro and OpenDP's randomized response: the same channels, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import ChannelError, InputError, SingularChannel
from masquerade.interop import from_opendp, from_pram, read_pram, to_opendp, to_pram

TABLE = '"","a","b","c"\n"a",0.8,0.15,0.05\n"b",0.1,0.9,0\n"c",0.2,0.3,0.5\n'
DPUT = (
    "structure(c(0.8, 0.1, 0.2, 0.15, 0.9, 0.3, 0.05, 0, 0.5), dim = c(3L, \n"
    '3L), dimnames = list(c("a", "b", "c"), c("a", "b", "c")))\n'
)


def test_csv_and_dput_say_the_same_exactly(tmp_path):
    (tmp_path / "kind.R").write_text(DPUT)
    (tmp_path / "other.csv").write_text(TABLE)
    policy = read_pram({"kind": tmp_path / "kind.R", "other": tmp_path / "other.csv"})
    assert policy.schema["kind"].categories == ("a", "b", "c")
    rows = [group.matrix_channel.rows for group in policy.groups]
    wanted = (("4/5", "3/20", "1/20"), ("1/10", "9/10", "0"), ("1/5", "3/10", "1/2"))
    assert rows == [tuple(tuple(map(Fraction, row)) for row in wanted)] * 2
    assert from_pram({"kind": to_pram(policy, "kind")}).id == from_pram({"kind": DPUT}).id


def test_rows_of_fifteen_digits_are_rescaled_and_estimates_are_right():
    thirds = '"","x","y","z"\n' + "".join(
        f'"{name}",{",".join("0.6" if at == place else "0.2" for at in range(3))}\n'
        for place, name in enumerate("xyz")
    )
    printed = thirds.replace("0.6", "0.333333333333334").replace("0.2", "0.333333333333333")
    with pytest.raises(SingularChannel, match=r"v: .*singular"):
        from_pram({"v": printed})
    policy = from_pram({"v": thirds}, mq.Schema({"v": ["x", "y", "z"]}))
    # reports as they are expected of 100 x, 200 y and 300 z
    expected = np.array([100, 200, 300]) @ np.array([[3, 1, 1], [1, 3, 1], [1, 1, 3]]) / 5
    frame = pd.DataFrame({"v": np.repeat(["x", "y", "z"], expected.astype(int))})
    [table] = mq.tally(frame, policy).answer([mq.Query(by=("v",))])
    assert table.values == pytest.approx([100, 200, 300])


def test_labels_come_from_a_schema_and_columns_may_stand_in_another_order():
    text = '"","2","1"\n"1",0.25,0.75\n"2",0.9,0.1\n'
    policy = from_pram({"v": text}, mq.Schema({"v": [1, 2]}))
    assert policy.schema["v"].categories == (1, 2)
    assert policy.groups[0].matrix_channel.rows[0] == (Fraction(3, 4), Fraction(1, 4))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"","a","b"\n"a",0.5,0.5\n"b",0.5,0.5\n', "singular"),
        ('"","a","b"\n"a",0.5,0.4\n"b",0.5,0.5\n', "row 1 must"),
        ('"","a","b"\n"a",1.5,-0.5\n"b",0.5,0.5\n', "row 1 must"),
        ('"","a","b"\n"a",x,0.5\n"b",0.5,0.5\n', "must be a number"),
        ('"","a","b"\n"a",0.5,0.5\n', "square"),
        ('"","a","b"\n"a",0.5,0.5\n"c",0.5,0.5\n', "same categories"),
        ('"","a"\n"a",1\n', "2 to"),
        ('"","a","b"\n"a",0.5\n', "as many values"),
        ('"a', "comma-separated"),
        ("", "not a table"),
        (DPUT.replace("dim = c(3L", "dim = c(4L"), "as `dim` states"),
        (DPUT.replace("0.8, ", ""), "as `dim` states"),
        (DPUT[:-4], "dput"),
        (DPUT + "1", "text after the matrix"),
        (DPUT.replace("c(0.8", "system(0.8"), "dput"),
        (DPUT.replace('"a"', r'"\u0061"'), "escape"),
        ("structure(c(1))", "dimnames"),
    ],
)
def test_what_is_no_matrix_is_said(text, told):
    with pytest.raises(InputError, match=told):
        from_pram({"v": text})
    with pytest.raises(InputError, match="no matrix"):
        from_pram({})


@pytest.mark.parametrize("size", [2, 3, 7])
def test_epsilon_is_the_one_of_opendp(size):
    # make_randomized_response of OpenDP: ε = ln(prob·(k − 1)/(1 − prob))
    labels = [f"c{i}" for i in range(size)]
    policy = from_opendp("v", labels, "0.8")
    keep = 0.8
    assert math.log(policy.groups[0].matrix_channel.gamma) == pytest.approx(
        math.log(keep * (size - 1) / (1 - keep))
    )
    told = to_opendp(policy, "v")
    assert told["categories"] == labels
    # the float next below, so that γ does not rise: 0.8 as a float is more than 4/5
    assert Fraction(told["prob"]) <= Fraction(4, 5) < Fraction(math.nextafter(told["prob"], 1))
    third = to_opendp(from_opendp("v", labels, "2/3"), "v")["prob"]
    assert Fraction(third) <= Fraction(2, 3) < Fraction(math.nextafter(third, 1))


def test_what_opendp_does_not_draw_is_refused():
    schema = {"v": ["a", "b", "c"], "w": ["x", "y"], "clear": [1, 2]}
    policy = mq.Policy.build(
        schema, {"v": from_pram({"v": TABLE}).groups[0].matrix_channel, "w": mq.channels.binary("1/4", "1/8")}
    )
    for name in ("v", "w"):
        with pytest.raises(ChannelError, match="k-ary"):
            to_opendp(policy, name)
    with pytest.raises(InputError, match="not disguised"):
        to_opendp(policy, "clear")
    with pytest.raises(InputError, match="not disguised"):
        to_pram(policy, "clear")
    for prob in ("1/2", 1, "0.3"):
        with pytest.raises(ChannelError, match="between 1/k and 1"):
            from_opendp("v", ["a", "b"], prob)
    with pytest.raises(ChannelError, match="k-ary"):  # another answer more often than the truth
        to_opendp(mq.Policy.build({"v": ["a", "b", "c"]}, {"v": mq.channels.symmetric(3, "4/5")}), "v")
    wide = mq.channels.matrix([[1, 0, 0], [0, "1/2", "1/2"]], "xyz")
    with pytest.raises(InputError, match="square"):
        to_pram(mq.Policy.build({"v": ["a", "b"]}, {"v": wide}), "v")
