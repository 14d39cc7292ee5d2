"""`masquerade learn` and `masquerade predict` from end to end."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from tests.e2e.test_cli_app import files, ok, refused

import masquerade as mq
from masquerade.frames.metadata import with_metadata

INCOMPLETE = {"incomplete": "7 of 9 reports did not open"}
POLICY = """\
masquerade: 1
limit: {gamma: 1000}
clear: accepted
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: binary, p: 0.2}}
  age: {categories: [0, 1, 2]}
  cough: {categories: ["yes", "no"], channel: {kind: binary, p: 0.1}}
  asthma: {categories: [true, false], channel: {kind: binary, p: 0.1}}
"""
CHAIN = "cough<-smoker; asthma <- smoker, age"
LEARNERS = {
    "network": ["--structure", CHAIN],
    "structure": [],
    "naive-bayes": ["--target", "smoker"],
    "tree": ["--target", "smoker"],
    "linear": ["--target", "smoker", "--loss", "logistic"],
    "rules": ["--min-support", "0.1"],
}
CLASSIFIERS = ["naive-bayes", "tree", "linear"]


def in_library(name, source):
    """Return the model that the library learns where LEARNERS ask the command for it."""
    parents = {"smoker": (), "age": (), "cough": ("smoker",), "asthma": ("smoker", "age")}
    learners = {
        "network": lambda: mq.learn.bayesian_network(source, parents),
        "structure": lambda: mq.learn.structure(source),
        "naive-bayes": lambda: mq.learn.naive_bayes(source, "smoker"),
        "tree": lambda: mq.learn.decision_tree(source, "smoker"),
        "linear": lambda: mq.learn.linear_classifier(source, "smoker", loss="logistic"),
        "rules": lambda: mq.learn.association_rules(source, 0.1),
    }
    return learners[name]()


def people(n=6000, seed=1):
    generator = np.random.default_rng(seed)
    smoker = generator.random(n) < 0.4
    age = generator.integers(0, 3, n)
    cough = generator.random(n) < np.where(smoker, 0.7, 0.1)
    asthma = generator.random(n) < np.where(smoker, 0.5, 0.05) + 0.1 * age
    return pd.DataFrame(
        {
            "smoker": np.where(smoker, "yes", "no"),
            "age": age,
            "cough": np.where(cough, "yes", "no"),
            "asthma": asthma,
            "who": np.arange(n),
        }
    )


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Return a folder with clear and disguised people, their policy, and a model of each kind."""
    folder = tmp_path_factory.mktemp("learn")
    (folder / "policy.yaml").write_text(POLICY)
    policy = mq.Policy.load(folder / "policy.yaml")
    clear = people()
    clear.to_csv(folder / "people.csv", index=False)
    disguised = mq.simulate(clear, policy, seed=2, keep=["who"])
    disguised.to_csv(folder / "disguised.csv", index=False)
    disguised.to_parquet(folder / "disguised.parquet")
    for name in LEARNERS:
        mq.learn.save(in_library(name, mq.tally(disguised, policy)), folder / f"{name}.json")
    return folder


@pytest.fixture
def world(frozen, tmp_path):
    """Return a copy that a test may write to."""
    for path in frozen.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def learnt(world, name, *options, data="disguised.csv"):
    return ["learn", name, world / data, "-p", world / "policy.yaml", *LEARNERS[name], *options]


@pytest.mark.parametrize("command", ["learn", *(f"learn {name}" for name in LEARNERS), "predict"])
def test_help_of_every_command(command):
    assert f"{command} [OPTIONS]" in ok(*command.split(), "--help").stdout


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("data", ["disguised.csv", "disguised.parquet"])
def test_json_is_the_model_that_the_library_learns(world, name, data):
    printed = json.loads(ok(*learnt(world, name, "--json", data=data)).stdout)
    assert printed == json.loads((world / f"{name}.json").read_text())


