"""An address as a QR code, for a terminal and for a printed letter."""

from __future__ import annotations

import io

import segno


def in_terminal(text: str) -> str:
    """Return a QR code as half blocks, dark on light regardless of the terminal's colours."""
    output = io.StringIO()
    segno.make_qr(text, error="m").terminal(output, border=4, compact=True)
    lines = output.getvalue().splitlines()
    return "".join(f"\033[97;40m{line}\033[0m\n" for line in lines)


def in_svg(text: str) -> str:
    """Return a QR code as an SVG image with its quiet zone."""
    code = segno.make_qr(text, error="m")
    options = {"light": "#fff", "omitsize": True, "svgclass": None, "lineclass": None, "title": f"QR: {text}"}
    return code.svg_inline(border=4, **options)
