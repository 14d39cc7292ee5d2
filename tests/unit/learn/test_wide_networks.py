"""Networks that are too wide for exact inference: an estimated likelihood, and polishing within the limit."""

from __future__ import annotations

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.learn.networks import junction_tree, structural_em, wide_likelihood
from masquerade.learn.networks.joint_likelihood import JointLikelihood, is_clear
from masquerade.learn.networks.wide_likelihood import WideLikelihood

NAMES = [f"v{i}" for i in range(9)]
STRUCTURE = {name: tuple(NAMES[max(0, i - 3) : i]) for i, name in enumerate(NAMES)}
SIZES = dict.fromkeys(NAMES, 2)


def wide_network(seed=1):
    generator = np.random.default_rng(seed)
    chances = {
        name: generator.dirichlet(np.full(2, 2.0), (2,) * len(parents)) for name, parents in STRUCTURE.items()
    }
    return mq.learn.known_network(mq.Schema({name: [0, 1] for name in NAMES}), STRUCTURE, chances)


def disguised(n=1500, p="0.15"):
    known = wide_network()
    masks = mq.Policy.build(known.schema, {name: mq.channels.symmetric(2, p) for name in NAMES})
    return known, mq.tally(mq.simulate(known.sample(n, seed=2), masks, seed=3), masks)


@pytest.fixture
def narrow_limits(monkeypatch):
    """Limits that cliques of four binary variables exceed."""
    monkeypatch.setattr(junction_tree, "MOST_CELLS", 70)
    monkeypatch.setattr(wide_likelihood, "MOST_CELLS", 70)
    monkeypatch.setattr(wide_likelihood, "NARROW_CELLS", 64)
    monkeypatch.setattr(structural_em, "MOST_CELLS", 70)


def test_estimated_likelihood_is_within_its_stated_error(monkeypatch):
    """Each estimate leaves six standard errors and 0.5 for its bias with a chance below 1e-6."""
    known, source = disguised()
    tables = {table.child.name: table.probabilities for table in known.tables}
    reports = source.report_factors(NAMES)
    exact = JointLikelihood(reports, STRUCTURE, SIZES).log_likelihood(tables)
    wide = WideLikelihood(reports, STRUCTURE, SIZES)
    assert not wide.is_needed()
    for cells in (20, 40, 64):
        monkeypatch.setattr(wide_likelihood, "NARROW_CELLS", cells)
        value, stderr = wide.estimate(tables)
        assert stderr > 0
        assert abs(value - exact) < 6 * stderr + 0.5, cells


@pytest.mark.usefixtures("narrow_limits")
def test_wide_networks_state_the_error_of_their_likelihood():
    known, source = disguised()
    with pytest.warns(MasqueradeWarning, match="standard error of"):
        value = known.log_likelihood(source)
    with pytest.warns(MasqueradeWarning, match="too wide"):
        assert known.bic(source) < value
    with pytest.raises(InputError, match=r"too wide.*method='counts'"):
        mq.learn.bayesian_network(source, STRUCTURE, method="likelihood")


@pytest.mark.usefixtures("narrow_limits")
def test_polishing_keeps_within_the_limit():
    _, source = disguised(4000, "0.05")
    quick = mq.learn.structure(source)
    polished = mq.learn.structure(source, polish=True)
    assert polished.bic[1] >= polished.bic[0]
    families = [(*parents, name) for name, parents in quick.structure.items()]
    assert junction_tree.count_cells(families, SIZES) > junction_tree.MOST_CELLS  # the start was too wide


@pytest.mark.usefixtures("narrow_limits")
def test_clear_records_have_a_likelihood_however_wide():
    source = mq.tally(wide_network().sample(500, seed=4), schema=wide_network().schema)
    assert all(is_clear(one, SIZES) for one in source.report_factors(NAMES))
    fitted = mq.learn.bayesian_network(source, STRUCTURE, prior=0.5)
    logs = 0.0
    frame = wide_network().sample(500, seed=4)
    for table in fitted.tables:
        codes = tuple(frame[axis.name].to_numpy() for axis in table.axes)
        logs += float(np.log(table.probabilities[codes]).sum())
    assert fitted.log_likelihood(source) == pytest.approx(logs, rel=1e-10)
    quick = mq.learn.structure(source)
    polished = mq.learn.structure(source, polish=True)
    before, after = polished.bic
    assert after >= before
    assert polished.structure == quick.structure or after > before
    jointly = mq.learn.bayesian_network(source, quick, method="likelihood")
    for one, other in zip(mq.learn.bayesian_network(source, quick).tables, jointly.tables, strict=True):
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-4)