@pytest.mark.parametrize("name", LEARNERS)
def test_the_summary_is_printed_and_the_model_saved(world, name):
    told = ok(*learnt(world, name, "--out", world / "model.json"))
    model = in_library(name, mq.tally(world / "disguised.csv", mq.Policy.load(world / "policy.yaml")))
    assert told.stdout == model.summary() + "\n"
    assert (world / "model.json").read_bytes() == (world / f"{name}.json").read_bytes()
    assert "does not say under which policy" in told.stderr  # pandas wrote a file without metadata
    before = files(world)
    assert "exists already" in refused(*learnt(world, name, "--out", world / "model.json"))
    ok(*learnt(world, name, "--out", world / "model.json", "--overwrite"))
    assert files(world) == before


@pytest.mark.parametrize("name", LEARNERS)
def test_clear_records_are_learnt_without_noise(world, name):
    printed = json.loads(ok(*learnt(world, name, "--clear", "--json", data="people.csv")).stdout)
    clear = people()[["smoker", "age", "cough", "asthma"]]
    source = mq.tally(clear, schema=mq.Policy.load(world / "policy.yaml").schema)
    assert printed == json.loads(json.dumps(in_library(name, source).to_dict()))


@pytest.mark.parametrize(
    ("name", "ending", "start"),
    [*((name, "svg", b"<?xml") for name in LEARNERS), ("tree", "png", b"\x89PNG"), ("tree", "pdf", b"%PDF")],
)
def test_pictures(world, name, ending, start):
    ok(*learnt(world, name, "--plot", world / f"picture.{ending}"))
    assert (world / f"picture.{ending}").read_bytes().startswith(start)
    assert "exists already" in refused(*learnt(world, name, "--plot", world / f"picture.{ending}"))
    assert "a plot ends in" in refused(*learnt(world, name, "--plot", world / "picture.doc"))


def test_weights_and_ids_reach_the_source(world):
    frame = pd.read_csv(world / "disguised.csv")
    frame.assign(weight=np.where(frame["age"] == 0, 3.0, 1.0)).to_csv(world / "weighted.csv", index=False)
    options = ["--weights", "weight", "--id", "who", "--json"]
    printed = json.loads(ok(*learnt(world, "naive-bayes", *options, data="weighted.csv")).stdout)
    policy = mq.Policy.load(world / "policy.yaml")
    source = mq.tally(world / "weighted.csv", policy, weights="weight")
    assert printed == json.loads(json.dumps(in_library("naive-bayes", source).to_dict()))
    assert printed != json.loads((world / "naive-bayes.json").read_text())
    pd.concat([frame, frame.head(1)]).to_csv(world / "twice.csv", index=False)
    assert "repeat a person" in refused(*learnt(world, "naive-bayes", "--id", "who", data="twice.csv"))


def test_options_of_the_learners_reach_them(world):
    policy = mq.Policy.load(world / "policy.yaml")
    source = mq.tally(world / "disguised.csv", policy)
    learn = mq.learn
    cases = [
        ("network --prior 2", learn.bayesian_network(source, parents_of(world), prior=2)),
        (
            "network --equivalent-size 8 --nonnegative",
            learn.bayesian_network(source, parents_of(world), equivalent_size=8, nonnegative=True),
        ),
        (
            (
                "structure --order age,smoker,cough,asthma --score k2 --max-parents 1 "
                "--correction eta:0.99 --required smoker->cough --forbidden age->asthma"
            ),
            learn.structure(
                source,
                ["age", "smoker", "cough", "asthma"],
                score="k2",
                max_parents=1,
                correction=learn.scores.Eta(0.99),
                required=[("smoker", "cough")],
                forbidden=[("age", "asthma")],
            ),
        ),
        (
            "structure --correction constant:64 --restarts 1 --seed 3 --tabu 2",
            learn.structure(source, correction=learn.scores.Constant(64), restarts=1, seed=3, tabu=2),
        ),
        (
            "structure --max-parents 1 --resample 4 --seed 2",
            learn.structure(source, max_parents=1).with_frequencies(
                learn.resampled_network(source, samples=4, seed=2, max_parents=1).frequency
            ),
        ),
        (
            "structure --correction none --score aic",
            learn.structure(source, correction=learn.scores.Uncorrected(), score="aic"),
        ),
        (
            "naive-bayes --features age,asthma --alpha 3",
            learn.naive_bayes(source, "smoker", ["age", "asthma"], 3),
        ),
        (
            "tree --criterion gain_ratio --max-depth 2 --min-records 300 --significance 1 --prune 0.25",
            learn.decision_tree(
                source,
                "smoker",
                criterion="gain_ratio",
                max_depth=2,
                min_records=300,
                significance=None,
                prune=0.25,
            ),
        ),
        (
            "linear --loss squares --scores age=0,1,5 --scores asthma=indicator --ridge 2 --counts clip",
            learn.linear_classifier(
                source,
                "smoker",
                loss="squares",
                scores={"age": [0, 1, 5], "asthma": "indicator"},
                ridge=2,
                counts="clip",
            ),
        ),
        (
            "linear --loss pocket --steps 50 --seed 4",
            learn.linear_classifier(source, "smoker", loss="pocket", steps=50, seed=4),
        ),
        (
            (
                "rules --min-confidence 0.7 --max-len 2 --lhs age --lhs asthma --rhs smoker=no "
                "--items age=0 --items smoker --items asthma=false --level 0.9"
            ),
            learn.association_rules(
                source,
                0.1,
                0.7,
                max_len=2,
                lhs=["age", "asthma"],
                rhs=[("smoker", "no")],
                items=[("age", 0), "smoker", ("asthma", False)],
                level=0.9,
            ),
        ),
    ]
    for text, model in cases:
        name, *options = text.split()
        printed = json.loads(ok(*learnt(world, name, *options, "--json")).stdout)
        assert printed == json.loads(json.dumps(model.to_dict())), name


