"""The examples in docstrings do what they show, as a reader runs them: after `import masquerade as mq`."""

from __future__ import annotations

import doctest
import importlib

import pytest
from tests.architecture.modules import MODULES
from tests.architecture.public_names import DEFINED

import masquerade as mq

SHOWN = [module.name for module in MODULES if ">>> " in module.path.read_text(encoding="utf-8")]


def examples_of(name):
    """Yield the examples of a module; those of public names know nothing but `mq`."""
    module = importlib.import_module(name)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        thing = example.name.removeprefix(f"{name}.").partition(".")[0]
        known = {} if (name, thing) in DEFINED else vars(module)
        example.globs = {**known, "mq": mq}
        if example.examples:
            yield example


@pytest.mark.parametrize("name", SHOWN)
def test_the_examples_show_what_they_do(name, tmp_path, monkeypatch):
    told: list[str] = []
    for place, example in enumerate(examples_of(name)):
        folder = tmp_path / str(place)  # each begins in an empty one, as a reader does
        folder.mkdir()
        monkeypatch.chdir(folder)
        doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert not told, "".join(told)


def test_an_example_that_lies_is_caught():
    lie = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "lie", None, None)
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(lie, out=told.append)
    assert "Expected:\n    3" in "".join(told)
