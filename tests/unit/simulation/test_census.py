"""Naive Bayes over thousands of people by secure aggregation is the model of the survivors' clear counts."""

import pytest

from masquerade.learn.classifiers.bayes import naive_bayes
from masquerade.simulation import Lesson, Trouble, synthetic_people, users


@pytest.mark.parametrize("n", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_people_of_whom_some_leave(n):
    trouble = Trouble("0.05", seed=7)
    people, lesson = synthetic_people(n), Lesson("naive-bayes", "income")
    found = users(people, lesson, "aggregation", trouble=trouble, colluders="0.02", server="semi-honest")
    leaving, _ = trouble.among(n)
    survivors = people[[place for place in range(n) if place not in leaving]]
    assert (found.left, found.counted, len(survivors)) == (n // 20, n - n // 20, n - n // 20)
    assert found.compared.equal
    assert found.model.to_dict() == naive_bayes(survivors.in_the_open(), "income").to_dict()
    assert found.model.to_dict() != naive_bayes(people.in_the_open(), "income").to_dict()
