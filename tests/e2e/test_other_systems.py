"""The library and people's devices need nothing that only Linux has; services say what they need."""

from __future__ import annotations

import subprocess
import sys

# what Windows lacks, taken away before anything of ours is loaded
ELSEWHERE = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "fchmod", "geteuid", "getuid", "pread", "pwrite", "fork", "sched_getaffinity"):
    delattr(os, name)
"""
LIBRARY = """
import pandas as pd
import masquerade as mq
people = pd.DataFrame({"smoker": ["yes"] * 200 + ["no"] * 800, "region": ["north", "south"] * 500})
schema = mq.Schema({"region": ["north", "south"], "smoker": ["yes", "no"]})
policy = mq.Policy.build(schema, {"smoker": mq.channels.binary("1/4")})
policy.save("policy.yaml")
people.to_csv("people.csv", index=False)
mq.disguise_file("people.csv", "disguised.csv", mq.Policy.load("policy.yaml"))
source = mq.tally("disguised.csv", policy)
network = mq.learn.bayesian_network(source, {"region": (), "smoker": ("region",)})
mq.learn.save(network, "model.json")
assert mq.learn.load("model.json").summary() == network.summary()
import masquerade.protocols.wire.durable_store as durable
claims = durable.Claims.open("ledger")
claims.claim([durable.Claim("key", b"1")])
print("done")
"""
COMMAND = """
from masquerade.cli import main
sys.argv = ["masquerade", *sys.argv[1:]]
main()
"""
SETTINGS = """
masquerade: 1
name: miner
identity: identity.key
operator_token: token
state: state
"""


def elsewhere(code, *arguments, folder):
    """Run code as on another system."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", ELSEWHERE + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def test_the_library_disguises_learns_and_saves(tmp_path):
    done = elsewhere(LIBRARY, folder=tmp_path)
    assert done.stdout == "done\n", done.stderr
    assert (tmp_path / "model.json").exists()


def test_a_service_says_what_it_needs(tmp_path):
    (tmp_path / "miner.yaml").write_text(SETTINGS)
    for made in (("token", "token"), ("identity", "identity.key")):
        assert elsewhere(COMMAND, "tls", *made, folder=tmp_path).returncode == 0
    done = elsewhere(COMMAND, "miner", "serve", "miner.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "Services need Linux or macOS; people's devices and the library do not."
    )
    assert len(done.stderr.strip().splitlines()) == 1
