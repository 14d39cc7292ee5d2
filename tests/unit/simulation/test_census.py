"""Naive Bayes over ten thousand people by secure aggregation is the model of the survivors' clear counts."""

from masquerade.learn.bayes import naive_bayes
from masquerade.simulation import Lesson, Trouble, made_up_people, users

N = 10_000


def test_ten_thousand_people_of_whom_five_hundred_leave():
    trouble = Trouble("0.05", seed=7)
    people, lesson = made_up_people(N), Lesson("naive-bayes", "income")
    found = users(people, lesson, "aggregation", trouble=trouble, colluders="0.02", server="semi-honest")
    leaving, _ = trouble.among(N)
    survivors = people[[place for place in range(N) if place not in leaving]]
    assert (found.left, found.counted, len(survivors)) == (500, 9500, 9500)
    assert found.compared.equal
    assert found.model.to_dict() == naive_bayes(survivors.in_the_open(), "income").to_dict()
    assert found.model.to_dict() != naive_bayes(people.in_the_open(), "income").to_dict()
