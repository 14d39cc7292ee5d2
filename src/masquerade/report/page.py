"""Pages of HTML that need nothing from outside: one way to fill templates, one sheet of style for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def filled(package: str, template: str, content: Mapping[str, Any]) -> str:
    """Return a page made from a package's template, which can include the shared ``page.css``."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("masquerade.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(content)