def parents_of(world):
    return mq.learn.load(world / "network.json").structure


def test_the_structure_may_come_from_files(world):
    wanted = json.loads((world / "network.json").read_text())
    (world / "plain.json").write_text('{"cough": ["smoker"], "asthma": ["smoker", "age"]}')
    (world / "old.bif").write_text(mq.learn.load(world / "network.json").project().to_bif())
    for file in ("plain.json", "network.json", "old.bif"):
        arguments = ["learn", "network", world / "disguised.csv", "-p", world / "policy.yaml", "--json"]
        printed = json.loads(ok(*arguments, "--structure", world / file).stdout)
        assert {node["variable"]["name"]: node["parents"] for node in printed["nodes"]} == {
            node["variable"]["name"]: node["parents"] for node in wanted["nodes"]
        }, file
    found = mq.learn.load(world / "structure.json").structure
    printed = json.loads(ok(*arguments, "--structure", world / "structure.json").stdout)
    assert {node["variable"]["name"]: tuple(node["parents"]) for node in printed["nodes"]} == found


def test_the_best_rules_are_shown(world):
    text = ok(*learnt(world, "rules", "--rows", "2", "--sort", "support")).stdout
    found = mq.learn.load(world / "rules.json")
    assert text == found.summary(2, "support") + "\n"
    assert text != found.summary() + "\n"


def test_warnings_are_lines(world):
    frame = people().assign(age=0)
    mq.simulate(frame, mq.Policy.load(world / "policy.yaml"), seed=1).to_csv(world / "young.csv", index=False)
    told = ok(*learnt(world, "network", data="young.csv")).stderr.splitlines()
    assert all(line.startswith("masquerade: ") for line in told)
    assert any(line.startswith("masquerade: warning: ") and "configurations" in line for line in told)


def test_disguised_records_are_not_taken_for_clear_ones(world):
    ok("disguise", world / "people.csv", "-p", world / "policy.yaml", "-o", world / "own.csv")
    assert "note:" not in ok(*learnt(world, "naive-bayes", data="own.csv")).stderr
    assert "omit --clear" in refused(*learnt(world, "naive-bayes", "--clear", data="own.csv"))
    (world / "other.yaml").write_text(POLICY.replace("0.2", "0.3"))
    line = refused("learn", "tree", world / "own.csv", "-p", world / "other.yaml", "--target", "smoker")
    assert "this one is" in line


