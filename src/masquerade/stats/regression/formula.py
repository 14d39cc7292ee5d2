"""Formulas: parse the outcome and terms, and build design matrices for frames and cells of tables."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.schema import Category, Schema, Variable, is_decimal
from masquerade.stats._tables import scores_of
from masquerade.stats.regression.formula_code import MOST_TEXT, check_code, check_terms

if TYPE_CHECKING:
    import pandas as pd

Scores = Mapping[str, Mapping[Category, float] | Sequence[float]]
_RANDOM = re.compile(r"\+?\s*\(\s*1\s*\|\s*`?(?P<name>[^)`]+?)`?\s*\)")
_LEARNT = re.compile(r"\b(bs|cs|cr|cc|poly|center|scale|standardize)\s*\(")
_ALL = re.compile(r"(?<![\w.)])\.(?![\w.])")  # R's dot, not a decimal point
_POWERS = re.compile(r"\^\s*([0-9]+)|\)\s*\*\*\s*([0-9]+)")  # (a + b)^2, and (a + b)**2
MOST_POWER = 16  # largest product of the powers of terms: (a + b)^22 would take hours
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LEFT = re.compile(r"^\s*`?(?P<name>[^`\[]+?)`?\s*(?:\[(?P<label>[^\]]+)\])?\s*$")


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed formula.

    Attributes
    ----------
    text : str
        The formula as written.
    outcome : str
        Variable on the left.
    labels : tuple of str
        Categories of the outcome in brackets, if any.
    terms : str
        Right side without random intercepts.
    names : tuple of str
        Variables of the terms.
    random : str or None
        Variable of a random intercept, from ``(1 | variable)``.
    """

    text: str
    outcome: str
    labels: tuple[str, ...]
    terms: str
    names: tuple[str, ...]
    random: str | None = None

    @classmethod
    def of(cls, text: str) -> Formula:
        """Return the parts of "outcome ~ terms", or of "outcome[category, …] ~ terms + (1 | group)"."""
        _check_length(text)
        left, tilde, right = text.partition("~")
        found = _LEFT.match(left)
        if not tilde or found is None:
            raise InputError(f"A formula is written as 'outcome ~ a + b'. Got {text!r} instead.")
        groups = [match["name"].strip() for match in _RANDOM.finditer(right)]
        if len(groups) > 1:
            raise InputError(f"One random intercept at most. Got {', '.join(groups)}.")
        terms = translate_r(_RANDOM.sub("", right).strip().removeprefix("+").strip() or "1")
        if "|" in terms:
            raise InputError(
                f"Random effects are intercepts, written as '(1 | group)'. Got {text!r} instead."
            )
        if _ALL.search(terms):
            raise InputError(f"A formula names its terms: '.' is not supported. Got {text!r} instead.")
        labels = tuple(label.strip() for label in (found["label"] or "").split(",") if label.strip())
        return cls(
            text, found["name"].strip(), labels, terms, variables_in(terms), groups[0] if groups else None
        )

    @property
    def learns_from_data(self) -> bool:
        """Return True if some terms, such as splines, depend on all rows of a frame."""
        return _LEARNT.search(self.terms) is not None


def translate_r(terms: str) -> str:
    """Return terms as formulaic reads them: R's ``I(x^2)``, ``factor(x)``, ``ns(x, df=3)`` and ``sqrt(x)``.

    >>> translate_r("I(x^2) + factor(k) + (a + b)^2")
    'I(x**2) + C(k) + (a + b)^2'
    """
    text = re.sub(r"(?<![\w.])factor\s*\(", "C(", terms)
    text = re.sub(r"(?<![\w.])sqrt\s*\(", "np.sqrt(", text)
    text = re.sub(r"(?<![\w.])ns\s*\(([^()]*)\)", r"cr(\1, constraints='center')", text)
    result: list[str] = []
    calls: list[bool] = []  # inside a call, ^ is a power of a number; elsewhere, a power of terms
    for place, letter in enumerate(text):
        if letter == "(":
            before = text[:place].rstrip()[-1:]
            calls.append(before.isalnum() or before in {"_", "."} or (bool(calls) and calls[-1]))
        elif letter == ")" and calls:
            calls.pop()
        result.append("**" if letter == "^" and calls and calls[-1] else letter)
    return "".join(result)


def _check_powers(text: str) -> None:
    """Raise InputError for powers of terms that expand into too many products."""
    powers = [int(max(match)[-9:]) for match in _POWERS.findall(text)]
    if math.prod(powers) > MOST_POWER:
        raise InputError(
            f"The product of all powers of terms is at most {MOST_POWER}: write out the products."
        )


