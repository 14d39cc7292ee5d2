"""A formula that another person wrote computes with variables, and calls nothing else."""

from pathlib import Path

import pandas as pd
import pytest

from masquerade.core.errors import InputError
from masquerade.stats.regression.formula import Formula, terms_matrix, variables_in

formulaic = pytest.importorskip("formulaic")

FRAME = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "years at work": [1.0, 3.0, 2.0, 5.0], "k": list("abab")})
ATTACKS = [
    "np.lib.npyio.os.system('touch ran')",
    "np.f2py.os.system('touch ran')",
    "np.load('ran', allow_pickle=True)",
    "np.fromfile('ran')",
    "np.savetxt('ran', x)",
    "x.to_csv('ran')",
    "I(x.to_csv('ran'))",
    "C(x, contr.treatment.__init__.__globals__)",
    "{__import__('os').system('touch ran')}",
    "{().__class__.__base__.__subclasses__()}",
    "I((lambda: open('ran', 'w'))())",
    "I([open('ran', 'w') for _ in [1]])",
    "I(f'{x.to_csv}')",
    "I(x if x.to_csv('ran') else x)",
    "`lambda` x: 1",
    "I('`' + x.to_csv('ran') + '`')",
    "C(k, ['\"] or __FORMULAIC_SPEC__.x[\"'])",
    'C(k, ["a\\\\"])',
    "center(x, **{'_state': 1})",
    "center(x, _state=1)",
    "I(__FORMULAIC_CONTEXT__)",
    "hashed(x, levels=2, hash_func=eval)",
    "terms_matrix(x)",
    "x | np.load('ran')",
    "[x ~ np.load('ran')]",
]


def test_formulaic_alone_would_run_the_code(tmp_path):
    ran = tmp_path / "ran"
    formulaic.model_matrix(f"{{np.savetxt({str(ran)!r}, x) or x}}", FRAME)  # the attack
    assert ran.exists()


@pytest.mark.parametrize("terms", ATTACKS)
def test_code_in_a_formula_is_refused(terms, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    formula, matrix = (lambda text: Formula.of(f"y ~ {text}")), (lambda text: terms_matrix(text, FRAME))
    for read in (variables_in, formula, matrix):
        with pytest.raises(InputError):
            read(terms)
    assert not Path("ran").exists()


LETTERS = "abcdefghijklmnopqrstuvwxyz"
ENDLESS = [  # each took hours or all memory
    "I(9**9**9)",
    "I(x + 9^9^9)",
    "I(x + (9**64)**64)",
    "I(x + 1e9**64)",
    "I(1 << 10000000000)",
    "np.isin(x, [0] * 10000000000)",
    "np.isin(x, (0,) * 10000000000)",
    "I('a' * 10000000000)",
    "I('%10000000000d' % x)",
    "poly(x, degree=1000000)",
    "poly(x, 10 ** 6)",
    "bs(x, df=100000000)",
    "cr(x, 10000000)",
    "ns(x, df=100000000)",
    "lag(x, 100 * 100)",
    "np.abs(x, out=x)",
    "*".join(LETTERS),
    f"({'+'.join(LETTERS)})^16",
    f"({'+'.join(LETTERS)})**9",
    ":".join([f"({'+'.join(LETTERS)})"] * 6),
    "/".join(LETTERS),
    "+".join("x" * 9000),
]


@pytest.mark.parametrize("terms", ENDLESS)
def test_a_short_text_does_not_take_hours_or_all_memory(terms):
    for read in (
        variables_in,
        lambda text: Formula.of(f"y ~ {text}"),
        lambda text: terms_matrix(text, FRAME),
    ):
        with pytest.raises(InputError):
            read(terms)


def test_no_name_of_this_module_is_a_variable():
    with pytest.raises(InputError):
        terms_matrix("frame", FRAME.drop(columns="k"))


@pytest.mark.parametrize(
    "terms",
    [
        "x + I(x^2) + sqrt(`years at work`)",
        "poly(x, 2, raw=True)",
        "I(2 * x ** 0.5) + I(10**-2 * x) + np.power(2, x)",
        "log(x) + np.exp(x) + np.where(x > 2, 1, 0)",
        "factor(k) + ns(x, df=3)",
        "ns(`years at work`, df=3)",
        "C(k, contr.sum)",
        "C(k, contr.treatment(base='b'))",
        "C(k, Treatment('b')) + center(x)",
        "poly(x, degree=2) + x:k",
    ],
)
def test_usual_terms_are_computed(terms):
    assert set(variables_in(terms)) <= set(FRAME)
    assert len(terms_matrix(terms, FRAME).X) == len(FRAME)
