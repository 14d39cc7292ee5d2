"""Tables of counts."""

import math
import pickle
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta
from tests.unit.core.linear import clear_table

import masquerade as mq
from masquerade.core.axes import AxisMap, AxisMaps
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.evidence import TableReduction
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import ReportEvidence
from masquerade.estimate.reports import Reports

SMOKER, REGION = Variable("smoker", ("yes", "no")), Variable("region", (1, 2, 3))
COUNTS = [[3, 0, 7], [11, 13, 16]]


@dataclass(frozen=True)
class Moved(ReportEvidence):
    """Evidence whose projection moves every count of the whole table."""

    times: int = 1
    plus: int = 0

    def nonnegative(self, method):
        del method
        return self.view.apply(self.times * self.values + self.plus)


def moved(table, times, plus):
    base = table.evidence
    return replace(table, evidence=Moved(base.parts, base.values, base.covariance, base.view, times, plus))


@pytest.fixture
def table():
    return clear_table(COUNTS, (SMOKER, REGION))


@pytest.fixture
def estimated():
    """Return the table of 100 binary reports, 40 first, through a channel with p1 = 0.1, p2 = 0.25."""
    G = np.linalg.inv([[0.9, 0.1], [0.25, 0.75]])
    reports = np.array([40.0, 60.0])
    values = reports @ G
    covariance = LinearCovariance(
        (CovariancePart(reports, AxisMaps((2,), (AxisMap((0,), G),))),), values, values, 100
    )
    P = np.array([[0.9, 0.1], [0.25, 0.75]])
    part = Reports(reports, (P,), (2,), TableReduction.none(1))
    return CountTable((SMOKER,), values, 100, ReportEvidence.of([part], values, covariance))


def test_values_cannot_be_changed_and_the_callers_array_can(table):
    mine = np.ones(2)
    taken = clear_table(mine, (SMOKER,))
    with pytest.raises(ValueError, match="read-only"):
        taken.values[0] = 5
    mine[0] = 2
    assert mine.flags.writeable
    assert table.values.dtype == np.float64


def test_stderr_of_both_kinds(estimated):
    # G = [[.75, −.1], [−.25, .9]]/.65; N̂1 = (.75·40 − .25·60)/.65 = 15/.65
    first = 15 / 0.65
    square = (0.75**2 * 40 + 0.25**2 * 60) / 0.65**2
    assert estimated.values[0] == pytest.approx(first)
    assert estimated.stderr()[0] == pytest.approx(math.sqrt((square - first**2 / 100) * 100 / 99))
    assert estimated.stderr("given_records")[0] == pytest.approx(math.sqrt(square - first))


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_of_clear_records_are_wilsons(level):
    counts = 20 * np.array(COUNTS)
    z, n = NormalDist().inv_cdf(0.5 + level / 2), 1000
    share = counts / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    interval = clear_table(counts, (SMOKER, REGION)).conf_int(level)
    many = counts > 0
    np.testing.assert_allclose(interval.lower[many], n * (middle - half)[many], atol=1e-9)
    np.testing.assert_allclose(interval.upper[many], n * (middle + half)[many], atol=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_of_few_clear_records_are_cloppers_and_pearsons(table, level):
    counts, n, tail = np.array(COUNTS), 50, (1 - level) / 2
    few = counts < 10
    lower = np.where(counts > 0, beta.ppf(tail, counts, n - counts + 1), 0.0)
    interval = table.conf_int(level)
    np.testing.assert_allclose(interval.lower[few], n * lower[few], rtol=1e-6)
    np.testing.assert_allclose(
        interval.upper[few], n * beta.ppf(1 - tail, counts + 1, n - counts)[few], rtol=1e-6
    )
    assert interval.lower[0, 1] == 0  # an empty cell


def test_intervals_given_the_records_have_the_variance_under_the_hypothesis(estimated):
    # of N records of the first kind 0.1 say the second, of the 100 − N others 0.25 say the first
    z2 = NormalDist().inv_cdf(0.975) ** 2
    for end in estimated.conf_int(kind="given_records"):
        variance = (end[0] * 0.9 * 0.1 + (100 - end[0]) * 0.25 * 0.75) / 0.65**2
        assert (estimated.values[0] - end[0]) ** 2 == pytest.approx(z2 * variance)


def test_intervals_of_estimates_are_those_of_the_reports_mapped_back(estimated):
    # Wilson's interval of 40 reports of 100; the first category is reported with 0.25 + 0.65·share
    z2 = NormalDist().inv_cdf(0.975) ** 2
    for end in estimated.conf_int():
        reported = 0.25 + 0.65 * end[0] / 100
        assert (0.4 - reported) ** 2 == pytest.approx(z2 * reported * (1 - reported) / 100)


def test_the_standard_error_is_not_zero_where_no_report_that_would_tell_was_seen(table):
    # each report of "yes" stands for 20 people, since 0.05 of them say it; nobody said it
    P = np.array([[0.05, 0.95], [0.0, 1.0]])
    G, reports = np.linalg.inv(P), np.array([0.0, 100.0])
    covariance = LinearCovariance(
        (CovariancePart(reports, AxisMaps((2,), (AxisMap((0,), G),))),), reports, reports, 100
    )
    silent = CountTable((SMOKER,), reports, 100, ReportEvidence.clear(reports, covariance))
    np.testing.assert_allclose(silent.stderr(), [20, 20])
    np.testing.assert_allclose(silent.stderr("given_records")[0], math.sqrt(400 - 20))
    np.testing.assert_allclose(silent.conf_int().upper[0], 20 * 100 * (1 - 0.025 ** (1 / 100)))
    assert table.stderr()[0, 1] == 1  # no record in the sample is not none in the population
    assert not table.stderr("given_records").any()  # but the records themselves are known
    assert not table.marginal([]).stderr().any()  # and so is their number


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, math.nan])
def test_a_level_outside_0_and_1_is_refused(table, level):
    with pytest.raises(InputError, match=f"between 0 and 1. Got {level}"):
        table.conf_int(level)


