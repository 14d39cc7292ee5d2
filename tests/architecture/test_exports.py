"""What the package offers, how quickly it loads, and that everything public says what it is."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.architecture.modules import MODULES, ROOT, Imported, for_each
from tests.architecture.public_names import PUBLIC as NAMES

import masquerade

PUBLIC = [
    "Cached",
    "Channel",
    "Controlled",
    "CountTable",
    "Covariance",
    "DataDependentRules",
    "Dominance",
    "Guarantee",
    "LinkError",
    "MasqueradeError",
    "Merged",
    "MostCategories",
    "NoiseLedger",
    "NoiseTerms",
    "Noisy",
    "PerturbationTable",
    "Policy",
    "Query",
    "QueryRefused",
    "Refusal",
    "Rules",
    "Schema",
    "SurveyRecords",
    "Tally",
    "Variable",
    "anonymity",
    "ask_families",
    "ask_tree",
    "audit",
    "basket_policy",
    "cell_keyed",
    "channels",
    "data",
    "disguise",
    "disguise_file",
    "evaluate",
    "extend",
    "interop",
    "learn",
    "pairs_near_tree",
    "parties",
    "people",
    "plan",
    "plan_tables",
    "privacy",
    "projection_tally",
    "read_baskets",
    "simulate",
    "simulate_projection",
    "stats",
    "structure_stages",
    "tally",
    "tree_tables",
    "visible_pairs",
]
HEAVY = [
    "numba",
    "sklearn",
    "networkx",
    "pandas",
    "pyarrow",
    "pydantic",
    "matplotlib",
    "scipy",
    "narwhals",
    "polars",
]


def test_the_public_names_are_these():
    assert masquerade.__all__ == PUBLIC
    assert dir(masquerade) == sorted([*PUBLIC, "__version__"])


@for_each(PUBLIC)
def test_every_public_name_resolves_and_says_what_it_is(name):
    found = getattr(masquerade, name)
    assert inspect.getdoc(found)
    assert getattr(masquerade, name) is found


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'disguize'"):
        _ = masquerade.disguize


PACKAGES = [module.name for module in MODULES if module.path.name == "__init__.py"]


@for_each(PACKAGES)
def test_every_package_says_its_public_names(name):
    package = importlib.import_module(name)
    assert package.__doc__
    assert len(set(package.__all__)) == len(package.__all__) > 0
    for public in package.__all__:
        if not hasattr(package, public):
            importlib.import_module(f"{name}.{public}")
        assert not public.startswith("_")


def strangers(module):
    """Yield what a module imports of another package though its name says that it is private."""
    for imported in module.imports:
        place, _, private = imported.name.rpartition("._")
        own = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
        if private and place.startswith("masquerade") and not f"{own}.".startswith(f"{place}."):
            yield imported.name


@for_each(MODULES)
def test_private_modules_and_names_stay_in_their_package(module):
    assert list(strangers(module)) == []


def test_a_private_module_that_others_import_is_found():
    names = ["masquerade.learn._x", "masquerade.core.table._named", "masquerade.learn.classifiers.bayes"]
    imports = [Imported(name, at_load=True) for name in names]
    for own, found in (("learn", names[1:2]), ("cli", names[:2])):
        module = SimpleNamespace(name=f"masquerade.{own}.x", path=ROOT / own / "x.py", imports=imports)
        assert list(strangers(module)) == found


def fresh(code):
    """Run code in a new interpreter and return what it prints, read as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    return json.loads(done.stdout)


def test_importing_is_quick_and_loads_nothing_heavy():
    code = (
        "import json, sys, time; start = time.perf_counter(); import masquerade; "
        f"print(json.dumps([time.perf_counter() - start, [n for n in {HEAVY} if n in sys.modules]]))"
    )
    tries = [fresh(code) for _ in range(3)]
    assert all(loaded == [] for _, loaded in tries)
    assert min(seconds for seconds, _ in tries) < 0.5  # the best of three: others may use the machine


def test_the_core_loads_nothing_heavy():
    names = [module.name for module in MODULES if module.part == "core"]
    code = (
        f"import json, sys, {', '.join(names)}; print(json.dumps([n for n in {HEAVY} if n in sys.modules]))"
    )
    assert fresh(code) == []


BUILDERS = {"build", "build_binned"}  # of the channel kinds in a policy: the class says what is built
FIELD = {"write", "read", "over"}  # of the kinds of fields in a message: the class says what is written


def undocumented(node, prefix):
    """Yield public classes, functions and methods without a docstring; a nested function is private."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        name = f"{prefix}.{child.name}"
        built = prefix.startswith("masquerade.channels.policy.channel_models.") and child.name in BUILDERS
        overload = any(isinstance(d, ast.Name) and d.id == "overload" for d in child.decorator_list)
        field = prefix.startswith("masquerade.protocols.") and child.name in FIELD
        if child.name.startswith("_") or built or overload or field:
            continue
        if not ast.get_docstring(child):
            yield name
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, name)


@for_each(MODULES)
def test_everything_public_has_a_docstring(module):
    if module.path.read_text(encoding="utf-8").strip():
        assert ast.get_docstring(module.tree)
    assert list(undocumented(module.tree, module.name)) == []


def test_the_search_for_missing_docstrings_finds_one():
    tree = ast.parse("class A:\n    def f(self): ...\n    def _g(self): ...\ndef h():\n    'Say.'\n")
    assert list(undocumented(tree, "m")) == ["m.A", "m.A.f"]


def kinds_without_example(thing):
    """Tell whether something needs no example by its kind: no function or class, an error, a protocol."""
    is_class = inspect.isclass(thing)
    error = is_class and issubclass(thing, BaseException)
    return not (is_class or inspect.isroutine(thing)) or error or getattr(thing, "_is_protocol", False)


def shown_on_a_page(name, thing):
    """Tell whether the code of the page that a docstring names uses something that speaks to a server."""
    page = re.search(r"Example:\s+`(docs/[\w/-]+\.md)`", thing.__doc__)
    if page is None or not thing.__module__.startswith(("masquerade.services.", "masquerade.survey.")):
        return False
    text = (ROOT.parents[1] / page[1]).read_text(encoding="utf-8")
    code = re.findall(r"^```python$(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return re.search(rf"\b{name.rpartition('.')[2]}\b", "\n".join(code)) is not None


@for_each(sorted(NAMES))
def test_every_public_name_shows_an_example(name):
    thing = NAMES[name]
    if not kinds_without_example(thing):
        assert ">>> " in thing.__doc__ or shown_on_a_page(name, thing)


def test_a_name_without_an_example_is_found():
    def silent():
        """Say nothing. Example: `docs/howto/count-people.md`."""

    assert not kinds_without_example(silent)
    assert not shown_on_a_page("masquerade.silent", silent)
