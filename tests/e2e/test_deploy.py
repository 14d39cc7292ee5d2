"""What deploy/ says is what the commands understand; container engines are not started here."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.e2e.test_docs import known_commands

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/masquerade/bin/masquerade"


def check_call(words):
    """Fail unless these arguments of `masquerade` name a command with its options and one file."""
    path = ()
    while len(words) > len(path) and (*path, words[len(path)]) in known_commands():
        path = (*path, words[len(path)])
    rest = words[len(path) :]
    assert path, words
    assert {word for word in rest if word.startswith("-")} <= known_commands()[path], words
    return path, [word for word in rest if not word.startswith("-")]


def unit(path):
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str
    parser.read(path, encoding="utf-8")
    return parser


def test_there_is_a_unit_for_every_service():
    names = {path.stem.removeprefix("masquerade-") for path in UNITS}
    assert names == {"party", "miner", "collector", "randomness", "survey"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_check_their_settings_then_serve_them(path):
    told = unit(path)["Service"]
    name = path.stem.removeprefix("masquerade-")
    program, *serve = shlex.split(told["ExecStart"])
    checker, *check = shlex.split(told["ExecStartPre"])
    assert program == checker == PROGRAM
    served, [settings] = check_call(serve)
    checked, [looked_at] = check_call(check)
    assert (served[-1], checked) == ("serve", ("config", "check"))
    assert name in served
    assert settings == looked_at
    assert settings.startswith(f"/etc/masquerade/{name}/")
    assert told["User"] not in {"", "root"}
    assert told["StateDirectory"] == f"masquerade/{name}"  # no two services in one state
    assert told["RestartPreventExitStatus"] == "2"
    assert float(told["TimeoutStopSec"]) > 30  # what runs is given half a minute to finish
    assert "MemoryDenyWriteExecute" not in told  # kernels are compiled when they are first needed


def test_systemd_understands_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true")
        (tmp_path / path.name).write_text(
            re.sub(r"(?m)^(User|Group)=.*$", r"\1=root", text), encoding="utf-8"
        )
    told = subprocess.run(  # noqa: S603
        ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (told.returncode, [line for line in told.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


def test_the_compose_example_calls_commands_that_exist_with_files_that_are_mounted():
    values = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    states = []
    for name, service in values["services"].items():
        path, [settings] = check_call(service["command"])
        assert path[-1] == "serve", name
        mounts = [volume.split(":") for volume in service["volumes"]]
        [config] = [mount for mount in mounts if settings.startswith(f"{mount[1]}/")]
        assert config[2:] == ["ro"]
        states += [mount[0] for mount in mounts if mount[1] == "/var/lib/masquerade"]
        assert (service["read_only"], service["user"], service["cap_drop"]) == (True, "10001", ["ALL"])
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert sorted(states) == sorted(values["volumes"])  # one volume each
    assert len(set(states)) == len(values["services"])
    assert {"party", "miner", "survey"} <= {service["command"][0] for service in values["services"].values()}


def test_the_container_file_copies_what_is_there_and_runs_as_nobody_special():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in steps} <= known
    copied = [words.split()[:-1] for word, words in steps if word == "COPY" and "--from" not in words]
    for source in (name for names in copied for name in names):
        assert (ROOT / source).exists(), source
    for requirements in re.findall(r"--requirement (\S+)", text):
        assert (ROOT / requirements).exists()
    assert "--require-hashes" in text
    users = [words for word, words in steps if word == "USER"]
    assert users == ["10001"]
    assert [words for word, words in steps if word == "STOPSIGNAL"] == ["SIGTERM"]
    assert f'["{PROGRAM}"]' in [words for word, words in steps if word == "ENTRYPOINT"]


def test_the_page_names_what_there_is():
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    for name in re.findall(r"deploy/[\w./-]+[\w]", page):
        assert (ROOT / name).exists(), name
    metrics = (ROOT / "src/masquerade/services/common/service.py").read_text(encoding="utf-8")
    for name in re.findall(r"`(masquerade_[a-z_]+)`", page):
        assert f'"{name.removesuffix("_total")}"' in metrics, name
    for line in re.findall(r"^docker run .* masquerade (.+)$", page, flags=re.MULTILINE):
        check_call(shlex.split(line))