def test_an_unknown_kind_is_refused(table):
    for ask in (
        table.stderr,
        lambda kind: table.conf_int(0.9, kind),
        lambda kind: table.within("region", kind),
    ):
        with pytest.raises(InputError, match="'exact'"):
            ask("exact")


def test_marginal_sums_reorders_and_keeps_exact_errors(table):
    region = table.marginal("region")
    assert region.axes == (REGION,)
    assert region.values.tolist() == [14, 13, 23]
    assert region.n == 50
    # multinomial: var = N(1 − N/n)
    np.testing.assert_allclose(region.stderr() ** 2, [14 * 36 / 49, 13 * 37 / 49, 23 * 27 / 49])
    turned = table.marginal(("region", "smoker"))
    assert turned.names == ("region", "smoker")
    np.testing.assert_array_equal(turned.values, np.transpose(COUNTS))
    np.testing.assert_allclose(turned.stderr(), table.stderr().T)
    whole = table.marginal(())
    assert (whole.values.shape, whole.total, float(whole.stderr())) == ((), 50, 0)


def test_select_slices_with_the_errors_of_the_slice(table):
    some = table.select({"smoker": "no"})
    assert (some.axes, some.n) == ((REGION,), 50)
    assert some.values.tolist() == [11, 13, 16]
    np.testing.assert_allclose(some.stderr(), table.stderr()[1])
    cell = table.select({"region": 3, "smoker": "yes"})
    assert float(cell.values) == 7
    for bad, message in [
        ({"smoker": "maybe"}, "'maybe' is not a category"),
        ({"smokr": "no"}, "Did you mean"),
    ]:
        with pytest.raises(SchemaError, match=message):
            table.select(bad)


@pytest.mark.parametrize("ask", ["marginal", "within"])
def test_variables_are_named_once_and_exist(table, ask):
    with pytest.raises(InputError, match="named twice among region, region"):
        getattr(table, ask)(("region", "region"))
    with pytest.raises(SchemaError, match="Did you mean 'region'"):
        getattr(table, ask)(["regoin"])


def test_within_gives_the_blocks_of_the_named_variables(table):
    blocks = table.within("region")
    assert blocks.shape == (2, 3, 3)
    for row, counts in enumerate(np.array(COUNTS, dtype=float)):
        np.testing.assert_allclose(blocks[row], np.diag(counts) - np.outer(counts, counts) / 50)


def test_adding_pools_independent_records(table):
    other = clear_table(np.array(COUNTS) * 2, (SMOKER, REGION))
    pooled = table + other
    assert pooled.n == 150
    np.testing.assert_array_equal(pooled.values, 3 * np.array(COUNTS))
    seen = np.array(COUNTS) > 0
    both = table.covariance.diagonal() + other.covariance.diagonal()
    np.testing.assert_allclose(pooled.stderr()[seen] ** 2, both[seen] * 150 / 149)
    assert pooled.stderr()[~seen] == 1  # one record more of 150
    np.testing.assert_array_equal(pooled.nonnegative("clip").values, 3 * np.array(COUNTS))


def test_tables_that_do_not_fit_are_not_added(table):
    with pytest.raises(InputError, match="their variables differ"):
        table + table.marginal(("region", "smoker"))
    with pytest.raises(InputError, match="their variables differ"):
        table + clear_table(COUNTS, (Variable("smoker", ("no", "yes")), REGION))
    with pytest.raises(InputError, match="after adding"):
        table + table.nonnegative("clip")
    with pytest.raises(TypeError):
        table + 1


