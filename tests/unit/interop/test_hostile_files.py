"""Files of other tools that were made to do harm: the harm first, then that it is refused."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import time
import tracemalloc
from pathlib import Path

import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.interop import check_release, from_dap, from_uai, from_xmlbif, write_release
from masquerade.learn import model_file
from masquerade.learn.networks.graph import ancestral_order

OLD = Path(__file__).parents[2] / "compatibility" / "v0_1" / "models"
POLICY = mq.Policy.build(
    {"smoker": ["yes", "no"], "age": ["young", "old"]}, {"smoker": mq.channels.binary("1/4")}
)
MIB = 1 << 20


def test_a_short_network_file_does_not_fill_the_memory():
    text = "BAYES\n1000\n" + "65536 " * 1000
    assert len(text) < 7000
    tracemalloc.start()
    try:
        # the harm: the categories alone of one of its thousand variables
        one = Variable("x0", tuple(range(65_536)))
        assert tracemalloc.get_traced_memory()[0] * 1000 > 2000 * MIB, one
        tracemalloc.reset_peak()
        with pytest.raises(InputError, match="more categories than the text has numbers"):
            from_uai(text)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()


def chain(nodes):
    """Return an XMLBIF network whose nodes stand in a row, the last first: a hard order to find."""
    variable = "<VARIABLE><NAME>v%d</NAME><OUTCOME>y</OUTCOME><OUTCOME>n</OUTCOME></VARIABLE>"
    given = "<DEFINITION><FOR>v%d</FOR><GIVEN>v%d</GIVEN><TABLE>1 0 0 1</TABLE></DEFINITION>"
    rows = "".join(given % (node, node + 1) for node in range(nodes - 1))
    last = f"<DEFINITION><FOR>v{nodes - 1}</FOR><TABLE>1 0</TABLE></DEFINITION>"
    names = "".join(variable % node for node in range(nodes))
    return f"<BIF><NETWORK>{names}{rows}{last}</NETWORK></BIF>"


def test_a_network_of_very_many_nodes_in_a_row_takes_time_by_its_length():
    def layers_looked_at(nodes):  # the harm, as it was: every layer looks at all nodes that are left
        return nodes * (nodes + 1) // 2

    assert layers_looked_at(20_000) > 10**8
    text = chain(20_000)
    began = time.thread_time()
    network = from_xmlbif(text)
    assert time.thread_time() - began < 30  # it took 15 s and grew by the square; now 1 s
    assert network.structure["v0"] == ("v1",)


def test_the_order_of_nodes_is_as_it_was_and_cycles_are_named_briefly():
    structure = {"d": ("b", "c"), "b": ("a",), "e": (), "c": ("a",), "a": (), "f": ("e", "d")}
    assert ancestral_order(structure) == ["e", "a", "b", "c", "d", "f"]
    ring = {f"v{i}": (f"v{(i + 1) % 50}",) for i in range(50)}
    with pytest.raises(InputError, match=r"cycle among v0, v1, .* v11 and others") as told:
        ancestral_order(ring)
    assert len(str(told.value)) < 100


@pytest.mark.parametrize("version", [True, 1.0, "1", None, 3])
def test_a_result_of_dap_is_one_by_its_number(version):
    values = {"masquerade_dap": 1, "policy": POLICY.id, "vdaf": "Prio3Histogram", "report_count": 4}
    counts = {"counts": [1, 1, 1, 1]}
    assert from_dap(values | counts, POLICY).n == 4
    with pytest.raises(InputError, match="not a DAP result"):
        from_dap(values | counts | {"masquerade_dap": version}, POLICY)
    shares = ["01" + "00" * 15 + "00" * 48] * 2
    for draft in (True, 18.0, "18"):
        with pytest.raises(InputError, match="'draft' must be"):
            from_dap(values | {"report_count": 2, "draft": draft, "shares": shares}, POLICY)


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        ("naive_bayes", ("n",), -5, "'n' must not be negative"),
        ("tree", ("nodes", 0, "stderr", 0), -1.0, "standard errors of 0 or more"),
        ("itemsets", ("level",), 7.0, "'level' must be between 0 and 1"),
        ("itemsets", ("levels", 0, "stderr", 0), -0.5, "standard errors of 0 or more"),
        ("pruned_tree", ("significance",), -5.0, "'significance' must be between 0 and 1"),
        ("linear", ("features", 0, "numbers", 0, 0), "-inf", "numbers' must contain finite numbers"),
        ("network", ("nodes", 0, "evidence", "n"), -1, "'n' must not be negative"),
    ],
)
def test_a_model_with_impossible_numbers_is_refused(name, path, value, words):
    values = json.loads((OLD / f"{name}.json").read_text(encoding="utf-8"))
    model_file.model_of(copy.deepcopy(values))
    *above, last = path
    part = values
    for key in above:
        part = part[key]
    assert part[last] != value
    part[last] = value
    with pytest.raises(InputError, match=words):
        model_file.model_of(values)


def deep_tree(depth):
    """Return the values of a label tree that asks about one feature after the other, on one path."""
    features = [{"name": f"f{i}", "categories": [0, 1]} for i in range(depth)]
    leaf = {"feature": None, "branches": [], "label": 0}
    nodes = [{"feature": "f0", "branches": [1, 2], "label": None}]
    for i in range(1, depth):
        nodes += [leaf, {"feature": f"f{i}", "branches": [2 * i + 1, 2 * i + 2], "label": None}]
    target = {"name": "t", "categories": ["y", "n"]}
    nodes += [leaf, leaf]
    return {**model_file.header("label_tree"), "target": target, "features": features, "nodes": nodes, "n": 5}


def test_a_deep_tree_takes_memory_by_its_length():
    values = deep_tree(4000)
    assert len(json.dumps(values)) < MIB
    # the harm, as it was: every node held the set of all features above it
    assert sum(range(4000)) * 32 > 200 * MIB
    tracemalloc.start()
    try:
        tree = model_file.model_of(values)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()
    assert tree.depth == 4000
    values["nodes"][4]["feature"] = "f0"
    with pytest.raises(InputError, match="node 4 splits by 'f0' a second time"):
        model_file.model_of(values)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    people = mq.data.students().head(400)
    frame = people.assign(smoker=people["pills"], age=people["exams"].map({"few": "young", "many": "old"}))
    frame[["smoker", "age"]].to_csv(folder / "people.csv", index=False)
    mq.disguise_file(folder / "people.csv", folder / "out.csv", POLICY)
    write_release(folder / "out.csv", POLICY, folder / "release", form="csv", attacker=False)
    assert check_release(folder / "release") == []
    return folder / "release"


def with_new_sums(folder):
    """Write the hashes again, as whoever changes a file does."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names
             if name != "SHA256SUMS"]  # fmt: skip
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("croissant.json", '{\\"0\\": \\"3/4\\"', '{\\"0\\": \\"2/3\\"'),
        ("codebook.xml", '{"0": "3/4"', '{"0": "2/3"'),
        ("codebook.xml", "<catValu>yes<", "<catValu>no<"),
    ],
)
def test_probabilities_that_are_not_the_policys_are_seen_in_a_release(release, tmp_path, file, right, wrong):
    folder = shutil.copytree(release, tmp_path / "copy")
    text = (folder / file).read_text(encoding="utf-8")
    assert right in text
    # the harm: the id of the policy is right, all hashes are, and whoever estimates by this file is misled
    (folder / file).write_text(text.replace(right, wrong), encoding="utf-8")
    with_new_sums(folder)
    assert POLICY.id in (folder / file).read_text(encoding="utf-8")
    assert check_release(folder) == [f"{file}: has different columns or probabilities from policy.yaml."]


