"""Settings of a collection: what is refused before anything runs."""

from __future__ import annotations

import pytest
import yaml
from tests.services.threshold.world import World

from masquerade.core.errors import InputError
from masquerade.services.common.settings import check_files, load
from masquerade.services.threshold.example import FORM
from masquerade.services.threshold.settings import (
    KINDS,
    CollectionSettings,
    CollectorSettings,
    FormSettings,
    RandomnessSettings,
    _place_of,
    load_form,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("settings") / "world")


def altered(world, name, change):
    """Return a settings file beside the real one, with something changed."""
    values = yaml.safe_load(world.files[name].read_text())
    change(values)
    path = world.files[name].with_name("altered.yaml")
    path.write_text(yaml.safe_dump(values))
    return path


def test_the_example_is_valid_for_every_kind(world):
    for kind, model in KINDS.items():
        path = world.folder / "form.yaml" if kind == "form" else world.files[kind]
        check_files(load(path, model, environment={}), path)


def test_the_environment_overrides(world):
    settings = load(world.files["collector"], CollectorSettings, environment={"MASQUERADE_EPOCH__K": "9"})
    assert settings.epoch.k == 9
    assert settings.limits.body_bytes == 1 << 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v.update(office="collector"), "office: the collector must not enrol"),
        (lambda v: v.update(office="nobody"), "office must name a peer"),
        (lambda v: v.update(collector="nobody"), "collector must name a peer"),
        (lambda v: v["peers"]["collector"].pop("url"), "collector must name a peer that has a url"),
        (lambda v: v["peers"]["collector"].pop("fingerprints"), "needs the fingerprints"),
        (
            lambda v: v["peers"]["collector"].update(url=f"https://localhost:{v['listen']['port']}"),
            "must not run at the same address",
        ),
        (lambda v: v["epoch"].update(k=1), "epoch.k: must be at least 2"),
        (lambda v: v["epoch"].update(name="a/b"), "epoch.name"),
        (lambda v: v.update(mumble=1), "mumble: is not a known key"),
        (lambda v: v.update(form=""), "form: must be the name of a file"),
        (lambda v: v.update(limits={"bodybytes": 3}), "Did you mean 'body_bytes'"),
        (
            lambda v: v.update(
                consents=[{"session": "s", "protocol": "projection", "parties": [], "convener": "office"}]
            ),
            "does not participate in sessions",
        ),
    ],
)
def test_wrong_settings_of_a_randomness_server(world, change, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        load(altered(world, "randomness", change), RandomnessSettings, environment={})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v.update(randomness="nobody"), "randomness must name a peer"),
        (lambda v: v["peers"]["randomness"].pop("identity"), "needs its identity"),
        (lambda v: v.update(most_reports=0), "most_reports: must be at least 1"),
        (
            lambda v: v["peers"]["randomness"].update(url=f"https://127.0.0.1:{v['listen']['port']}"),
            "must not run at the same address",
        ),
    ],
)
def test_wrong_settings_of_a_collector(world, change, words):
    with pytest.raises(InputError, match=words):
        load(altered(world, "collector", change), CollectorSettings, environment={})


@pytest.mark.parametrize("key", ["url", "identity", "fingerprints"])
def test_people_refuse_two_servers_that_are_one(world, key):
    def same(values):
        values["collector"][key] = values["randomness"][key]

    with pytest.raises(InputError, match="randomness and collector have the same"):
        load(altered(world, "collection", same), CollectionSettings, environment={})


def test_addresses_of_this_machine_are_one():
    assert (
        _place_of("https://LOCALHOST:8443")
        == _place_of("https://127.0.0.1:8443/")
        == _place_of("https://[::1]:8443")
    )
    assert _place_of("https://a.example") == _place_of("https://A.example.:443")
    assert _place_of("https://a.example") != _place_of("https://b.example")
    assert _place_of("https://a.example") != _place_of("https://a.example:8443")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v["quasi"].update(illness=["a"]), "lists a variable twice"),
        (lambda v: v.update(sensitive={}), "sensitive: must not be empty"),
        (lambda v: v["quasi"].update(age=[]), "quasi.age: must not be empty"),
        (lambda v: v["quasi"].update(age=["a", "a"]), "lists a category twice"),
        (lambda v: v.pop("masquerade"), "masquerade: is missing"),
    ],
)
def test_a_form_that_is_none(tmp_path, change, words):
    values = {"masquerade": 1, **{part: dict(variables) for part, variables in FORM.items()}}
    change(values)
    (tmp_path / "form.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match=words):
        load_form(tmp_path / "form.yaml")


def test_categories_keep_their_types(tmp_path):
    (tmp_path / "form.yaml").write_text(
        "masquerade: 1\nquasi: {a: [2, no, true, '1']}\nsensitive: {b: [x, y]}\n"
    )
    form = load_form(tmp_path / "form.yaml")
    assert form.schema["a"].categories == (2, "no", True, "1")
    assert [type(label) for label in form.schema["a"].categories] == [int, str, bool, str]


def test_form_settings_are_a_kind():
    assert KINDS["form"] is FormSettings
    assert set(KINDS) == {"randomness", "collector", "office", "collection", "form"}