BAD = [
    (["naive-bayes", "--target", "smokr"], "Did you mean 'smoker'?"),
    (["tree", "--target", "smokr"], "--target: the policy has no variable"),
    (["linear", "--target", "smokr"], "--target: the policy has no variable"),
    (["naive-bayes", "--target", "smoker", "--features", "cough,smoker"], "cannot be one of the features"),
    (["naive-bayes", "--target", "smoker", "--features", "cough,,age"], "given as A,B"),
    (["naive-bayes", "--target", "smoker", "--features", "age,age"], "twice"),
    (["naive-bayes", "--target", "smoker", "--alpha", "-1"], "'alpha'"),
    (["tree", "--target", "smoker", "--significance", "0"], "--significance"),
    (["tree", "--target", "smoker", "--max-depth", "-1"], "max_depth"),
    (["linear", "--target", "smoker", "--ridge", "2"], "pocket"),
    (["linear", "--target", "smoker", "--scores", "age=1,2"], "3 finite numbers"),
    (["linear", "--target", "smoker", "--scores", "age"], "VARIABLE=1,2,5"),
    (["rules", "--min-support", "0"], "--min-support must be above 0"),
    (["rules", "--min-confidence", "0"], "--min-confidence must be above 0"),
    (["rules", "--rhs", "smoker=maybe"], "'maybe' is not a category of 'smoker'"),
    (["rules", "--items", "drinker=yes"], "no variable 'drinker'"),
    (["rules", "--level", "1"], "--level"),
    (["network"], "--structure"),
    (["network", "--structure", "cough<-smoker; smoker<-cough"], "cycle"),
    (["network", "--structure", "cough<-cough"], "cycle"),
    (["network", "--structure", "cough<-smokr"], "Did you mean 'smoker'?"),
    (["network", "--structure", "cough<-smoker; cough<-age"], "twice"),
    (["network", "--structure", "cough<-smoker<-age"], "CHILD<-PARENT"),
    (["network", "--structure", "  "], "names no node"),
    (["network"], '--structure or --order is missing, such as --structure "cough<-smoker; '),
    (["network", "--structure", "missing.json"], "missing.json: cannot be read (No such file or directory)"),
    (["network", "--structure", "cough", "--prior", "-1"], "--prior"),
    (["structure", "--order", "smoker,age"], "every variable once"),
    (["structure", "--correction", "constant"], "constant:C"),
    (["structure", "--correction", "eta:2"], "(0, 1]"),
    (["structure", "--required", "smoker"], "'PARENT->CHILD'"),
    (["structure", "--required", "age->cough", "--forbidden", "age->cough"], "both required and forbidden"),
    (["structure", "--required", "age->cough", "--required", "cough->age"], "cycle"),
]


@pytest.mark.parametrize(("options", "said"), BAD, ids=lambda value: " ".join(value)[:60])
def test_bad_input_is_one_line_and_writes_nothing(world, options, said):
    before = files(world)
    name, *rest = options
    data = ["learn", name, world / "disguised.csv", "-p", world / "policy.yaml", *rest]
    assert said in refused(*data, "--out", world / "model.json")
    assert files(world) == before


def test_files_that_cannot_be_written_are_refused_before_any_work(world):
    line = refused(*learnt(world, "tree", "--out", world / "model.pkl", data="missing.csv"))
    assert "end in .json" in line
    line = refused(*learnt(world, "tree", "--out", world / "no" / "model.json", data="missing.csv"))
    assert "no directory" in line


def test_structures_in_bad_files_are_refused(world):
    cases = {
        "broken.json": ("{", "line 1: not valid JSON"),
        "list.json": ("[]", "not a model"),
        "empty.json": ("{}", "names no node"),
        "odd.json": ('{"cough": "smoker"}', "must be a list of names"),
        "cycle.json": ('{"cough": ["smoker"], "smoker": ["cough"]}', "cycle"),
        "bytes.json": ("\x00", "not valid JSON"),
    }
    for name, (text, said) in cases.items():
        (world / name).write_text(text)
        arguments = ["learn", "network", world / "disguised.csv", "-p", world / "policy.yaml"]
        assert said in refused(*arguments, "--structure", world / name)
    assert "has no structure" in refused(*arguments, "--structure", world / "tree.json")


