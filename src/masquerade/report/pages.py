"""Pages made from templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from masquerade.core.util.formatting import visible


def filled(package: str, template: str, content: Mapping[str, Any]) -> str:
    """Return a page made from a package's template, which can include the shared ``page.css``."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (pages only)

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("masquerade.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return visible(environment.get_template(template).render(content), lines=True)
