"""What deploy/ says is what the commands understand; container engines are not started here."""

import configparser
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.e2e.test_cli_app import ok, refused
from tests.e2e.test_docs import known_commands

from masquerade.services.common.example_deployment import unit_text
from masquerade.services.common.settings import load
from masquerade.services.parties.settings import MinerSettings, PartySettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVED = {
    "party": ("a party that holds records", ("party", "serve"), "party.yaml"),
    "miner": ("a node without records", ("miner", "serve"), "miner.yaml"),
    "count": ("the miner or a leader of a count", ("count", "serve"), "miner.yaml"),
    "collector": ("the collector of a collection", ("collect", "collector", "serve"), "collector.yaml"),
    "randomness": (
        "the randomness server of a collection",
        ("collect", "randomness", "serve"),
        "randomness.yaml",
    ),
    "survey": ("the collector of a survey", ("survey", "serve"), "collector.yaml"),
}
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
    assert names == set(SERVED)


def test_units_are_what_the_examples_write():
    for kind, (described, command, file) in SERVED.items():
        text = (DEPLOY / "systemd" / f"masquerade-{kind}.service").read_text(encoding="utf-8")
        assert text == unit_text(kind, described, command, file, moves_state=kind != "survey"), kind


def test_every_host_of_an_example_has_a_complete_folder_with_the_only_copy_of_its_key(tmp_path):
    hosts = {
        "north": "10.0.0.1",
        "south": "10.0.0.2:9443",
        "registry": "registry.example",
        "university": "10.0.0.4",
    }
    folder = tmp_path / "try"
    named = ",".join(f"{name}={host}" for name, host in hosts.items())
    ok("session", "example", folder, "--n", 20, "--hosts", named)
    keys = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert {path.relative_to(folder).as_posix() for path in keys} == {
        "tls/ca.key", *(f"{name}/{name}.key" for name in hosts)
    }  # fmt: skip
    assert len({path.read_bytes() for path in keys}) == len(keys)
    assert not {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in keys} - {0}
    for name, host in hosts.items():
        moved = tmp_path / "moved" / name
        shutil.copytree(folder / name, moved)  # alone, as on its own machine
        role = "miner" if name == "university" else "party"
        assert "is valid" in ok("config", "check", moved / f"{role}.yaml").stdout
        settings = yaml.safe_load((moved / f"{role}.yaml").read_text())
        port = settings["listen"]["port"]
        assert port == (9443 if name == "south" else 8443)
        assert settings["listen"]["host"] == ("0.0.0.0" if "example" in host else host.split(":")[0])  # noqa: S104
        others = {other: known["url"] for other, known in settings["peers"].items()}
        assert others == {
            other: f"https://{at}" + ("" if ":" in at else ":8443")
            for other, at in hosts.items()
            if other != name
        }
        assert (moved / f"masquerade-{role}.service").read_text() == unit_text(
            role, f"node {name}", (role, "serve"), f"{role}.yaml"
        )
        compose = yaml.safe_load((moved / "compose.yaml").read_text())
        [service] = compose["services"].values()
        path, [file] = check_call(service["command"])
        assert (path, file) == ((role, "serve"), f"/etc/masquerade/{role}.yaml")
        assert service["volumes"][0] == ".:/etc/masquerade:ro"
        assert service["ports"][0].endswith(f"{port}:{port}")
        probe = settings["listen"]["probe"]
        assert f"http://{probe['host']}:{probe['port']}/ready" in service["healthcheck"]["test"][-1]
        load(
            moved / f"{role}.yaml",
            {"party": PartySettings, "miner": MinerSettings}[role],
            environment=service["environment"],
        )  # fmt: skip  (keys that exist)
    refusals = {
        "north=10.0.0.1": "Hosts are missing for south",
        named + ",west=10.0.0.9": "no node 'west'",
        named.replace("10.0.0.4", "10.0.0.1"): "same host and port",
        named.replace("10.0.0.4", "https://x/"): "host of university",
        "north": "named once",
    }
    for text, expected in refusals.items():
        assert expected in refused("session", "example", tmp_path / "other", "--n", 20, "--hosts", text)


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
    states, caches = [], []
    for name, service in values["services"].items():
        path, [settings] = check_call(service["command"])
        assert path[-1] == "serve", name
        mounts = [volume.split(":") for volume in service["volumes"]]
        [config] = [mount for mount in mounts if settings.startswith(f"{mount[1]}/")]
        assert config[2:] == ["ro"]
        states += [mount[0] for mount in mounts if mount[1] == "/var/lib/masquerade"]
        caches += [mount[0] for mount in mounts if mount[1] == "/var/cache/masquerade"]
        assert (service["read_only"], service["user"], service["cap_drop"]) == (True, "10001", ["ALL"])
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert sorted([*states, *caches]) == sorted(values["volumes"])  # one volume each
    assert len(set(states)) == len(set(caches)) == len(values["services"])
    served = {
        (tuple(one["command"][:-1]), Path(one["command"][-1]).name) for one in values["services"].values()
    }
    assert served == {(command, file) for _, command, file in SERVED.values()}  # the same as the units


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
