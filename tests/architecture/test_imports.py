"""Imports point downward only; the core needs numpy alone; a release has no seed."""

import ast
import sys
from collections import Counter

import pytest
from tests.architecture.modules import MODULES, ROOT, Module, for_each, imports_in

# each floor may import those before it; learners are apart and speak to the core alone
FLOORS = ("core", "kernels", "crypto", "estimate", "channels", "frames", "disguising", "protocols", "sources")
ALLOWED = {
    **{floor: set(FLOORS[: i + 1]) for i, floor in enumerate(FLOORS)},
    "learn": {"core", "learn"},
    "stats": {"core", "stats"},
    "anonymity": {"core", "kernels", "channels", "anonymity"},
    "plan": {"core", "kernels", "estimate", "channels", "plan"},
}
ABOVE = (
    "extend",
    "testing",
    "evaluate",
    "data",
    "report",
    "simulation",
    "services",
    "survey",
    "people",
    "parties",
    "audit",
    "interop",
    "sklearn",
    "cli",
    "studio",
)  # who may know both a learner and a source
for _i, _part in enumerate(ABOVE):
    ALLOWED[_part] = {*FLOORS, "learn", "stats", "anonymity", "plan", *ABOVE[: _i + 1]}
MOST_MODULES = 22  # of a folder
SEEDED = {"masquerade.disguising.seeded"}  # studies only, and marked as such
BELOW_THE_TOP = [module for module in MODULES if module.part]


def ours(module):
    """Return the parts of the package that a module imports; "" is the package's own front."""
    names = [item.name for item in module.imports if item.name.split(".")[0] == "masquerade"]
    return {name.split(".")[1] if "." in name else "" for name in names}


def test_every_folder_has_its_floor():
    assert {module.part for module in BELOW_THE_TOP} <= set(ALLOWED)
    assert len(BELOW_THE_TOP) > 40  # the walk found the package


@for_each(BELOW_THE_TOP)
def test_imports_point_downward(module):
    allowed = set(ALLOWED[module.part])
    if module.part in ABOVE:
        from masquerade import __all__ as public  # noqa: PLC0415  (the front is theirs to use)

        allowed |= {"", "__version__", *public}
    assert ours(module) <= allowed


@for_each([m for m in MODULES if m.part == "core"])
def test_the_core_needs_numpy_alone(module):
    others = {
        item.name.split(".")[0]
        for item in module.imports
        if item.name.split(".")[0] not in {*sys.stdlib_module_names, "masquerade", "numpy"}
    }
    shown = {  # imported inside functions, when they are called
        "masquerade.core.distributions": {"scipy"},
        "masquerade.core.plots.drawing": {"matplotlib"},
        "masquerade.core.plots.style": {"matplotlib"},
        "masquerade.core.table": {"pandas"},
    }
    assert others == shown.get(module.name, set())
    assert not [item.name for item in module.imports if item.at_load and item.name.split(".")[0] in others]


@for_each([m for m in MODULES if m.part == "learn"])
def test_learners_never_load_a_frame_library_to_learn(module):
    loaded = {item.name.split(".")[0] for item in module.imports if item.at_load}
    assert not loaded & {"pandas", "polars", "pyarrow", "narwhals"}


def seeds_of(module):
    """Return how a module could be made repeatable: generators it imports or uses, parameters called seed."""
    found = [
        item.name for item in module.imports if item.name.split(".")[0] == "random" or ".random" in item.name
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"np.random", "numpy.random"}:
            found.append(ast.unparse(node))
        if isinstance(node, ast.arg) and (
            "seed" in node.arg or node.arg in {"rng", "generator", "random_state"}
        ):
            found.append(node.arg)
    return found


RELEASING = [
    module
    for module in MODULES
    if (module.part in {"disguising", "kernels", "channels", "core", "frames"} and module.name not in SEEDED)
    or module.name == "masquerade.crypto.symmetric"
]


@for_each(RELEASING)
def test_nothing_on_the_way_to_a_release_can_be_seeded(module):
    assert seeds_of(module) == []
    assert not [item.name for item in module.imports if item.name in SEEDED]


def test_the_guard_against_seeds_sees_one():
    (simulate,) = [module for module in MODULES if module.name in SEEDED]
    assert {"seed", "np.random"} <= set(seeds_of(simulate))


def test_the_walk_sees_imports_wherever_they_stand():
    text = (
        "import a.b\nif TYPE_CHECKING:\n    import hidden\n"
        "try:\n    from c import d\nexcept ImportError:\n    import e\n"
        "def f():\n    with open(x) as y:\n        import g\n"
        "class C:\n    import h\n"
    )
    seen = {(item.name, item.at_load) for item in imports_in(ast.parse(text).body, at_load=True)}
    assert seen == {("a.b", True), ("c", True), ("c.d", True), ("e", True), ("g", False), ("h", True)}


@for_each(MODULES)
def test_modules_stay_small(module):
    assert isinstance(module, Module)
    assert len(module.path.read_text(encoding="utf-8").splitlines()) <= 600


def test_a_check_of_each_item_reports_every_failure():
    @for_each([1, 2, 3])
    def check(item):
        assert item == 2, "is not two"

    with pytest.raises(AssertionError, match=r"(?s)1: is not two.*3: is not two"):
        check()


def test_channels_know_no_policy():
    inside = "masquerade.channels.policy"
    wrong = {
        module.name: names
        for module in MODULES
        if module.part == "channels" and not module.name.startswith(inside) and module.path.stem != "__init__"
        if (names := [item.name for item in module.imports if item.name.startswith(inside)])
    }
    assert wrong == {}


def test_folders_stay_small():
    folders = Counter(module.path.parent for module in MODULES if module.path.name != "__init__.py")
    commands = ROOT / "cli"  # a module for each command
    assert {folder.name: n for folder, n in folders.items() if n > MOST_MODULES and folder != commands} == {}