# predictions


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_predictions_of_clear_rows_are_the_models(world, name):
    rows = rows_of(ok("predict", world / "people.csv", "-m", world / f"{name}.json", "--id", "who").stdout)
    model, clear = mq.learn.load(world / f"{name}.json"), people()
    assert list(rows[0]) == ["who", "smoker", "P(smoker=yes)", "P(smoker=no)"]
    assert [row["who"] for row in rows] == [str(who) for who in clear["who"]]
    assert [row["smoker"] for row in rows] == model.predict(clear).tolist()
    shown = np.array([[float(row["P(smoker=yes)"]), float(row["P(smoker=no)"])] for row in rows])
    assert np.array_equal(shown, model.predict_proba(clear))


def test_predictions_of_disguised_rows_look_through_the_policy(world):
    arguments = [world / "disguised.csv", "-m", world / "naive-bayes.json", "-p", world / "policy.yaml"]
    told = ok("predict", *arguments, "--out", world / "predictions.csv")
    assert told.stdout == ""
    assert "6,000 rows predicted" in told.stderr
    ok("predict", *arguments, "--out", world / "predictions.parquet")
    table = parquet.read_table(world / "predictions.parquet").to_pandas()
    policy = mq.Policy.load(world / "policy.yaml")
    view = mq.evaluate.disguised_view(mq.learn.load(world / "naive-bayes.json"), policy)
    disguised = pd.read_csv(world / "disguised.csv")
    assert table["smoker"].tolist() == view.predict(disguised).tolist()
    assert np.array_equal(table.iloc[:, 1:].to_numpy(), view.predict_proba(disguised))
    assert len(rows_of((world / "predictions.csv").read_text())) == len(disguised)
    source = mq.tally(world / "disguised.csv", policy)
    for name, model in {
        "seen-tree": mq.learn.decision_tree(source, "smoker", significance=None, max_depth=1),
        "seen-line": mq.learn.linear_classifier(source, "smoker", loss="logistic"),
    }.items():
        mq.learn.save(model, world / f"{name}.json")
        rows = rows_of(
            ok("predict", arguments[0], "-m", world / f"{name}.json", "-p", world / "policy.yaml").stdout
        )
        view = mq.evaluate.disguised_view(model, policy)
        assert [row["smoker"] for row in rows] == view.predict(disguised).tolist()
    before = files(world)
    assert "exists already" in refused("predict", *arguments, "--out", world / "predictions.csv")
    line = refused("predict", *arguments, "--out", world / "disguised.csv", "--overwrite")
    assert "also the input" in line
    assert files(world) == before


def test_models_without_probabilities_and_with_other_labels(world):
    policy = mq.Policy.load(world / "policy.yaml")
    source = mq.tally(world / "disguised.csv", policy)
    mq.learn.save(mq.learn.linear_classifier(source, "age"), world / "pocket.json")
    mq.learn.save(mq.learn.naive_bayes(source, "asthma"), world / "asthma.json")
    rows = rows_of(ok("predict", world / "people.csv", "-m", world / "pocket.json").stdout)
    assert list(rows[0]) == ["age"]
    assert {row["age"] for row in rows} <= {"0", "1", "2"}
    rows = rows_of(ok("predict", world / "people.csv", "-m", world / "asthma.json").stdout)
    assert list(rows[0]) == ["asthma", "P(asthma=true)", "P(asthma=false)"]
    assert {row["asthma"] for row in rows} == {"true", "false"}


