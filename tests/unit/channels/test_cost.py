"""What a channel costs is bounded before it is built; whole numbers build the channels that fractions do."""

from __future__ import annotations

import math
import resource
import time
from fractions import Fraction
from itertools import product
from random import Random

import pytest

import masquerade as mq
from masquerade.channels import basic, class_response, designs, survey_designs
from masquerade.channels.channel import from_rows
from masquerade.core.errors import ChannelError, InputError, PolicyError


def policy(variables: int, channel: dict, size: int = 2) -> dict:
    """Return a policy of some variables disguised together."""
    names = [f"v{i}" for i in range(variables)]
    return {
        "masquerade": 1,
        "variables": {name: {"categories": [f"c{k}" for k in range(size)]} for name in names},
        "joint": [{"variables": names, "channel": channel}],
    }


ONE = {"masquerade": 1, "variables": {"a": {"categories": [f"c{i}" for i in range(2000)]}}}
SYMMETRIC = {"kind": "symmetric", "p": 0.5}


def of(channel: dict, categories: int = 2000) -> dict:
    """Return a policy of one variable."""
    labels = [f"c{i}" for i in range(categories)]
    return {"masquerade": 1, "variables": {"a": {"categories": labels, "channel": channel}}}


@pytest.mark.parametrize(
    ("values", "cost"),
    [
        (of({"kind": "composition", "steps": [SYMMETRIC, SYMMETRIC]}), 2000**3),
        (of({"kind": "invariant", "prior": ["1/2000"] * 2000, "base": SYMMETRIC}), 2000**3),
        (policy(26, {"kind": "flip", "theta": 0.7}), 2**26),
        (policy(40, {"kind": "flip", "theta": 0.7}), 2**40),
        (policy(40, {"kind": "identity"}), 2**40),
        (policy(5000, SYMMETRIC), 2**5000),
        (policy(12, {"kind": "flip", "theta": [0.7] * 12, "groups": [[f"v{i}"] for i in range(12)]}), 2**24),
        (of({"kind": "kuk", "p1": "0." + "1" * 300, "p2": 0.5, "cards": 1000}, 2), 10**9),
        ({"masquerade": 1, "variables": {"a": {"bins": [0, 1, 2], "channel": {
            "kind": "additive", "noise": "uniform", "scale": "1e12"}}}}, 10**12),
        ({"masquerade": 1, "variables": {"a": {"bins": [0, 1, 2], "channel": {
            "kind": "additive", "noise": "gaussian", "scale": "1e300"}}}}, 10**300),
    ],
)  # fmt: skip
def test_a_policy_of_a_few_bytes_cannot_stop_who_reads_it(values, cost):
    assert cost > 10**6  # operations that building it would take
    memory, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    with pytest.raises(PolicyError, match=r"operations|too large|at most|fewer digits"):
        mq.Policy.from_dict(values)
    assert time.thread_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 512 << 10


def test_many_large_channels_are_refused_together():
    labels = [f"c{i}" for i in range(2000)]
    one = {"categories": labels, "channel": SYMMETRIC}
    values = {"masquerade": 1, "variables": {f"v{i}": one for i in range(5)}}
    with pytest.raises(PolicyError, match=r"variables\.v4\.channel: the channels .* too large together"):
        mq.Policy.from_dict(values)


@pytest.mark.parametrize("p", ["1e400", "1e-400", "9" * 5000, 10**400, "1/" + "3" * 2000, math.inf, math.nan])
def test_numbers_beyond_floating_point_are_refused(p):
    for channel in ({"kind": "symmetric", "p": p}, {"kind": "for_gamma", "gamma": p}):
        with pytest.raises(InputError):
            mq.Policy.from_dict(of(channel, 3))
    with pytest.raises(InputError):
        mq.Policy.from_dict({"masquerade": 1, "variables": {"a": {"bins": [0, p]}}})


