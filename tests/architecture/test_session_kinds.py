"""What a session kind is stands in its own module: nobody else compares the names of kinds."""

import ast

from tests.architecture.modules import MODULES, for_each

from masquerade.services.parties import kinds

KINDS = "masquerade.services.parties.kinds"
SESSIONS = ("masquerade.services.parties.", "masquerade.cli.nodes")
ELSEWHERE = [m for m in MODULES if m.name.startswith(SESSIONS) and not m.name.startswith(KINDS)]


def names_used(tree):
    """Return the places where the name of a kind is written as a value."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in kinds.BUILT_IN
    ]


def comparisons(tree):
    """Return the places where a protocol's name decides something: compared, or looked into."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = [node.func.value] if node.func.attr in {"startswith", "endswith"} else []
        elif isinstance(node, ast.Match):
            parts = [node.subject]
        else:
            continue
        found += [node.lineno for part in parts if ast.unparse(part).split(".")[-1] == "protocol"]
    return found


@for_each(ELSEWHERE)
def test_only_a_kind_knows_its_name(module):
    assert names_used(module.tree) == []
    assert comparisons(module.tree) == []


def test_the_search_finds_what_it_looks_for():
    text = (
        'x = spec.protocol == other\ny = "projection"\nz = protocol.startswith("vertical")\n'
        "match spec.protocol:\n    case _:\n        pass\n"
    )
    tree = ast.parse(text)
    assert names_used(tree) == [2]
    assert sorted(comparisons(tree)) == [1, 3, 4]


def test_a_kind_is_called_what_it_calls_itself():
    for name in kinds.BUILT_IN:
        assert kinds.find(name).name == name