def test_clear_rows_may_be_read_by_the_policy(world):
    bins = POLICY.replace(
        "{categories: [0, 1, 2]}", "{bins: [0, 1, 2, 3], channel: {kind: symmetric, p: 0.1}}"
    ).replace("limit: {gamma: 1000}", "limit: {gamma: 5832}")
    (world / "bins.yaml").write_text(bins)
    policy = mq.Policy.load(world / "bins.yaml")
    source = mq.tally(mq.simulate(people(), policy, seed=5), policy)
    model = mq.learn.naive_bayes(source, "smoker")
    mq.learn.save(model, world / "bins.json")
    arguments = ["predict", world / "people.csv", "-m", world / "bins.json"]
    rows = rows_of(ok(*arguments, "-p", world / "bins.yaml", "--clear").stdout)
    labels = np.array(model.schema["age"].categories)[people()["age"]]
    assert [row["smoker"] for row in rows] == model.predict(people().assign(age=labels)).tolist()
    assert "column 'age', rows 1, 2" in refused(*arguments)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_test_on_disguised_records_is_the_corrected_one(world, name):
    policy = mq.Policy.load(world / "policy.yaml")
    model = mq.learn.load(world / f"{name}.json")
    wanted = mq.evaluate.performance(model, mq.tally(world / "disguised.csv", policy))
    arguments = ["-m", world / f"{name}.json", "--test"]
    disguised = ["predict", world / "disguised.csv", "-p", world / "policy.yaml", *arguments]
    assert json.loads(ok(*disguised, "--json").stdout) == json.loads(json.dumps(wanted.to_dict()))
    assert ok(*disguised).stdout == wanted.summary() + "\n"
    true = float(np.mean(model.predict(people()) == people()["smoker"]))
    clear = json.loads(ok("predict", world / "people.csv", *arguments, "--json").stdout)
    measures = {row["measure"]: row for row in clear["rows"]}
    assert measures["accuracy"]["estimate"] == pytest.approx(true, abs=1e-12)
    shares = people()["smoker"].value_counts(normalize=True)
    assert measures["accuracy"]["trivial"] == pytest.approx(shares.max(), abs=1e-12)
    common = json.loads(ok("predict", world / "people.csv", *arguments, "--json").stdout)["notes"][0]
    assert f"predicts {shares.idxmax()} for every record" in common
    named = ok("predict", world / "people.csv", *arguments, "--positive", str(shares.idxmax())).stdout
    assert named.startswith(f"Test of a classifier of smoker = {shares.idxmax()}, n = 6,000\n")
    options = ["-p", world / "policy.yaml", "--clear", "--json"]
    assert json.loads(ok("predict", world / "people.csv", *arguments, *options).stdout) == clear


def test_a_useless_accuracy_is_warned_about(world):
    pd.read_csv(world / "disguised.csv").head(40).to_csv(world / "few.csv", index=False)
    arguments = ["predict", world / "few.csv", "-p", world / "policy.yaml", "-m", world / "naive-bayes.json"]
    told = ok(*arguments, "--test")
    assert "warning: The accuracy is useless" in told.stderr
    notes = json.loads(ok(*arguments, "--test", "--json").stdout)["notes"]
    assert notes[-1].startswith("The accuracy is useless")


def test_tests_and_predictions_together(world):
    arguments = ["predict", world / "people.csv", "-m", world / "tree.json", "--test"]
    assert ok(*arguments, "-o", world / "predictions.csv").stdout == ok(*arguments).stdout
    assert len(rows_of((world / "predictions.csv").read_text())) == 6000


def test_standard_input(world):
    text = (world / "people.csv").read_text()
    assert ok("predict", "-", "-m", world / "tree.json", stdin=text).stdout == (
        ok("predict", world / "people.csv", "-m", world / "tree.json").stdout
    )
    both = ["predict", "-", "-m", world / "tree.json", "--test", "-o", world / "out.csv"]
    assert "read only once" in refused(*both, stdin=text)


def changed(world, name, **values):
    model = json.loads((world / f"{name}.json").read_text()) | values
    (world / "changed.json").write_text(json.dumps(model))
    return world / "changed.json"


def test_models_that_are_none_are_refused(world):
    asked = ["predict", world / "people.csv", "--out", world / "predictions.csv", "-m"]
    (world / "broken.json").write_text("{")
    (world / "empty.csv").write_text("smoker,age,cough,asthma\n")
    before = files(world) | {"changed.json"}
    assert "model format 2" in refused(*asked, changed(world, "tree", masquerade_model=2))
    assert "unknown kind of model 'forest'" in refused(*asked, changed(world, "tree", kind="forest"))
    assert "lacks" in refused(*asked, changed(world, "tree", kind="naive_bayes"))
    assert "not valid JSON" in refused(*asked, world / "broken.json")
    assert "cannot be read" in refused(*asked, world / "missing.json")
    for name in ("structure", "rules", "network"):
        assert "predicts no target" in refused(*asked, world / f"{name}.json")
    assert files(world) == before


