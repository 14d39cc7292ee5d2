"""Allow-list of the calls in formulas.

Terms such as ``log(age)`` are evaluated as Python, and a formula may come from another person, for example
in a shared project. So each term is parsed before it is evaluated, and only arithmetic on variables and
calls of the functions below are accepted. Numbers and products of terms are bounded, so that a short formula
cannot run for hours or exhaust the memory.
"""

from __future__ import annotations

import ast
from math import prod
from typing import Any

from masquerade.core.errors import InputError

FUNCTIONS = frozenset(
    [
        "C",
        "I",
        "Q",
        "Treatment",
        "Poly",
        "Sum",
        "Helmert",
        "Diff",
        "bs",
        "cc",
        "cr",
        "cs",
        "center",
        "scale",
        "standardize",
        "poly",
        "lag",
        "log",
        "log2",
        "log10",
        "exp",
        "exp2",
        "exp10",
    ]
)
ATTRIBUTES = {
    "np": frozenset(
        [
            "abs",
            "absolute",
            "arccos",
            "arcsin",
            "arctan",
            "arctan2",
            "cbrt",
            "ceil",
            "clip",
            "cos",
            "cosh",
            "degrees",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "fmax",
            "fmin",
            "hypot",
            "isin",
            "isnan",
            "log",
            "log10",
            "log1p",
            "log2",
            "logical_and",
            "logical_not",
            "logical_or",
            "maximum",
            "minimum",
            "mod",
            "power",
            "radians",
            "rint",
            "round",
            "sign",
            "sin",
            "sinh",
            "sqrt",
            "square",
            "tan",
            "tanh",
            "trunc",
            "where",
        ]
    ),
    "contr": frozenset(["SAS", "custom", "diff", "helmert", "poly", "sum", "treatment"]),
}
_ALLOWED = (
    *(ast.Expression, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop),
    *(ast.boolop, ast.cmpop, ast.Tuple, ast.List, ast.Dict),
)
_ARITHMETIC = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.BitAnd, ast.BitOr),
)
_SIZED = frozenset(["bs", "cc", "cr", "cs", "lag", "poly"])  # their options set a number of columns or rows
MOST_COLUMNS = 100
MOST_EXPONENT = 64
LARGEST_BASE = 1e6
MOST_TERMS = 1 << 16
MOST_TEXT = 10_000  # characters of a formula
_QUOTES = frozenset("\"'\\")  # formulaic inserts strings into generated code without escaping these


def check_code(code: str) -> None:
    """Raise InputError unless a term has only arithmetic, variables and calls of allowed functions.

    >>> check_code("log(age) + np.sqrt(`years at work`)")
    >>> check_code("np.load('x')")
    Traceback (most recent call last):
    ...
    masquerade.core.errors.InputError: np.load is not allowed in a formula.
    """
    from formulaic.utils.code import sanitize_variable_names  # noqa: PLC0415  (an extra, and slow to load)

    # names in backquotes are replaced in the same way as for evaluation
    for node in ast.walk(ast.parse(sanitize_variable_names(code, {}, {}), mode="eval")):
        if not _is_allowed(node) or not _is_bounded(node):
            raise InputError(f"{ast.unparse(node)} is not allowed in a formula.")


def check_terms(text: str) -> None:
    """Raise InputError if terms would expand to more than `MOST_TERMS` terms, without expanding them.

    >>> check_terms("(a + b + c)^3")
    >>> check_terms("*".join("abcdefghijklmnopqrstuvwxyz"))
    Traceback (most recent call last):
    ...
    masquerade.core.errors.InputError: A formula may expand to at most 65,536 terms.
    """
    from formulaic.parser import DefaultFormulaParser  # noqa: PLC0415  (an extra, and slow to load)

    root = DefaultFormulaParser().get_ast(text)
    sizes: dict[int, int] = {}
    waiting = [(root, False)]
    while waiting:  # no recursion, because brackets may be nested deeply
        node, is_ready = waiting.pop()
        parts = list(getattr(node, "args", ()))
        if not parts:
            sizes[id(node)] = 1
        elif not is_ready:
            waiting += [(node, True), *((part, False) for part in parts)]
        else:
            symbol = node.operator.symbol
            power = str(parts[-1]) if symbol in {"**", "^"} else ""
            sizes[id(node)] = _size(symbol, [sizes[id(part)] for part in parts], power)
            if sizes[id(node)] > MOST_TERMS:
                raise InputError(f"A formula may expand to at most {MOST_TERMS:,} terms.")


def _size(symbol: str, sizes: list[int], power: str) -> int:
    """Return the number of terms of an operator, including repeated terms; operands have `sizes` terms."""
    if power:
        return sizes[0] ** min(int(power), MOST_TERMS.bit_length()) if power.isdecimal() else MOST_TERMS + 1
    if symbol in {":", "*", "/", "in"}:
        both = prod(sizes)
        return both if symbol == ":" else both + sum(sizes)
    return sum(sizes)


def _is_bounded(node: Any) -> bool:
    """Return True unless a node could create numbers, strings or lists much larger than its source."""
    match node:
        case ast.BinOp(left=left, op=operator, right=right):
            if not isinstance(operator, _ARITHMETIC) or _is_sequence(left) or _is_sequence(right):
                return False
            if not isinstance(operator, ast.Pow) or _has_variable(right):
                return True
            return _is_number(right, MOST_EXPONENT) and (
                _has_variable(left) or _is_number(left, LARGEST_BASE)
            )
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _SIZED:
            options = [*args[1:], *(one.value for one in keywords if one.arg in {"df", "degree", "lag"})]
            return all(_is_list(one) or _is_text(one) or _is_number(one, MOST_COLUMNS) for one in options)
        case ast.keyword(arg="out"):  # would change a column of the frame
            return False
        case _:
            return True


def _is_number(node: Any, most: float) -> bool:
    """Return True for None, or for a literal number, with or without a sign, of magnitude at most `most`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        node = node.operand
    if not isinstance(node, ast.Constant):
        return False
    return node.value is None or (isinstance(node.value, (int, float)) and abs(node.value) <= most)


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_list(node: Any) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.Dict))


def _is_sequence(node: Any) -> bool:
    return _is_list(node) or _is_text(node)


def _has_variable(node: Any) -> bool:
    return any(isinstance(one, ast.Name) for one in ast.walk(node))


def _is_allowed(node: Any) -> bool:
    match node:
        case ast.Call(func=func):  # an attribute is checked as a node of its own
            fine = func.id in FUNCTIONS if isinstance(func, ast.Name) else isinstance(func, ast.Attribute)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            fine = name in ATTRIBUTES.get(module, ())
        case ast.Name(id=name):
            fine = not name.startswith("__FORMULAIC")
        case ast.keyword(arg=name):
            fine = name is not None and not name.startswith("_")
        case ast.Constant(value=str(text)):
            fine = text.isprintable() and not _QUOTES & set(text)
        case ast.Constant(value=value):
            fine = value is None or isinstance(value, (bool, int, float))
        case _:
            fine = isinstance(node, _ALLOWED)
    return fine
