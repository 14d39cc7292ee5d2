"""What a party holds of its records in a session: read, linked by a shared key, drawn and sent part by part.

Each size runs in a process of its own, which does what a party's service does between its first and its last
message to a miner, without the network. What counts is the growth from one size to the next: a process takes
some 200 MiB before it has read anything, and a part of a session and what is made of it takes its own.

python -m benchmarks.party_memory [--json FILE]
"""

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.parties_network import COLUMNS, PARTIES, plan
from benchmarks.timing import json_option, keep

from masquerade.disguising.memo import Memo
from masquerade.protocols.pseudonyms import ROWS_AT_ONCE, keyed_pseudonyms, parts_for
from masquerade.protocols.vertical import CellRequest, RepeatedCells, Site
from masquerade.services.parties.linkage import Linkage
from masquerade.services.parties.local_data import read_local_data
from masquerade.services.parties.settings import DataSettings

SIZES = (100_000, 1_000_000, 4_000_000)
SESSION = bytes(16)


def written(folder, rows):
    """Write the records and the policy of one party."""
    made, party = plan(rows), PARTIES[0]
    made.frames[party][0].to_parquet(folder / "records.parquet", index=False)
    (folder / "policy.json").write_text(json.dumps(made.policies[party].to_dict()), encoding="utf-8")


def memory():
    """Return the memory that this process has and the most that it had, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return [round(int(found[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM")]


def session(folder):
    """Be a party in one session, and print what that took."""
    start, _ = memory()
    files = {"policy": folder / "policy.json", "files": [folder / "records.parquet"], "key": "person"}
    names = [f"{PARTIES[0]}_{i}" for i in range(COLUMNS)]
    data = read_local_data(DataSettings(**files), names, apart=False)
    assert data.digest
    tags = keyed_pseudonyms(data.keys(), bytes(32), SESSION)
    linkage = Linkage.of(None, tags)
    del tags
    assert data.people(linkage.rows)
    for _ in linkage.to_pieces():
        pass
    memo, rows = Memo.kept(folder / "memo.json"), data.rows
    draws = partial(data.draws, memo, data.whole)
    held = RepeatedCells(data.whole.codes, linkage.tags, linkage.rows, draws)
    site, parts = Site(PARTIES[0], data.policy, [held], SESSION), parts_for(rows, ROWS_AT_ONCE)
    for part in range(parts):
        site.receive(CellRequest(SESSION, "miner", (), part, parts).encode())
    end, most = memory()
    kept = sum(column.nbytes for column in data.whole.codes.values()) + data.whole.keys.nbytes
    kept += linkage.rows.nbytes + linkage.tags.nbytes
    said = {"rows": rows, "mib_at_start": start, "mib_at_the_end": end, "most_mib": most}
    print(json.dumps(said | {"bytes_of_a_record": round(kept / rows, 1)}))


def measured(rows):
    """Return what a party of so many records takes."""
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), rows)
        command = [sys.executable, "-m", "benchmarks.party_memory", "--as", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        return json.loads(done.stdout)


def main():
    """Measure parties of several sizes, one after the other."""
    if sys.argv[1:2] == ["--as"]:
        session(Path(sys.argv[2]))
        return
    path, found = json_option(__doc__), []
    for rows in SIZES:
        found.append(measured(rows))
        print(found[-1], flush=True)
    (_, few, many) = found
    grown = (many["most_mib"] - few["most_mib"]) * 2**20 / (many["rows"] - few["rows"])
    print(f"each further record takes {grown:.0f} bytes at most")
    keep(path, {"parties": found, "bytes_of_a_further_record": round(grown, 1)})


if __name__ == "__main__":
    main()
