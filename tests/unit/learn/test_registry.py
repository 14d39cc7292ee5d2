"""Models of learners that other packages register are saved and loaded like ours."""

import json

import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, PluginError
from masquerade.learn import model_file

MODES = """
from dataclasses import dataclass
from masquerade import Query
from masquerade.learn import Learner
from masquerade.learn.model_file import check_header, entry, header

@dataclass(frozen=True)
class Modes:
    modes: dict

    def to_dict(self):
        return {**header("modes"), "modes": self.modes}

    @classmethod
    def from_dict(cls, values):
        check_header(values, "modes")
        return cls(entry(values, "modes", dict))

def modes(source):
    tables = source.answer([Query(by=name) for name in source.schema])
    return Modes({t.names[0]: t.axes[0].categories[int(t.values.argmax())] for t in tables})

MODES = Learner("modes", "modes", "The most frequent category of every variable.", modes, model=lambda: Modes)
FORGETFUL = Learner("forgetful", "none", "Learns, and cannot read what it wrote.", modes)
"""
FRAME = pd.DataFrame({"a": ["x", "x", "y"], "b": [1, 2, 2]})


def test_models_of_a_registered_learner_are_saved_and_loaded(install, tmp_path):
    install("toys", {"learners": {"modes": "MODES"}}, MODES)
    model = mq.learn.learner("modes").fit(mq.tally(FRAME), {})
    assert model.modes == {"a": "x", "b": 2}
    mq.learn.save(model, tmp_path / "modes.json")
    assert json.loads((tmp_path / "modes.json").read_text())["kind"] == "modes"
    assert mq.learn.load(tmp_path / "modes.json") == model


def test_without_the_package_its_models_are_refused(tmp_path):
    (tmp_path / "modes.json").write_text('{"masquerade_model": 1, "kind": "modes"}')
    with pytest.raises(InputError, match=r"modes.json: unknown kind of model 'modes'"):
        mq.learn.load(tmp_path / "modes.json")


def test_our_own_kinds_cannot_be_taken(install):
    install("toys", {"learners": {"naive_bayes": "MODES"}}, MODES)
    assert model_file.kinds().count("naive_bayes") == 1
    assert model_file.reader("naive_bayes") is mq.learn.NaiveBayes


def test_a_learner_without_a_class_that_reads_is_refused_by_its_package(install):
    install("toys", {"learners": {"forgetful": "FORGETFUL"}}, MODES)
    refused = (
        "The learner 'forgetful' of the package toys 1.0 cannot be used: its 'model' must return the class"
    )
    with pytest.raises(PluginError, match=refused):
        model_file.reader("forgetful")


@pytest.mark.parametrize("kind", model_file.OWN)
def test_every_kind_of_ours_is_read_by_its_class(kind):
    assert callable(model_file.reader(kind).from_dict)
