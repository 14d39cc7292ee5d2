"""What unit tests share."""

import sys

import pytest


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return what puts a distribution of one module on the path."""

    def install(name, groups, text=""):
        place = tmp_path / name
        about = place / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (place / f"{name}.py").write_text(text, encoding="utf-8")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            "".join(
                f"[masquerade.{group}]\n"
                + "".join(f"{key} = {name}:{value}\n" for key, value in items.items())
                for group, items in groups.items()
            )
        )
        monkeypatch.syspath_prepend(place)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return install