def test_rows_that_do_not_fit_are_refused(world):
    model = ["-m", world / "naive-bayes.json"]
    asked = ["--out", world / "predictions.csv", *model]
    policy = ["-p", world / "policy.yaml"]
    people().assign(cough="perhaps").to_csv(world / "perhaps.csv", index=False)
    people()[["age", "asthma"]].to_csv(world / "few.csv", index=False)
    (world / "none.csv").write_text("smoker,age,cough,asthma\n")
    ok("disguise", world / "people.csv", *policy, "-o", world / "own.csv")
    (world / "other.yaml").write_text(POLICY.replace("[0, 1, 2]", "[0, 1, 2, 3]"))
    before = files(world)
    line = refused("predict", world / "perhaps.csv", *asked)
    assert "column 'cough', rows 1, 2" in line
    assert "perhaps'" not in line
    assert "cough" in refused("predict", world / "few.csv", *asked)
    assert "--policy" in refused("predict", world / "own.csv", *asked)
    assert "omit --clear" in refused("predict", world / "own.csv", *asked, *policy, "--clear")
    assert "not the same in the model" in refused(
        "predict", world / "disguised.csv", *asked, "-p", world / "other.yaml"
    )
    assert "give --test" in refused("predict", world / "people.csv", *model, "--json")
    assert "give --test" in refused("predict", world / "people.csv", *model, "--positive", "yes")
    assert "give --policy" in refused("predict", world / "people.csv", *model, "--clear")
    assert "into a file" in refused("predict", world / "people.csv", *model, "--test", "-o", "-")
    assert "no rows to predict" in refused("predict", world / "none.csv", *asked)
    assert files(world) == before


def test_rows_that_are_missing_are_refused_until_accepted(frozen, tmp_path):
    data, rules = tmp_path / "rows.parquet", frozen / "policy.yaml"
    marked = with_metadata(parquet.read_table(frozen / "disguised.parquet"), INCOMPLETE)
    parquet.write_table(marked, data)
    model = frozen / "tree.json"
    asked = {
        "estimate": ["estimate", data, "-p", rules, "--by", "smoker"],
        **{name: ["learn", name, data, "-p", rules, *rest] for name, rest in LEARNERS.items()},
        "predict": ["predict", data, "-p", rules, "-m", model, "--test"],
    }
    for words in asked.values():
        line = refused(*words)
        assert "7 of 9 reports did not open" in line
        assert "--accept-incomplete" in line
    for name in ("estimate", "naive-bayes", "predict"):
        told = ok(*asked[name], "--accept-incomplete")
        assert "note: rows are missing, not at random: 7 of 9 reports" in " ".join(told.stderr.split())
        assert told.stdout


def test_rules_from_dealt_blocks_are_as_wide_as_the_blocks(tmp_path):
    names = ["q0", "q1", "q2", "q3"]
    listed = "\n".join(f'  {name}: {{categories: ["yes", "no"]}}' for name in names)
    blocks = f"blocks:\n- {{variables: [{', '.join(names)}], k: 3, gamma: 20}}\n"
    rules = tmp_path / "policy.yaml"
    rules.write_text(f"masquerade: 1\nvariables:\n{listed}\n{blocks}", encoding="utf-8")
    rng = np.random.default_rng(1)
    first = rng.random(20_000) < 0.4
    columns = [first, first ^ (rng.random(20_000) < 0.1), rng.random(20_000) < 0.5, rng.random(20_000) < 0.3]
    frame = pd.DataFrame({name: np.where(own, "yes", "no") for name, own in zip(names, columns, strict=True)})
    mq.simulate(frame, mq.Policy.load(rules), 1).to_csv(tmp_path / "reports.csv", index=False)
    asked = ["learn", "rules", tmp_path / "reports.csv", "--policy", rules, "--min-support", "0.1"]
    found = json.loads(ok(*asked, "--max-len", "3", "--json").stdout)
    assert "q1" in json.dumps(found)
    line = refused(*asked, "--max-len", "4")  # rules of four variables do not follow from blocks of three
    assert "Tables of up to 3 variables of q0, q1, q2, q3 follow." in line
    stopped = " ".join(ok(*asked).stderr.split())  # nobody asked for four by name
    assert "Supports of sets of more than 3 items cannot be estimated from these reports" in stopped
