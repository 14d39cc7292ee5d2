"""`masquerade audit`: from a policy to a page, its exit codes, and what it says of bad input."""

import json

import numpy as np
import pandas as pd
import pytest

from masquerade.cli.app import app

POLICY = """masquerade: 1
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  region: {categories: [north, south, east, west], channel: {kind: symmetric, p: 0.4}}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a command in an empty folder with a policy, and return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")

    def called(text):
        with pytest.raises(SystemExit) as ended:
            app(text.split())
        out, error = capfd.readouterr()
        return ended.value.code, out, error

    return called


def people(n=2000):
    generator = np.random.default_rng()
    return pd.DataFrame(
        {
            "smoker": np.array(["yes", "no"])[generator.integers(0, 2, n)],
            "region": np.array(["north", "south", "east", "west"])[generator.integers(0, 4, n)],
        }
    )


def test_a_policy_is_proved_in_words_in_json_and_on_a_page(run, tmp_path):
    code, out, error = run("audit policy policy.yaml --out audit.html")
    assert code == 0
    assert "[proved] smoker: γ = 3 (ε = 1.10), proved by enumeration (4 intervals)" in out
    assert "the page is audit.html" in error
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "No claim is contradicted." in page
    assert "http" not in page  # it needs nothing from outside
    code, out, _ = run("audit policy policy.yaml --no-page --json")
    assert code == 0
    assert json.loads(out)["contradicted"] is False
    assert run("audit policy policy.yaml --out audit.html")[0] == 2  # exists already
    assert "end in .html" in run("audit policy policy.yaml --out audit.pdf")[2]


def test_canaries_go_through_a_pipeline_and_a_fault_is_exit_code_1(run):
    code, _, error = run("audit canaries make policy.yaml --out canaries.csv --key canaries.key --n 2000")
    assert code == 0
    assert "2,000 canaries are in canaries.csv" in error
    assert run("disguise canaries.csv -p policy.yaml --out out.csv --keep canary --shuffle")[0] == 0
    code, out, _ = run("audit canaries read out.csv -p policy.yaml --key canaries.key --shuffled")
    assert code == 0, out
    code, out, _ = run("audit canaries read canaries.csv -p policy.yaml --key canaries.key --shuffled")
    assert code == 1
    assert "in clear" in out
    assert "order of rows is kept" in out


def test_a_release_is_attacked(run, tmp_path):
    people().to_csv(tmp_path / "people.csv", index=False)
    assert run("disguise people.csv -p policy.yaml --out out.csv")[0] == 0
    code, out, _ = run("audit release out.csv -p policy.yaml --truth people.csv --records 200 --json")
    assert code == 0
    about = {finding["about"] for finding in json.loads(out)["findings"]}
    assert {"origin", "policy", "repeats", "linkage", "attacker who knows the population"} <= about


def test_a_function_is_drawn_from(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nrng = np.random.default_rng()\n"
        "def draw(truth, n):\n    return np.where(rng.random(n) < 0.75, truth, 1 - truth)\n",
        encoding="utf-8",
    )
    assert run("audit sampler --sampler mine:draw --import-path . --epsilon 1.1 --draws 20000")[0] == 0
    code, out, _ = run("audit sampler --sampler mine:draw --import-path . --epsilon 0.8 --draws 20000")
    assert code == 1
    assert "which the draws exceed at level 1e-05" in out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("audit policy nothing.yaml", "nothing.yaml"),
        ("audit release nothing.csv -p policy.yaml", "nothing.csv"),
        ("audit release policy.yaml -p policy.yaml", "policy.yaml"),
        ("audit canaries read policy.yaml -p policy.yaml --key policy.yaml", "policy.yaml"),
        ("audit sampler --sampler nowhere", "module:function"),
        ("audit sampler --sampler math:sin --truths 2 --alpha 2", "--alpha"),
        ("audit sampler --sampler pure-ldp:OUE", "needs --epsilon"),
        ("audit polcy policy.yaml", "polcy"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, command, words):
    code, out, error = run(command)
    assert code == 2
    assert words in error
    assert out == ""
    assert len(error.strip().splitlines()) == 1