def _check_length(text: str) -> None:
    """Raise InputError for a formula that is too long."""
    if len(text) > MOST_TEXT:
        raise InputError(f"A formula has at most {MOST_TEXT:,} characters.")


def read_terms(terms: str) -> Any:
    """Return terms as formulaic parses them; raise InputError for code that is not in the allow-list."""
    _check_length(terms)
    text = translate_r(terms)
    _check_powers(text)
    check_terms(text)
    parsed = formulaic().Formula(text)
    if not isinstance(parsed, formulaic().SimpleFormula):
        raise InputError(f"The terms {terms!r} have more than one part.")
    for factor in {factor for term in parsed for factor in term.factors}:
        if factor.eval_method.value == "python":
            check_code(factor.expr)
    return parsed


def variables_in(terms: str) -> tuple[str, ...]:
    """Return the variables that occur in terms, in order."""
    try:
        parsed = read_terms(terms)
        needed = {str(name) for name in parsed.required_variables} - {"np"}
        inside = [factor.expr for term in parsed for factor in term.factors]
        needed |= {name for code in inside if "(" in code for name in _names_in(code)}
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The terms {terms!r} cannot be read: {_first_line(error)}.") from None
    return tuple(sorted(needed, key=terms.find))


def _first_line(error: Exception) -> str:
    """Return the first line of an error message, without terminal colours."""
    lines = _COLOURS.sub("", str(error)).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__


def _names_in(code: str) -> set[str]:
    """Return the variables of a call such as ``bs(x, df=4)``: its names that are not functions."""
    tree = ast.parse(re.sub(r"`([^`]*)`", "_", code), mode="eval")
    functions = {
        id(node) for call in ast.walk(tree) if isinstance(call, ast.Call) for node in ast.walk(call.func)
    }
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions}
    return names - {"_", "contr", "np"}


def formulaic() -> Any:
    """Return the package that parses formulas; raise InputError with install instructions if missing."""
    try:
        import formulaic  # noqa: PLC0415  (an extra, and slow to load)
    except ImportError:
        raise InputError("Formulas need another package: pip install 'masquerade[stats]'") from None
    return formulaic


def column(
    variable: Variable,
    codes: Sequence[int] | NDArray[np.intp],
    reference: Category | None,
    scores: Scores | None,
) -> Any:
    """Return a column of categories for a formula: numbers, or labels with the reference first."""
    import pandas as pd  # noqa: PLC0415

    numeric = all(
        (isinstance(label, int) and not isinstance(label, bool)) or is_decimal(label)
        for label in variable.categories
    )
    if variable.name in (scores or {}):
        numbers = scores_of(variable, (scores or {})[variable.name])[0]
        return numbers[np.asarray(codes, dtype=np.intp)]
    if numeric and reference is None:
        return np.array(variable.categories, dtype=float)[np.asarray(codes, dtype=np.intp)]
    first = 0 if reference is None else variable.code(reference)
    order = [first, *(code for code in range(len(variable)) if code != first)]
    labels = [str(variable.categories[code]) for code in order]
    rank = np.empty(len(variable), dtype=np.intp)
    rank[order] = np.arange(len(variable))
    return pd.Categorical.from_codes(rank[np.asarray(codes, dtype=np.intp)], categories=pd.Index(labels))


@dataclass(frozen=True, slots=True, eq=False)
class TermsMatrix:
    """Design matrix of a formula's terms for the rows of a frame, reusable for other frames.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    X : array (rows, columns)
        Values.
    spec : formulaic.ModelSpec
        Specification of the columns, with the categories and knots of these rows.
    kept : tuple of int
        Columns of `spec` that are used.
    """

    names: tuple[str, ...]
    X: Floats
    spec: Any
    kept: tuple[int, ...]

    def build(self, frame: pd.DataFrame) -> Floats:
        """Return the columns for the rows of another frame."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("error", formulaic().errors.DataMismatchWarning)
                X = np.asarray(self.spec.get_model_matrix(frame, na_action="raise"), dtype=float)
        except formulaic().errors.DataMismatchWarning:
            raise InputError(
                "A covariate has a category that no record of the regression has, so it has no term."
            ) from None
        except Exception as error:  # noqa: BLE001  (formulaic raises errors of many types)
            raise InputError(f"The terms cannot be computed: {_first_line(error)}.") from None
        return X[:, list(self.kept)]

    def without_intercept(self) -> TermsMatrix:
        """Return the columns without the intercept."""
        kept = [i for i, name in enumerate(self.names) if name != "Intercept"]
        return TermsMatrix(
            tuple(self.names[i] for i in kept), self.X[:, kept], self.spec, tuple(self.kept[i] for i in kept)
        )


def terms_matrix(terms: str, frame: pd.DataFrame) -> TermsMatrix:
    """Return the design matrix of the terms for the rows of a frame."""
    try:
        # an empty context: no name of this module can be used
        with np.errstate(all="ignore"):
            matrix = formulaic().model_matrix(read_terms(terms), frame, context={}, na_action="raise")
    except Exception as error:  # formulaic raises errors of many types
        if isinstance(error, InputError):
            raise
        raise InputError(f"The terms {terms!r} cannot be used: {_first_line(error)}.") from None
    names, X = tuple(map(str, matrix.columns)), np.asarray(matrix, dtype=float)
    infinite = [
        name for name, is_finite in zip(names, np.isfinite(X).all(axis=0), strict=True) if not is_finite
    ]
    if infinite:
        raise InputError(f"{', '.join(infinite)} is infinite for some records: remove these records.")
    return TermsMatrix(names, X, matrix.model_spec, tuple(range(len(names))))


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """All combinations of covariates, and their terms."""

    variables: tuple[Variable, ...]
    matrix: TermsMatrix

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the names of the terms."""
        return self.matrix.names

    @property
    def X(self) -> Floats:  # noqa: N802  (the field's letter)
        """Return the terms, (combinations, terms)."""
        return self.matrix.X


