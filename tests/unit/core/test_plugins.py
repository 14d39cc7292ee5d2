"""Parts of other packages: found without loading, loaded by name, errors name the package."""

import sys

import pytest

from masquerade.core.errors import PluginError
from masquerade.core.util.plugins import load_plugin, plugins


def test_parts_are_found_by_group_without_being_loaded(install):
    install("toys", {"learners": {"toy": "TOY"}, "commands": {"play": "play"}}, "raise SystemError\n")
    (found,) = [plugin for plugin in plugins("learners").values() if plugin.package == "toys 1.0"]
    assert (found.name, found.title) == ("toy", "The learner 'toy' of the package toys 1.0")
    assert "play" in plugins("commands")
    assert "play" not in plugins("sources")
    assert "toys" not in sys.modules


def test_a_part_is_loaded_by_its_name(install):
    install("toys", {"learners": {"toy": "TOY"}}, "TOY = 7\n")
    assert load_plugin("learners", "toy") == 7


def test_a_part_that_fails_to_load_names_its_package(install):
    install("toys", {"learners": {"toy": "TOY"}}, "import nowhere_to_be_found\n")
    with pytest.raises(
        PluginError, match=r"The learner 'toy' of the package toys 1.0 cannot be used: Module"
    ):
        load_plugin("learners", "toy")


def test_a_part_that_is_not_what_it_should_be_names_its_package(install):
    install("toys", {"session_kinds": {"ring": "RING"}}, "RING = 7\n")
    expected = "The session kind 'ring' of the package toys 1.0 cannot be used: it is no session kind."
    with pytest.raises(PluginError, match=expected):
        load_plugin("session_kinds", "ring", lambda _: "it is no session kind")
    assert load_plugin("session_kinds", "ring", lambda _: None) == 7


def test_two_packages_with_one_name_cost_that_name_alone(install):
    install("toys", {"learners": {"toy": "TOY", "other": "TOY"}}, "TOY = 7\n")
    install("dolls", {"learners": {"toy": "TOY"}}, "TOY = 8\n")
    assert load_plugin("learners", "other") == 7
    with pytest.raises(PluginError, match="provides the same name; remove one of the two packages"):
        load_plugin("learners", "toy")


def test_an_unknown_name_is_met_with_the_nearest(install):
    install("toys", {"learners": {"majority": "TOY"}})
    expected = "No package provides a learner 'majorty'. Did you mean 'majority'?"
    with pytest.raises(PluginError, match=expected):
        load_plugin("learners", "majorty")
