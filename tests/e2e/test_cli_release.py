"""`masquerade release`: made and checked as its user does; what is wrong is said, nothing half remains."""

import json
import shutil

import pytest
from tests.e2e.test_cli_app import ok, run

import masquerade as mq
from masquerade.frames.file_reader import open_batches

POLICY = """masquerade: 1
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  region: {categories: [north, south]}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A disguised file, its policy, and its release."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    rows = "yes,north,Ann\nno,south,Bob\nno,north,Cyd\n" * 100
    (folder / "people.csv").write_text(f"smoker,region,name\n{rows}", encoding="utf-8")
    policy = ("-p", folder / "policy.yaml")
    ok("disguise", folder / "people.csv", *policy, "--out", folder / "out.csv", "--keep", "name")
    made = ok(
        "release", "make", folder / "out.csv", *policy, "--out", folder / "release",
        "--title", "Smokers", "--table", "smoker,region", "--no-attacker",
    )  # fmt: skip
    assert "omitted, not in the policy: name." in made.stderr
    assert "300 records released into" in made.stderr
    return folder


def test_a_release_is_whole_and_anybody_can_estimate_from_it(world):
    checked = ok("release", "check", world / "release")
    assert checked.stdout.endswith("complete and unchanged.\n")
    values = json.loads(ok("release", "check", world / "release", "--json").stdout)
    assert values == {"folder": str(world / "release"), "whole": True, "problems": []}
    whole = world / "release"
    told = ok("estimate", whole / "data.parquet", "-p", whole / "policy.yaml", "--by", "smoker")
    assert "smoker" in told.stdout
    assert (world / "release" / "tables" / "SMOKER_REGION.csv").exists()
    assert "Ann" not in (world / "release" / "README.md").read_text(encoding="utf-8")


def test_a_release_names_the_memo_that_drew_it(world, tmp_path):
    policy = ("-p", world / "policy.yaml")
    memo = ("--memo", tmp_path / "memo", "--new-memo", "--id", "name")
    rows = "".join(f"{'yes' if n % 3 else 'no'},{'north' if n % 2 else 'south'},{n}\n" for n in range(300))
    (tmp_path / "people.csv").write_text(f"smoker,region,name\n{rows}", encoding="utf-8")
    drawn = json.loads(
        ok(
            "disguise", tmp_path / "people.csv", *policy, "--out", tmp_path / "out.csv", *memo, "--json"
        ).stdout
    )["memo"]
    for form in ("csv", "parquet"):
        folder = tmp_path / form
        made = ok(
            "release", "make", tmp_path / "out.csv", *policy, "--out", folder, "--format", form,
            "--no-attacker", "--json",
        )  # fmt: skip
        assert json.loads(made.stdout)["memo"] == drawn
        assert f"- Drawn: memo {drawn}\n" in (folder / "README.md").read_text(encoding="utf-8")
        assert json.loads((folder / "croissant.json").read_text(encoding="utf-8"))["mq:memo"] == drawn
        with open_batches(folder / f"data.{form}") as batches:
            assert batches.metadata["memo"] == drawn
        assert ok("release", "check", folder).stdout.endswith("complete and unchanged.\n")
    assert "- Drawn: without a memo" in (world / "release" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda folder: (folder / "data.parquet").write_bytes(b"PAR1"), "data.parquet: was changed"),
        (lambda folder: (folder / "croissant.json").unlink(), "croissant.json: is missing"),
        (lambda folder: (folder / "notes.txt").write_text("x"), "notes.txt: is not in SHA256SUMS"),
        (
            lambda folder: mq.Policy.clear({"smoker": ["yes", "no"]}).save(folder / "policy.yaml"),
            "data.parquet: was not disguised under the policy in policy.yaml",
        ),
    ],
)
def test_a_release_that_was_tampered_with_is_exit_code_1(world, tmp_path, harm, told):
    copy = shutil.copytree(world / "release", tmp_path / "copy")
    harm(copy)
    found = run("release", "check", copy)
    assert found.exit_code == 1
    assert told in found.stderr
    assert "whole" not in found.stdout
    assert json.loads(run("release", "check", copy, "--json").stdout)["whole"] is False


def test_what_cannot_be_released_is_said_in_a_line(world, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.replace("0.25", "0.2"), encoding="utf-8")
    policy, out = world / "policy.yaml", tmp_path / "out"
    for arguments, told in [
        ((world / "out.csv", "-p", other), "was disguised under policy"),
        ((world / "people.csv", "-p", policy), "does not say under which policy"),
        ((world / "nobody.csv", "-p", policy), "nobody.csv"),
        ((world / "out.csv", "-p", tmp_path / "none.yaml"), "none.yaml"),
        ((world / "out.csv", "-p", policy, "--table", "smokr"), "Did you mean 'smoker'"),
        ((world / "out.csv", "-p", policy, "--format", "docx"), "parquet or csv"),
        (("-", "-p", policy), "standard input"),
    ]:
        failed = run("release", "make", *arguments, "--out", out, "--no-attacker")
        assert failed.exit_code == 2, arguments
        assert told in failed.stderr
        assert "Ann" not in failed.stderr
    again = run("release", "make", world / "out.csv", "-p", policy, "--out", world / "release")
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    missing = run("release", "check", tmp_path / "nowhere")
    assert (missing.exit_code, "is not a folder" in missing.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["other.yaml"]