def test_projection_is_visible_and_only_the_known_ones_exist(table, estimated):
    assert estimated.adjusted is None
    projected = estimated.nonnegative("simplex")
    assert projected.adjusted == "simplex"
    assert "nonnegative by 'simplex'" in projected.summary()
    np.testing.assert_array_equal(projected.stderr(), estimated.stderr())
    assert table.nonnegative().marginal("region").adjusted == "mle"
    with pytest.raises(InputError, match=r"'mle', 'simplex', 'clip'\. Got 'abs'"):
        table.nonnegative("abs")


def test_intervals_of_a_projected_table_are_those_of_the_estimate(table):
    # a projection that moves every count: intervals, errors and sums of it stay where the estimate is
    projected = moved(table, 1, 5).nonnegative("simplex")
    np.testing.assert_array_equal(projected.values, table.values + 5)
    for view in (
        lambda t: t,
        lambda t: t.marginal("region"),
        lambda t: t.select({"smoker": "no"}),
        lambda t: t + t,
    ):
        np.testing.assert_allclose(view(projected).conf_int(), view(table).conf_int())
        np.testing.assert_allclose(
            view(projected).conf_int(kind="given_records"), view(table).conf_int(kind="given_records")
        )
    np.testing.assert_array_equal(projected.nonnegative("clip").estimate, table.values)


def test_the_frame_shows_the_kind_that_is_asked_for(estimated):
    frame = estimated.to_frame(kind="given_records")
    np.testing.assert_array_equal(frame["stderr"], estimated.stderr("given_records"))
    np.testing.assert_array_equal(frame["lower"], estimated.conf_int(kind="given_records").lower)


def test_a_marginal_of_a_projection_is_the_projection_of_the_whole(table):
    doubled = moved(table, 2, 0)
    assert doubled.marginal("region").nonnegative("mle").values.tolist() == [28, 26, 46]
    assert doubled.select({"smoker": "yes"}).nonnegative("mle").values.tolist() == [6, 0, 14]


def test_the_frame_lists_cells_with_the_first_variable_slowest(table):
    frame = table.to_frame(0.9)
    assert frame.columns.tolist() == ["smoker", "region", "count", "stderr", "lower", "upper"]
    assert frame["smoker"].tolist() == ["yes"] * 3 + ["no"] * 3
    assert frame["region"].tolist() == [1, 2, 3] * 2
    assert frame["count"].tolist() == [3, 0, 7, 11, 13, 16]
    np.testing.assert_allclose(frame["upper"], table.conf_int(0.9).upper.ravel())


def test_a_variable_may_be_called_count():
    frame = clear_table([4, 6], (Variable("count", ("few", "many")),)).to_frame()
    assert frame["count"].tolist() == ["few", "many"]
    assert frame["count_"].tolist() == [4, 6]


def test_the_summary_names_variables_cells_records_and_level(table):
    text = table.summary(0.9)
    assert text.startswith("smoker × region: 6 cells, n = 50\n")
    assert text.endswith("(90% intervals)")
    assert "16.0" in text
    assert repr(table).startswith("smoker × region")


def test_a_single_number_is_a_table_too(table):
    whole = table.marginal(())
    assert whole.summary().startswith("all records: 1 cells, n = 50")
    assert whole.to_frame()["count"].tolist() == [50]
    assert whole.conf_int().upper == pytest.approx(50)  # everybody: Wilson ends at n


def test_no_records_give_zeros_without_errors():
    empty = clear_table([0, 0], (SMOKER,))
    assert (empty.n, empty.total) == (0, 0)
    assert np.isnan(empty.stderr()).all()
    assert np.isnan(empty.conf_int()).all()
    assert "n = 0" in empty.summary()


def test_a_table_is_a_value_that_pickles(table, estimated):
    for each in (table, estimated, estimated.nonnegative(), table.marginal("region"), table + table):
        again = pickle.loads(pickle.dumps(each))  # noqa: S301
        assert again.axes == each.axes
        assert (again.n, again.adjusted) == (each.n, each.adjusted)
        np.testing.assert_array_equal(again.values, each.values)
        np.testing.assert_array_equal(again.conf_int(), each.conf_int())
        np.testing.assert_array_equal(again.nonnegative().values, each.nonnegative().values)
        np.testing.assert_array_equal(again.fit([]).expected, each.fit([]).expected)
        with pytest.raises(ValueError, match="read-only"):
            again.values[...] = 0


def test_a_table_without_records_has_no_errors_instead_of_zeros():
    schema = {"a": ["x", "y"], "b": ["u", "v"]}
    empty = pd.DataFrame({name: pd.Series([], dtype=object) for name in schema})
    policy = mq.Policy.build(schema, {"a": mq.channels.binary("1/4")})
    for read in ({"schema": mq.Schema(schema)}, {"policy": policy}):
        [table] = mq.tally(empty, **read).answer([mq.Query(by="a")])
        assert table.values.tolist() == [0, 0]
        assert np.isnan(table.stderr()).all()
        assert np.isnan(table.stderr("given_records")).all()
        assert np.isnan(table.conf_int()).all()