def test_what_is_not_too_large_is_quick():
    began = time.thread_time()
    assert basic.symmetric(200, "0.3").then(basic.symmetric(200, "0.3")).gamma < 1000
    assert basic.flip([2] * 14, "0.7").truths == 2**14
    assert designs.additive(range(101), "gaussian", 20).truths == 100
    assert time.thread_time() - began < 20  # with fractions: minutes


def slow_then(first, second):
    rows = [
        {
            m: sum((p * second.row(k).get(m, Fraction(0)) for k, p in first.row(t).items()), Fraction(0))
            for m in range(second.reports)
        }
        for t in range(first.truths)
    ]
    return from_rows(rows, second.reports)


def slow_flip(sizes, theta):
    cells = list(product(*map(range, sizes)))
    rows = []
    for cell in cells:
        turned = tuple(1 - value for value in cell)
        rows.append({cells.index(cell): theta, cells.index(turned): 1 - theta})
    return from_rows(rows, len(cells))


def slow_kuk(shares, cards):
    rows = [
        {n: math.comb(cards, n) * share**n * (1 - share) ** (cards - n) for n in range(cards + 1)}
        for share in shares
    ]
    return from_rows(rows, cards + 1)


def slow_invariant(prior, base, mix):
    rows, size = base.rows, range(base.truths)
    chance = [sum((prior[j] * rows[j][m] for j in size), Fraction(0)) for m in size]
    back = [
        [prior[l] * rows[l][m] / chance[m] if chance[m] else Fraction(l == m) for l in size] for m in size
    ]
    return from_rows(
        [
            {
                l: mix * sum((rows[k][m] * back[m][l] for m in size), Fraction(0)) + (1 - mix) * (k == l)
                for l in size
            }
            for k in size
        ],
        base.truths,
    )


def test_whole_numbers_build_what_fractions_did():
    chance = Random(3)  # noqa: S311  (to be repeated)

    def drawn(truths, reports, largest):
        weights = [
            [chance.choice([0, chance.randrange(1, largest)]) for _ in range(reports)] for _ in range(truths)
        ]
        rows = [[Fraction(w + (m == 0), sum(row) + 1) for m, w in enumerate(row)] for row in weights]
        return basic.matrix(rows)

    for largest in (3, 50, 10**12) * 5:
        first, second = drawn(4, 3, largest), drawn(3, 5, largest)
        assert first.then(second).fingerprint == slow_then(first, second).fingerprint
        weights = [chance.randrange(4) for _ in range(3)] + [1]
        prior = [Fraction(weight, sum(weights)) for weight in weights]
        base, mix = drawn(4, 4, largest), Fraction(chance.randrange(4), 3)
        expected = slow_invariant(prior, base, mix).fingerprint
        assert designs.invariant(prior, base, mix).fingerprint == expected
    for theta in (Fraction(7, 10), Fraction(1, 3), Fraction(123456789, 10**20)):
        assert basic.flip([2, 2, 2], theta).fingerprint == slow_flip([2, 2, 2], theta).fingerprint
        assert (
            survey_designs.kuk(theta, "0.4", 9).fingerprint
            == slow_kuk([theta, Fraction(2, 5)], 9).fingerprint
        )


def test_errors_name_what_would_be_too_much():
    with pytest.raises(ChannelError, match=r"would take 8,000,000,000 operations on numbers of \d+ bits"):
        basic.symmetric(2000, "0.3").then(basic.symmetric(2000, "0.3"))


def test_blocks_count_among_the_channels_of_a_policy(monkeypatch):
    """Before, 20 choose 10 of them took 0.8 GiB for each question, and were listed to check an order."""
    names = [f"v{i}" for i in range(20)]
    blocks = {"variables": names, "k": 10, "gamma": "3", "order": 10}
    values = {"masquerade": 1, "variables": {name: {"categories": [0, 1]} for name in names}}
    monkeypatch.setattr(class_response, "_subsets", lambda *_: pytest.fail("blocks were listed"))
    with pytest.raises(PolicyError, match=r"blocks\[0\]: the channels .* too large together"):
        mq.Policy.from_dict(values | {"blocks": [blocks]})
