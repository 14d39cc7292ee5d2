"""Notebooks hold the calls of the studio with literals in them, whatever a project's steps say."""

import ast
import json

import pytest

from masquerade.core.errors import InputError
from masquerade.studio import notebook, steps
from masquerade.studio.allow_list import KEPT, RULES, TEXT, read_steps

HOSTILE = [
    "it's",
    'a"b',
    '");import os;os.system("touch ran',
    "'+__import__('os').getcwd()+'",
    "{0.__class__}{x!r}%s",
    "\\",
    "\\'",
    "'''\"\"\"",
    "`</code><script>alert(1)</script>`",
    "# x",
    "a\u00a0b\u202e",
    "$(touch ran)",
    "=",
    ",",
]
BROKEN = ["a\nimport os", "a\rb", "a\u2028b", "a\u2029b", "a\x0cb", "a\x1cb", "a\x85b", "a\0b", "\ud800"]
SAMPLES = {"a number": "0.5", "a whole number": "7", "policy.yaml": "policy.yaml"}
PLACES = {
    "the policy of a release": "releases/1/policy.yaml",
    "a file in the folder releases": "releases/1/disguised.csv",
    "a folder in the folder releases": "releases/1/package",
    "people.memo": "people.memo",
    "a number, or inf": "inf",
    "the project's ledger": "releases/releases.jsonl",
}
WRITERS = [name for name in RULES if name[0] in KEPT]
BUILTIN = (ast.Expression, ast.Call, ast.Attribute, ast.Name, ast.Load, ast.Constant, ast.keyword)
LITERAL = (ast.Tuple, ast.Dict, ast.List)


def sample(value, text):
    if value is TEXT:
        return text
    if value.what.startswith("one of "):
        return value.what.removeprefix("one of ").split(", ")[-1]
    return (SAMPLES | PLACES).get(value.what) or ("postgresql://h/d" if value.role == "address" else text)


def argv_of(name, text):
    """Return a command with every option of the table, and a text wherever one may be."""
    rule = RULES[name]
    skipped = (
        {"out", "overwrite"} if rule.options.get("out") and name[0] not in {"disguise", "release"} else set()
    )
    words = [*name, *(sample(value, text) for value in rule.arguments)]
    for option, value in rule.options.items():
        if option not in skipped:
            words += [f"--{option}"] if value is None else [f"--{option}", sample(value, text)]
    return words


def kept(argv):
    return {"command": argv, "result": "0" * 16, "said": []}


def check_call(source):
    """Fail unless a line is one call below `mq`, of literals and such calls."""
    tree = ast.parse(source, mode="eval")
    assert isinstance(tree.body, ast.Call)
    for node in ast.walk(tree):
        assert isinstance(node, (*BUILTIN, *LITERAL)), ast.dump(node)
        if isinstance(node, ast.Call):
            root = node.func
            while isinstance(root, (ast.Attribute, ast.Call)):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            assert isinstance(root, ast.Name)
            assert root.id == "mq" or ast.unparse(node.func) == "connection.table"
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
        if isinstance(node, ast.Name):
            assert node.id in {"mq", "connection"}
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_notebook_of_hostile_values_has_calls_with_literals_alone(text):
    asked = read_steps([kept(argv_of(name, text)) for name in WRITERS])
    assert len(asked) == len(WRITERS) > 15
    book = json.loads(notebook.jupyter(asked))
    cells = book["cells"]
    assert cells[0]["source"] == "import masquerade as mq"
    literals = set()
    for step, told, line in zip(asked, cells[1::2], cells[2::2], strict=True):
        assert (told["cell_type"], line["cell_type"]) == ("markdown", "code")
        assert told["source"].startswith("    masquerade ")  # an indented block, which no character ends
        assert len(told["source"].splitlines()) == len(line["source"].splitlines()) == 1
        literals |= check_call(line["source"])
        assert line["source"] == steps.python(step.command)
    assert text in literals  # it is there, as a value

    tree = ast.parse(notebook.marimo(asked))
    first, app, head, *functions, last = tree.body
    assert ast.unparse(first) == "import marimo"
    assert ast.unparse(app) == "app = marimo.App()"
    assert ast.unparse(last) == "if __name__ == '__main__':\n    app.run()"
    assert [ast.unparse(line) for line in head.body] == ["import masquerade as mq", "return (mq,)"]
    assert len(functions) == len(asked)
    for function in functions:
        assert ast.unparse(function.decorator_list[0]) == "app.cell"
        line, end = function.body
        assert ast.unparse(end) == "return"
        check_call(ast.unparse(line))


@pytest.mark.parametrize("text", BROKEN)
def test_a_value_that_ends_a_line_is_in_no_notebook(text):
    comment = f"# masquerade estimate {text}"
    assert len(comment.splitlines()) > 1 or "\0" in text or "\ud800" in text  # the attack: a line of its own
    for name in [name for name in WRITERS if name != ("audit", "policy")]:  # which takes no text
        with pytest.raises(InputError, match=r"Step 1 of steps.json"):
            read_steps([kept(argv_of(name, text))])


def test_a_number_that_is_code_is_in_no_notebook():
    code = "1}, n=__import__('os').getpid())#"
    plain = ast.parse(f"mq.plan('policy.yaml', privacy={{'epsilon': {code}}})")
    assert "__import__" in ast.unparse(plain)  # the attack: written without quotes it is a call
    argv = ["plan", "policy.yaml", "--epsilon", code, "--n", "9", "--queries", "pairs", "--json"]
    with pytest.raises(InputError, match="takes a number"):
        read_steps([kept(argv)])
    with pytest.raises(InputError, match="takes a number"):
        steps.python(argv)


def test_the_lines_of_steps_that_are_shown_only_are_calls_too():
    for name in RULES.keys() - set(WRITERS):
        line = steps.python(argv_of(name, "a'b")) if name[0] not in {"party", "survey"} else None
        if line is not None:
            check_call(line)
