"""`masquerade collect` from end to end, and the client's part that survives an interruption."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter

import pandas as pd
import pytest
import typer
from tests.services.threshold.world import CLASSES, K, World, labels
from typer.testing import CliRunner

from masquerade.cli.app import Commands
from masquerade.cli.collect import collect_app
from masquerade.core.errors import FileError, InputError
from masquerade.services.threshold.client import read_credential, read_row, read_rows
from masquerade.services.threshold.example import draw_example_rows
from masquerade.services.threshold.settings import load_form

app = typer.Typer(cls=Commands)
app.add_typer(collect_app, name="collect")


def run(*words):
    return CliRunner().invoke(app, ["collect", *map(str, words)])


def ok(*words):
    done = run(*words)
    assert done.exit_code == 0, done.output
    return done


def refused(*words):
    done = run(*words)
    assert done.exit_code == 2, done.output
    said = [line for line in done.stderr.splitlines() if not line.startswith("{")]  # servers log there, too
    assert len(said) == 1, said
    return said[0]


def test_a_whole_collection_by_commands(tmp_path):
    world = World(tmp_path / "world")
    files, credentials = world.files, world.folder / "credentials"
    names = tmp_path / "names.txt"
    names.write_text("".join(f"{row['person']}\n" for row in world.rows[1:]))
    first = tmp_path / "row.json"
    first.write_text(json.dumps(labels(world.rows[0])))
    table = tmp_path / "others.csv"
    pd.DataFrame(world.rows[1:]).to_csv(table, index=False)
    own = ("--collection", files["collection"], "--credential", tmp_path / "alone" / "P000.credential")
    others = ("--collection", files["collection"], "--credential", credentials)
    with world.served():
        ok("enrol", "--from", names, "--office", files["office"], "--out", credentials)
        told = ok("enrol", "P000", "--office", files["office"], "--out", tmp_path / "alone", "--json")
        assert json.loads(told.stdout) == {"credentials": [str(tmp_path / "alone" / "P000.credential")]}
        assert len(list(credentials.iterdir())) == 59
        assert all(path.stat().st_mode & 0o077 == 0 for path in credentials.iterdir())
        waiting = run("submit", first, *own)
        assert waiting.exit_code == 1
        assert "still open" in waiting.stderr
        early = run("submit", table, *others, "--json")
        assert (early.exit_code, json.loads(early.stdout)) == (
            1,
            {"asked": 59, "delivered": 0, "waiting": 59},
        )
        status = json.loads(ok("status", "--node", files["randomness"], "--json").stdout)
        assert (status["state"], status["evaluations"]) == ("open", 60)
        out = tmp_path / "rows.csv"
        assert "still open" in refused("open", "--node", files["collector"], "--out", out)
        closed = ok("close", "--node", files["randomness"])
        assert closed.stdout == "epoch 'spring' is closed after 60 evaluations; its key is destroyed.\n"
        assert "1 reported" in ok("submit", first, *own, "--wait", 600).stderr
        late = json.loads(ok("submit", table, *others, "--json").stdout)
        assert late == {"asked": 59, "delivered": 59, "waiting": 0}
        assert "taking, 60 evaluations, 60 reports" in ok("status", "--node", files["collector"]).stdout
        opened = ok("open", "--node", files["collector"], "--out", out)
        assert "51 rows of 3 classes" in opened.stderr
        assert "9 of 60 reports did not open" in opened.stderr
        assert "exists already" in refused("open", "--node", files["collector"], "--out", out)
        figures = json.loads(
            ok("open", "--node", files["collector"], "--out", tmp_path / "rows.parquet", "--json").stdout
        )
        assert figures["opened"] == 51
        assert "opening" not in figures
        assert figures["guarantee"]["assumptions"]
    frame = pd.read_csv(out, keep_default_na=False)
    sizes = Counter(zip(frame["age"], frame["sex"], frame["region"], strict=True))
    assert sizes == {quasi: size for quasi, size in CLASSES.items() if size >= K}
    assert Counter(pd.read_parquet(tmp_path / "rows.parquet").itertuples(index=False)) == Counter(
        frame.itertuples(index=False)
    )
    assert "not running on this machine" in refused_soon(files["collector"])


def refused_soon(file):
    """Ask for a server that does not run, without waiting long for it."""
    from masquerade.services.common.client import Operator  # noqa: PLC0415
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.threshold.settings import CollectorSettings  # noqa: PLC0415

    with pytest.raises(InputError) as error:
        Operator(load(file, CollectorSettings, environment={}), wait=0.0).ask("status", {})
    return str(error.value)


def test_a_server_announces_its_notice_and_ends_in_order(tmp_path):
    world = World(tmp_path / "world")
    line = "from masquerade.cli.collect import collect_app; collect_app()"
    command = [sys.executable, "-c", line, "randomness", "serve", str(world.files["randomness"])]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603  (our own)
        try:
            assert "masquerade randomness listens at https://127.0.0.1:" in process.stderr.readline()
            announced = re.search(r"to be published: ([0-9a-f]{64})", process.stderr.readline())[1]
            status = json.loads(ok("status", "--node", world.files["randomness"], "--json").stdout)
            assert status["notice"] == announced
        finally:
            process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(600) == 0
    assert not (world.folder / "randomness" / "state" / "address").exists()


def test_the_example_is_written_with_its_commands(tmp_path):
    done = ok("example", tmp_path / "try", "--n", 30, "-k", 3)
    assert [line.split()[2] for line in done.stdout.splitlines()] == [
        "randomness", "collector", "status", "enrol", "submit", "close", "submit", "open",
    ]  # fmt: skip
    rows = read_rows(tmp_path / "try" / "people.csv", load_form(tmp_path / "try" / "form.yaml"))
    assert [{"person": person, **row} for person, row in rows] == draw_example_rows(30)
    assert "exists already" in refused("example", tmp_path / "try")


def test_settings_of_the_other_server_are_refused(tmp_path):
    world = World(tmp_path / "world")
    said = refused("collector", "serve", world.files["randomness"])
    assert "this is a file of type 'randomness', not 'collector'" in said
    said = refused("close", "--node", world.files["collector"])
    assert "this is a file of type 'collector', not 'randomness'" in said


def test_rows_and_credentials_from_files(tmp_path):
    form_file = tmp_path / "form.yaml"
    form_file.write_text("masquerade: 1\nquasi: {age: [1, 2]}\nsensitive: {ill: [true, false]}\n")
    form = load_form(form_file)
    table = tmp_path / "rows.csv"
    table.write_text("person,ill,age\nanna,true,2\nben,false,1\n")
    assert read_rows(table, form) == [("anna", {"age": 2, "ill": True}), ("ben", {"age": 1, "ill": False})]
    table.write_text("person,ill,age\nanna,true,2\nanna,false,1\n")
    with pytest.raises(InputError, match="several rows"):
        read_rows(table, form)
    table.write_text("person,ill,age\nanna,true,77\n")
    with pytest.raises(InputError) as error:
        read_rows(table, form)
    assert "77" not in str(error.value)
    for text in ("[1]", "{", ""):
        (tmp_path / "row.json").write_text(text)
        with pytest.raises(FileError, match="one JSON object"):
            read_row(tmp_path / "row.json")
    secret = tmp_path / "anna.credential"
    secret.write_text("zz")
    secret.chmod(0o600)
    with pytest.raises(FileError, match="is not a credential"):
        read_credential(secret)
    secret.chmod(0o644)
    with pytest.raises(FileError, match="may be read by others"):
        read_credential(secret)
    with pytest.raises(FileError, match="cannot be read"):
        read_credential(tmp_path / "missing")
