"""A Prio3 histogram as a source: the draft's vectors, the answers of the reports, and what is refused."""

from __future__ import annotations

import json
import secrets

import numpy as np
import pytest
from tests.unit.interop.conftest import POLICY

import masquerade as mq
from masquerade.core.errors import FileError, InputError
from masquerade.interop import dap_cell, from_dap, read_dap, to_dap
from masquerade.interop.dap import FIELD, unshard

# aggregate shares and result of Prio3Histogram with four cells, one report in the third: two generations of
# draft-irtf-cfrg-vdaf (test_vec/12 and the later test_vec/vdaf, Prio3Histogram_0)
VECTORS = [
    """
    6c2583213d4c8044b72040e25fb673a78d8d5715c3d8747ed5f4049eec8bc0de
    14a54de00550288675b8193b4a34ef9ec7ea5d2ae1f4236cd6aa3cd4284d93d5
    95da7cdec2b37fbb2cdfbf1da0498c587472a8ea3c278b810e0bfb6113743f21
    ee5ab21ffaafd7796e47e6c4b5cb10613a15a2d51e0bdc930d55c32bd7b26c2a
    """,
    """
    e720f2d625ee3cabce61d583c8c4054e82e8487025764348020264792b3d100f
    0d8c76f65caf04ee0e22373be0d61ac5fa6e2f2866078b31b90537e24416fad1
    1adf0d29da11c354159e2a7c373bfab17f17b78fda89bcb7e1fd9b86d4c2eff0
    f5738909a350fb11d5ddc8c41f29e53a0791d0d799f874ce2afac81dbbe9052e
    """,
]


@pytest.fixture(scope="module")
def reports(people):
    return mq.disguise(people[["smoker", "age", "region"]], POLICY)


@pytest.fixture(scope="module")
def result(reports):
    """What a collector gets: every device sends the number of its cell."""
    task = to_dap(POLICY)
    cells = [dap_cell(POLICY, row) for row in reports.to_dict("records")]
    return {
        "masquerade_dap": 1, "policy": POLICY.id, "vdaf": task["vdaf"], "report_count": len(cells),
        "counts": np.bincount(cells, minlength=task["length"]).tolist(),
    }  # fmt: skip


def sharded(counts):
    """Return counts as two aggregators hold them."""
    first = [secrets.randbelow(FIELD) for _ in counts]
    second = [(count - own) % FIELD for count, own in zip(counts, first, strict=True)]
    return [b"".join(one.to_bytes(16, "little") for one in share).hex() for share in (first, second)]


@pytest.mark.parametrize("shares", VECTORS)
def test_shares_of_the_draft_give_its_result(shares):
    whole = bytes.fromhex(shares)
    assert unshard([whole[:64], whole[64:]], 4) == [0, 0, 1, 0]


def test_a_histogram_answers_as_the_reports_do(result, reports, tmp_path):
    shares = {key: value for key, value in result.items() if key != "counts"}
    shares |= {"draft": 18, "shares": sharded(result["counts"])}
    (tmp_path / "result.json").write_text(json.dumps(shares))
    queries = [
        mq.Query(by=("smoker", "region")),
        mq.Query(by=("age",), where={"region": "north"}),
        mq.Query(),
    ]
    wanted = mq.tally(reports, POLICY).answer(queries)
    for source in (from_dap(result, POLICY), read_dap(tmp_path / "result.json", POLICY)):
        for own, known in zip(source.answer(queries), wanted, strict=True):
            assert own.values == pytest.approx(known.values)
            assert own.stderr() == pytest.approx(known.stderr())
            assert own.n == 600
    assert mq.learn.naive_bayes(from_dap(result, POLICY), "smoker").n == 600
    assert to_dap(POLICY)["length"] == 12


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"masquerade_dap": 2}, "masquerade_dap"),
        ({"more": 1}, "'more'"),
        ({"vdaf": "Prio3Sum"}, "Prio3Histogram"),
        ({"policy": "0" * 64}, "another policy"),
        ({"report_count": 601}, "add up"),
        ({"report_count": True}, "whole number"),
        ({"counts": [1.5] * 12}, "whole numbers"),
        ({"counts": [-1] + [0] * 11}, "0 or more"),
        ({"counts": [600]}, "12 cells"),
        ({"shares": ["00", "00"]}, "either"),
        ({"counts": None, "draft": 7, "shares": ["00", "00"]}, "'draft'"),
        ({"counts": None, "draft": 18, "shares": ["00" * 192]}, "2 to"),
        ({"counts": None, "draft": 18, "shares": ["00" * 192, "zz" * 192]}, "hexadecimal"),
        ({"counts": None, "draft": 18, "shares": ["00" * 192, "00" * 191]}, "bytes"),
        ({"counts": None, "draft": 18, "shares": ["00" * 192, "ff" * 192]}, "beyond its field"),
        ({"counts": None, "draft": 18, "shares": ["11" * 192, "12" * 192]}, "add up"),
    ],
)
def test_what_is_no_result_is_said(result, change, told):
    values = {key: value for key, value in (result | change).items() if value is not None}
    with pytest.raises(InputError, match=told):
        from_dap(values, POLICY)


def test_what_cannot_be_a_histogram_is_said(tmp_path):
    large = mq.Policy.build(
        {name: list(range(25)) for name in "abc"}, {"a": mq.channels.symmetric(25, "1/2")}
    )
    with pytest.raises(InputError, match="at most 10,000 cells"):
        to_dap(large)
    with pytest.raises(InputError, match="no report of 'age'"):
        dap_cell(POLICY, {"smoker": "yes"})
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(FileError, match=r"result.json: not a result"):
        read_dap(tmp_path / "result.json", POLICY)
