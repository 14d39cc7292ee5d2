"""Tables of scores that several machines must have alike."""

from math import inf, lgamma, log, nextafter

import pytest

from masquerade.learn.networks import score_tables
from masquerade.learn.networks.score_tables import ScoreTables


@pytest.mark.parametrize("score", ["k2", "bdeu", "bic"])
def test_a_machine_with_other_logarithms_is_told_apart(score, monkeypatch):
    def fingerprint():
        for table in (score_tables._ln_gamma, score_tables._x_ln_x):
            table.cache_clear()
        return ScoreTables.of(score, 300).fingerprint([2, 3])

    usual = fingerprint()
    assert fingerprint() == usual
    assert ScoreTables.of(score, 301).fingerprint([2, 3]) != usual
    for name, function in (("lgamma", lgamma), ("log", log)):
        monkeypatch.setattr(score_tables, name, lambda x, function=function: nextafter(function(x), inf))
    assert fingerprint() == usual  # what is rounded away does no harm
    for name, function in (("lgamma", lgamma), ("log", log)):
        monkeypatch.setattr(score_tables, name, lambda x, function=function: function(x) + 1e-6)
    assert fingerprint() != usual
    monkeypatch.undo()
    assert fingerprint() == usual
