"""A Prio3 histogram as a source: the draft's vectors, the answers of the reports, and what is refused."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.unit.interop.conftest import POLICY

import masquerade as mq
from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.interop import dap_cell, dap_sums, from_dap, read_dap, to_dap
from masquerade.interop.dap import FIELD, FIELDS, unshard

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

PUBLISHED = json.loads(
    (Path(__file__).parents[2] / "vectors" / "crypto" / "vdaf_prio3.json").read_text(encoding="utf-8")
)["vectors"]


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


@pytest.mark.parametrize("vector", PUBLISHED, ids=[vector["name"] for vector in PUBLISHED])
def test_published_vectors_of_all_types_unshard(vector):
    """Shares of two to four aggregators; a report that aggregators rejected leaves no shares to read."""
    values = {"masquerade_dap": 2, "draft": 20, "noised_by": 0, "vdaf": vector["vdaf"]}
    values |= {"shares": vector["agg_shares"], "report_count": vector["reports"]}
    if vector["agg_result"] is None:
        with pytest.raises(InputError, match="2 to"):
            dap_sums(values, 1)
        return
    expected, most = vector["agg_result"], vector["max_measurement"]
    assert dap_sums(values, len(expected), max_measurement=most).values.tolist() == expected
    changed = bytearray.fromhex(vector["agg_shares"][0])
    changed[4] ^= 1
    with pytest.raises(InputError):  # a sum that so few reports cannot have, or no element of the field
        dap_sums(values | {"shares": [changed.hex(), *vector["agg_shares"][1:]]}, len(expected), most)


def drop_a_byte(shares, _):
    return [shares[0][:-2], *shares[1:]]


def add_an_element(shares, field):
    return [share + "00" * field.size for share in shares]


def leave_the_last_share_out(shares, _):
    return shares[:-1]


def repeat_a_share(shares, _):
    return [*shares, shares[0]]


def add_the_modulus(shares, field):
    """The same element of the field, but not its only encoding."""
    own = int.from_bytes(bytes.fromhex(shares[0])[: field.size], "little")
    element = field.modulus + min(own, 256**field.size - 1 - field.modulus)
    return [element.to_bytes(field.size, "little").hex() + shares[0][2 * field.size :], *shares[1:]]


def subtract_one_more_than_the_sum(shares, field):
    """The first sum becomes -1, which no reports have."""
    elements = [int.from_bytes(bytes.fromhex(share)[: field.size], "little") for share in shares]
    element = (elements[0] - sum(elements) - 1) % field.modulus
    return [element.to_bytes(field.size, "little").hex() + shares[0][2 * field.size :], *shares[1:]]


@pytest.mark.parametrize(
    "spoil",
    [
        drop_a_byte,
        add_an_element,
        leave_the_last_share_out,
        repeat_a_share,
        add_the_modulus,
        subtract_one_more_than_the_sum,
    ],
)
@pytest.mark.parametrize("vector", PUBLISHED[:-1], ids=[vector["name"] for vector in PUBLISHED[:-1]])
def test_spoilt_vectors_are_refused(vector, spoil):
    values = {"masquerade_dap": 2, "draft": 20, "noised_by": 0, "vdaf": vector["vdaf"]}
    values |= {"report_count": vector["reports"]}
    length, most = len(vector["agg_result"]), vector["max_measurement"]
    shares = spoil(vector["agg_shares"], FIELDS[vector["vdaf"]])
    with pytest.raises(InputError):
        dap_sums(values | {"shares": shares}, length, most)


def test_shares_of_another_type_are_refused():
    """A vector of one field has twice the bytes of the other, or half."""
    for vector in PUBLISHED[:-1]:
        own = FIELDS[vector["vdaf"]]
        for vdaf, field in FIELDS.items():
            if field != own:
                values = {"masquerade_dap": 2, "draft": 20, "noised_by": 0, "vdaf": vdaf}
                values |= {"shares": vector["agg_shares"], "report_count": vector["reports"]}
                with pytest.raises(InputError):
                    dap_sums(values, len(vector["agg_result"]), vector["max_measurement"])


def test_the_vectors_are_of_every_type_and_number_of_aggregators():
    good = PUBLISHED[:-1]
    assert {vector["vdaf"] for vector in good} == set(FIELDS)
    assert {len(vector["agg_shares"]) for vector in good} == {2, 3, 4}
    assert len({vector["name"] for vector in PUBLISHED}) == len(PUBLISHED) == 16


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
        ({"masquerade_dap": 3}, "masquerade_dap"),
        ({"masquerade_dap": 2}, "noised_by"),
        ({"noised_by": 2}, "'noised_by' is not a key"),
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
        ({"counts": None, "draft": 18, "shares": ["00" * 192, "ff" * 192]}, "outside Field128"),
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
    with pytest.raises(FileError, match=r"result.json: not a DAP result"):
        read_dap(tmp_path / "result.json", POLICY)


# --- noise of aggregators -----------------------------------------------------------------------------------

PILLS = mq.Policy.build(
    {"pills": ["yes", "no"], "age": ["a", "b", "c"]}, {"pills": mq.channels.binary("0.25")}
)
TRUTH = np.array([[150, 300, 450], [600, 900, 600]])


def laplace(numerator, denominator=1):
    """Return a strategy as Janus writes it."""
    return {"dp_strategy": "PureDpDiscreteLaplace", "budget": {"epsilon": [[numerator], [denominator]]}}


def draw_noise(generator, scale, size):
    """Draw from the discrete Laplace distribution, as the difference of two geometric numbers."""
    q = np.exp(-1 / scale)
    return generator.geometric(1 - q, size) - generator.geometric(1 - q, size)


def noised(counts, n, *, noised_by=2, strategy=None, vdaf="Prio3Histogram"):
    """Return a result of version 2, in shares."""
    field = FIELDS[vdaf]
    first = [secrets.randbelow(field.modulus) for _ in counts]
    second = [(int(count) - own) % field.modulus for count, own in zip(counts, first, strict=True)]
    shares = [
        b"".join(one.to_bytes(field.size, "little") for one in share).hex() for share in (first, second)
    ]
    values = {"masquerade_dap": 2, "vdaf": vdaf, "draft": 20, "shares": shares, "report_count": n}
    values |= {"noised_by": noised_by} | ({} if strategy is None else {"dp_strategy": strategy})
    return values | ({"policy": PILLS.id} if vdaf == "Prio3Histogram" else {})


@pytest.mark.parametrize(("scale", "variance"), [(0.5, 0.362), (2, 7.835), (20, 799.83)])
def test_the_variance_of_noise_is_that_of_the_discrete_laplace_distribution(scale, variance):
    # the sensitivity of a histogram is 2, and one aggregator adds noise
    values = noised([5, 5], 10, noised_by=1, strategy=laplace(int(2 / scale * 100), 100))
    assert dap_sums(values | {}, 2).stderr ** 2 == pytest.approx(variance, rel=2e-4)


def test_disguise_and_noise_are_taken_out_together():
    """Coverage of 95% intervals, given records, over 120 runs of 6 cells and 2 margins.

    Cells are nearly independent: at least 720 · 0.95 − 6 · √(720 · 0.95 · 0.05) = 649 hits.
    """
    generator, n, runs = np.random.default_rng(8), int(TRUTH.sum()), 120
    channel = np.array([[0.75, 0.25], [0.25, 0.75]])
    hits, margins = 0, 0
    for _ in range(runs):
        reported = np.zeros((2, 3), dtype=int)
        for i, j in np.ndindex(2, 3):
            reported[:, j] += generator.multinomial(TRUTH[i, j], channel[i])
        cells = reported.ravel() + draw_noise(generator, 4, 6) + draw_noise(generator, 4, 6)
        source = from_dap(noised(cells, n, strategy=laplace(1, 2)), PILLS)
        [table, margin] = source.answer([mq.Query(by=("pills", "age")), mq.Query(by=("pills",))])
        low, high = table.conf_int(kind="given_records")
        hits += int(((low <= TRUTH) & (high >= TRUTH)).sum())
        low, high = margin.conf_int(kind="given_records")
        margins += int(((low <= TRUTH.sum(axis=1)) & (TRUTH.sum(axis=1) <= high)).sum())
    assert hits >= 649
    assert margins >= 120 * 2 * 0.95 - 6 * np.sqrt(120 * 2 * 2 * 0.95 * 0.05)  # both margins err together
    quiet = from_dap(noised(reported.ravel(), n, noised_by=0), PILLS)
    [plain] = quiet.answer([mq.Query(by=("pills", "age"))])
    inverse = np.kron(np.linalg.inv(channel).T, np.eye(3))
    q = np.exp(-1 / 4)
    added = 2 * 2 * q / (1 - q) ** 2 * inverse @ inverse.T
    noisy = from_dap(noised(reported.ravel(), n, strategy=laplace(1, 2)), PILLS)
    [table] = noisy.answer([mq.Query(by=("pills", "age"))])
    np.testing.assert_allclose(table.values, plain.values)
    both = [one.covariance.dense(kind="given_records") for one in (table, plain)]
    np.testing.assert_allclose(both[0] - both[1], added, atol=1e-8)


def test_sums_below_zero_are_elements_above_half_of_the_field():
    for count in (-1, 0, 1):
        values = noised([count, 300], 300, strategy=laplace(1), vdaf="Prio3SumVec")
        assert dap_sums(values, 2).values.tolist() == [count, 300]
    for vdaf in FIELDS:
        length = 1 if vdaf in {"Prio3Count", "Prio3Sum"} else 4
        counts = [7, 0, 9, 10][:length]
        sums = dap_sums(noised(counts, 10, noised_by=0, vdaf=vdaf), length)
        assert (sums.values.tolist(), sums.stderr, sums.report_count) == (counts, 0.0, 10)
        with pytest.raises(InputError, match="bytes"):
            dap_sums(noised(counts * 2, 10, noised_by=0, vdaf=vdaf), length)
    # without noise an element above half of the field is no sum of reports
    with pytest.raises(InputError, match="not possible with"):
        dap_sums(noised([-1, 300], 300, noised_by=0, vdaf="Prio3SumVec"), 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"noised_by": None}, "noised_by"),
        ({"noised_by": True}, "noised_by"),
        ({"dp_strategy": None}, "PureDpDiscreteLaplace"),
        ({"dp_strategy": {"dp_strategy": "ZCdpDiscreteGaussian"}}, "variance of other noise is not known"),
        ({"noised_by": 0}, "no aggregator added it"),
        ({"dp_strategy": laplace(0)}, "between"),
        ({"dp_strategy": laplace(2**32)}, "digits"),
        ({"dp_strategy": laplace(1) | {"more": 1}}, "budget"),
        ({"report_count": 100_000}, "add up"),
    ],
)
def test_noise_that_is_not_stated_right_is_refused(change, told):
    values = noised(TRUTH.ravel(), int(TRUTH.sum()), strategy=laplace(1, 2)) | change
    with pytest.raises(InputError, match=told):
        from_dap({key: value for key, value in values.items() if value is not None}, PILLS)


def test_noise_of_vectors_of_sums_has_the_sensitivity_of_their_largest_measurement():
    for vdaf in ("Prio3SumVec", "Prio3SumVecWithMultiproof"):
        values = noised([5, 5], 10, noised_by=1, strategy=laplace(1), vdaf=vdaf)
        q = np.exp(-1 / (2 * 7))  # two sums of at most 7
        assert dap_sums(values, 2, 7).stderr ** 2 == pytest.approx(2 * q / (1 - q) ** 2)


def test_types_without_a_strategy_for_noise_are_refused():
    with pytest.raises(InputError, match="has no strategy"):
        dap_sums(noised([5], 10, strategy=laplace(1), vdaf="Prio3Sum"))
    with pytest.raises(InputError, match="dap_sums reads"):
        from_dap(noised([5], 10, noised_by=0, vdaf="Prio3Sum"), PILLS)


# --- sums of bits -------------------------------------------------------------------------------------------

TOWN = mq.Variable("town", ["Ulm", "Trier", "Jena"])
UNARY = mq.channels.unary_encoding(TOWN, gamma=5)
LIVING = np.array([900, 600, 1500])


def reported_bits(generator):
    """Return the number of true reports of each bit; true is kept with 1/2, false reported true with 1/6."""
    n = LIVING.sum()
    return np.array([generator.binomial(own, 1 / 2) + generator.binomial(n - own, 1 / 6) for own in LIVING])


def bit_result(sums, **more):
    return {
        "masquerade_dap": 1, "policy": UNARY.id, "vdaf": "Prio3MultihotCountVec",
        "report_count": int(LIVING.sum()), "counts": [int(one) for one in sums],
    } | more  # fmt: skip


def test_sums_of_bits_answer_as_the_reports_do():
    generator = np.random.default_rng(2)
    home = generator.permutation(np.repeat(np.arange(3), LIVING))
    bits = {name: home == code for code, name in enumerate(UNARY.schema)}
    reports = mq.simulate(pd.DataFrame(bits), UNARY, seed=3)
    sums = [int(np.sum(reports[name])) for name in UNARY.observed]
    task = mq.interop.to_dap(UNARY, "Prio3MultihotCountVec")
    assert (task["length"], task["max_weight"], list(task["variables"])) == (3, 3, list(UNARY.observed))
    assert mq.interop.to_dap(UNARY, "Prio3SumVec")["max_measurement"] == 1
    queries = [mq.Query(by=(name,)) for name in bits] + [mq.Query(where={"town=Jena": True}), mq.Query()]
    wanted = mq.tally(reports, UNARY).answer(queries)
    for vdaf in ("Prio3MultihotCountVec", "Prio3SumVec"):
        source = from_dap(bit_result(sums, vdaf=vdaf), UNARY)
        for own, known in zip(source.answer(queries), wanted, strict=True):
            assert own.values == pytest.approx(known.values)
            assert own.stderr("given_records") == pytest.approx(known.stderr("given_records"))
            assert own.n == known.n == 3000
    pair = mq.Query(by=("town=Ulm", "town=Jena"))
    assert [refusal.code for refusal in source.check([pair])] == ["not_counted"]
    with pytest.raises(QueryRefused, match="one variable at a time"):
        source.answer([pair])


def test_noise_and_disguise_of_bits_are_taken_out_together():
    """Coverage of 95% intervals given the records, over 150 runs of three bits; false alarms below 1e-6.

    Noise that true gains is lost by false: the variance is V/(p − q)², and both cells add up to n.
    """
    generator, runs, hits = np.random.default_rng(12), 150, 0
    scale = 3 / 0.05  # three sums of at most 1, and ε = 1/20
    for _ in range(runs):
        sums = reported_bits(generator) + draw_noise(generator, scale, 3) + draw_noise(generator, scale, 3)
        values = noised(sums, 3000, strategy=laplace(1, 20), vdaf="Prio3SumVec") | {"policy": UNARY.id}
        source = from_dap(values, UNARY)
        tables = source.answer([mq.Query(by=(name,)) for name in UNARY.schema])
        for table, own in zip(tables, LIVING, strict=True):
            low, high = table.conf_int(kind="given_records")
            hits += bool(low[0] <= own <= high[0])
            assert table.values.sum() == pytest.approx(3000)
    assert hits >= 450 * 0.95 - 5 * np.sqrt(450 * 0.95 * 0.05)
    quiet = from_dap(bit_result(sums), UNARY).answer([mq.Query(by=("town=Jena",))])[0]
    q = np.exp(-1 / scale)
    added = 2 * 2 * q / (1 - q) ** 2 / (1 / 2 - 1 / 6) ** 2
    both = [one.covariance.dense(kind="given_records") for one in (tables[2], quiet)]
    np.testing.assert_allclose(both[0] - both[1], added * np.array([[1, -1], [-1, 1]]), rtol=1e-9)
    [one] = source.answer([mq.Query(where={"town=Jena": True})])
    assert one.stderr("given_records") == pytest.approx(tables[2].stderr("given_records")[0])


@pytest.mark.parametrize(
    ("policy", "change", "told"),
    [
        (UNARY, {"counts": [1, 2]}, "3 cells"),
        (UNARY, {"counts": [1, 2, 3001]}, "sum of bits"),
        (UNARY, {"counts": [-1, 2, 3]}, "0 or more"),
        (UNARY, {"vdaf": "Prio3Sum"}, "dap_sums reads"),
        (UNARY, {"policy": "0" * 64}, "another policy"),
        (PILLS, {"policy": PILLS.id}, "true or false"),
    ],
)
def test_sums_that_are_not_of_bits_are_refused(policy, change, told):
    with pytest.raises(InputError, match=told):
        from_dap(bit_result([500, 600, 700]) | change, policy)
    with pytest.raises(InputError, match="'vdaf' must be"):
        mq.interop.to_dap(UNARY, "Prio3Count")


def test_noise_of_bits_needs_a_strategy_that_is_known():
    values = noised([5, 6, 7], 3000, strategy=laplace(1), vdaf="Prio3MultihotCountVec")
    with pytest.raises(InputError, match="has no strategy"):
        from_dap(values | {"policy": UNARY.id}, UNARY)
