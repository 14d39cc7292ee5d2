"""What griffe does for the site with docstrings: the example that ends one becomes a block of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*\Z", re.MULTILINE | re.DOTALL)


def with_blocks(text: str) -> str:
    """Return a docstring as Markdown: what begins with >>> is no quotation, and empty lines are empty."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text.replace("<BLANKLINE>", ""))


class Examples(griffe.Extension):
    """Hands on every docstring with its example as a block."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of whatever was read."""
        if obj.docstring is not None:
            obj.docstring.value = with_blocks(obj.docstring.value)
