"""The documentation's page of settings says what the models of the files say."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from tests.unit.services.common import settings_page as page

from masquerade.core.errors import InputError
from masquerade.services.common.settings import load


def models() -> list[type[BaseModel]]:
    return [*page.MODELS.values(), *page.parts()]


def test_the_page_is_what_the_models_say():
    assert page.ON_PAGE.shown() == page.generated(), (
        "write it again: python -m tests.unit.services.common.settings_page"
    )


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_key_says_in_one_line_what_it_is(model):
    assert page.said(model).endswith(".")
    for name, field in model.model_fields.items():
        about = field.description or ""
        assert about.endswith("."), f"{model.__name__}.{name}"
        assert "\n" not in about, f"{model.__name__}.{name}"


def test_every_part_has_a_title_of_its_own():
    assert set(page.parts()) == set(page.TITLES)
    titles = [*page.TITLES.values(), *page.MODELS]
    assert len({page.anchor(title) for title in titles}) == len(titles)


@pytest.mark.parametrize(("kind", "key"), [("randomness", "consents"), ("collector", "consents")])
def test_keys_of_other_nodes_are_refused(kind, key, tmp_path):
    consent = {"session": "s", "protocol": "projection", "parties": ["me"], "convener": "me"}
    values = {
        "masquerade": 1,
        "name": "me",
        "identity": "identity.key",
        "operator_token": "operator.token",
        "state": "state",
        "form": "form.yaml",
        "epoch": {"name": "spring", "k": 3},
        "peers": {
            "other": {"url": "http://127.0.0.1:1", "identity": "ab" * 32},
            "office": {"token_digest": "sha256:" + "ab" * 32},
        },
    }
    values |= {"office": "office", "collector": "other"} if kind == "randomness" else {"randomness": "other"}
    file = tmp_path / f"{kind}.yaml"
    file.write_text(str(values))
    load(file, page.MODELS[kind], environment={})
    file.write_text(str({**values, key: [consent]}))
    with pytest.raises(InputError, match=key):
        load(file, page.MODELS[kind], environment={})


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (page.Bytes, "size"),
        (page.SecretFile | None, "secret file"),
        (tuple[page.Digest, ...], "list of digests"),
        (dict[str, tuple[str, ...]] | None, "list for each"),
        (str, ""),
        (bool, "true or false"),
    ],
)
def test_types_are_said_in_words(hint, words):
    assert page.worded(hint) == words
