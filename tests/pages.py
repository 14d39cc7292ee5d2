"""Parts of pages that are written by code: what stands between two marks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Written(NamedTuple):
    """What stands between two lines of a page."""

    page: Path
    begin: str
    end: str

    def shown(self) -> str:
        """Return what the page shows."""
        text = self.page.read_text(encoding="utf-8")
        return text[text.index(self.begin) + len(self.begin) : text.index(self.end)].strip()

    def write(self, content: str) -> None:
        """Put other content there."""
        text = self.page.read_text(encoding="utf-8")
        begin, end = text.index(self.begin) + len(self.begin), text.index(self.end)
        self.page.write_text(f"{text[:begin]}\n\n{content}\n\n{text[end:]}", encoding="utf-8")
