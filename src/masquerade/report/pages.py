"""HTML pages from templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from masquerade.core.util.formatting import visible


def render_template(package: str, template: str, content: Mapping[str, Any]) -> str:
    """Render a template of a package. It can include the shared ``page.css``.

    Parameters
    ----------
    package : str
        Package that contains the template.
    template : str
        File name of the template.
    content : mapping
        Variables of the template.

    Returns
    -------
    str
        The page.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (pages only)

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("masquerade.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return visible(environment.get_template(template).render(content), lines=True)