def cells_of(
    formula: Formula, schema: Schema, reference: Mapping[str, Category] | None, scores: Scores | None
) -> Cells:
    """Return the design of a formula over all combinations of the covariates' categories."""
    import pandas as pd  # noqa: PLC0415

    check_names(formula, schema, reference, scores)
    variables = tuple(schema[name] for name in formula.names)
    codes = list(product(*(range(len(variable)) for variable in variables)))
    columns = {
        variable.name: column(
            variable, [row[place] for row in codes], (reference or {}).get(variable.name), scores
        )
        for place, variable in enumerate(variables)
    }
    frame = pd.DataFrame(columns, index=range(len(codes)))
    matrix = terms_matrix(formula.terms, frame)
    check_rank(matrix.names, matrix.X)
    return Cells(variables, matrix)


def check_names(
    formula: Formula, schema: Schema, reference: Mapping[str, Category] | None, scores: Scores | None
) -> None:
    """Raise SchemaError for unknown variables, InputError if the outcome is also a term."""
    for name in (formula.outcome, *formula.names, *(reference or {}), *(scores or {})):
        if name not in schema:
            raise SchemaError(
                f"There is no variable {name!r} for {formula.text!r}.{did_you_mean(name, schema)}"
            )
    if formula.outcome in formula.names:
        raise InputError(f"{formula.outcome!r} is on both sides of {formula.text!r}.")


def check_rank(names: Sequence[str], X: Floats) -> None:
    """Raise InputError if a term is a linear combination of other terms."""
    rank = int(np.linalg.matrix_rank(X))
    if rank < X.shape[1]:
        extra = [
            name
            for place, name in enumerate(names)
            if np.linalg.matrix_rank(X[:, : place + 1]) == np.linalg.matrix_rank(X[:, :place])
        ]
        raise InputError(f"Omit the terms that are linear combinations of other terms: {', '.join(extra)}.")


def select_terms(names: Sequence[str], chosen: str) -> list[int]:
    """Return the positions of the terms that a name selects.

    The name of a term selects this term. The name of a variable selects all terms that contain the variable,
    including interactions, and "a:b" selects the interactions of a and b.

    >>> select_terms(["Intercept", "z", "t[T.q]", "z:t[T.q]", "I(z ** 2)"], "z")
    [1, 3, 4]
    """
    bare = [name.rpartition(": ")[2] for name in names]
    exact = [place for place, name in enumerate(bare) if name == chosen]
    if exact and not re.fullmatch(r"`?[\w. ]+`?", chosen):
        return exact
    factors = _components(chosen.replace("`", ""))
    return [
        place
        for place, name in enumerate(bare)
        if all(any(_contains(part, factor) for part in _components(name)) for factor in factors)
    ]


def _components(name: str) -> list[str]:
    """Return the factors of a term; a colon inside brackets belongs to a label."""
    parts, depth = [""], 0
    for letter in name:
        depth += (letter in "([") - (letter in ")]")
        if letter == ":" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _contains(factor: str, name: str) -> bool:
    """Return True if a factor of a term is a variable, one of its categories, or computed from it."""
    if factor == name or factor.startswith(f"{name}["):
        return True
    try:
        return "(" in factor and name in _names_in(re.sub(r"\[[^\[\]]*\]$", "", factor))
    except SyntaxError:
        return False
