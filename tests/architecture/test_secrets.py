"""Secrets are compared in a time that does not depend on where they differ."""

from __future__ import annotations

import ast
import re

from tests.architecture.modules import ROOT, for_each

SECRET = re.compile(r"(^|_)(secret|token|passphrase|mac|password|private|sealing)$")
NO_SECRETS = {"script_text"}  # its tokens are words of a language


def compared(text):
    """Return the lines in which something that is called a secret is compared by == or in."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        by_value = any(isinstance(it, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for it in node.ops)
        plain = [it for it in sides if isinstance(it, ast.Constant) and it.value is None]
        names = [it.attr if isinstance(it, ast.Attribute) else it.id for it in sides
                 if isinstance(it, ast.Attribute | ast.Name)]  # fmt: skip
        if by_value and not plain and any(SECRET.search(name) for name in names):
            found.append(node.lineno)
    return found


def test_comparisons_of_secrets_are_found():
    assert compared("if found.secret != self.secret:\n    pass\nok = mac == b\nok = token in known") == [
        1,
        3,
        4,
    ]
    assert compared("secret is None or len(secret) == 32 or same(secret, other) or secret == None") == []


@for_each([it for it in sorted(ROOT.rglob("*.py")) if it.stem not in NO_SECRETS])
def test_no_secret_is_compared_by_value(path):
    assert compared(path.read_text(encoding="utf-8")) == [], "use symmetric.same or hmac.compare_digest"
