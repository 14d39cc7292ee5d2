"""Critical values for many intervals: known ones of independent and of equal variables, and tables."""

from statistics import NormalDist

import numpy as np
import pytest
from tests.unit.core.linear import clear_table

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.core.simultaneous import bonferroni, max_t

GROUP = Variable("group", ("a", "b", "c", "d"))


def test_bonferroni_divides_what_may_fail():
    assert bonferroni(0.95, 1) == pytest.approx(two_sided_quantile(0.95))
    assert bonferroni(0.95, 10) == pytest.approx(two_sided_quantile(0.995))


@pytest.mark.parametrize("cells", [2, 7, 40])
def test_independent_variables_need_sidaks_value(cells):
    sidak = NormalDist().inv_cdf(0.5 + 0.95 ** (1 / cells) / 2)
    assert max_t(0.95, np.diag(np.arange(1.0, cells + 1))) == pytest.approx(sidak, rel=0.015)


def test_variables_that_are_all_the_same_need_no_more_than_one():
    assert max_t(0.95, np.full((5, 5), 3.0)) == pytest.approx(two_sided_quantile(0.95), rel=0.015)


def test_what_does_not_vary_needs_nothing():
    assert max_t(0.9, np.zeros((3, 3))) == two_sided_quantile(0.9)
    assert max_t(0.95, np.diag([4.0, 0.0])) == pytest.approx(two_sided_quantile(0.95), rel=0.015)


def test_tables_hold_together():
    """All four shares of 400 records: each interval by itself, and all of them at once."""
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    draws = np.random.default_rng(3).multinomial(400, shares, size=1000)
    for method, runs in ((None, 1000), ("bonferroni", 1000), ("max-t", 60)):
        held = 0
        for draw in draws[:runs]:
            table = clear_table(draw, (GROUP,))
            lower, upper = table.conf_int(simultaneous=method)
            held += bool(np.all((lower <= 400 * shares) & (400 * shares <= upper)))
        if method is None:
            assert held / runs < 0.9
        else:
            assert held / runs > 0.95 - 5 * np.sqrt(0.95 * 0.05 / runs)
    widths = [np.diff(table.conf_int(simultaneous=m), axis=0).sum() for m in ("max-t", "bonferroni")]
    assert widths[0] <= widths[1]


def test_a_frame_holds_them_and_an_unknown_way_is_refused():
    table = clear_table([40, 30, 20, 10], (GROUP,))
    assert table.to_frame(simultaneous="bonferroni")["upper"].tolist() == pytest.approx(
        table.conf_int(simultaneous="bonferroni").upper.tolist()
    )
    with pytest.raises(InputError, match=r"None or one of bonferroni, max-t\. Got 'tukey'"):
        table.conf_int(simultaneous="tukey")