def test_a_release_that_names_another_place_for_its_data_is_seen(release, tmp_path):
    folder = shutil.copytree(release, tmp_path / "copy")
    described = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    described["distribution"][0]["contentUrl"] = "https://elsewhere.example/data.csv"
    (folder / "croissant.json").write_text(json.dumps(described), encoding="utf-8")
    with_new_sums(folder)
    assert check_release(folder) == ["croissant.json: has a different name, size or sha256 of data.csv."]


def test_links_in_a_release_are_not_followed(release, tmp_path):
    folder = shutil.copytree(release, tmp_path / "copy")
    outside = tmp_path / "outside.txt"
    outside.write_text("a file of whoever checks the release", encoding="utf-8")
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(outside)
    with_new_sums(folder)
    # the harm: a check of the hash reads the file outside, and tells whether its content was guessed
    assert (folder / "README.md").read_bytes() == outside.read_bytes()
    assert check_release(folder) == ["README.md: is a link; a release must contain files only."]
    (folder / "README.md").unlink()
    (folder / "more").symlink_to(tmp_path)
    assert check_release(folder) == ["more: is a link; a release must contain files only."]


def test_a_parent_that_is_named_twice_is_refused():
    with pytest.raises(InputError, match="Node 'b' names a parent twice"):
        ancestral_order({"a": (), "b": ("a", "a")})
    network = mq.data.seven_nodes().to_dict()
    node = next(node for node in network["nodes"] if len(node["parents"]) == 2)
    node["parents"] = [node["parents"][0]] * 2
    with pytest.raises(InputError, match="names a parent twice"):
        model_file.model_of(network)
