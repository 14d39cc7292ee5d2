"""What a party holds of its records in a session: read, linked by a shared key, drawn and sent part by part.

Each size runs in a process of its own, which does what a party's service does between its first and its last
message to a miner, without the network. What counts is the growth from one size to the next: a process takes
some 200 MiB before it has read anything, and a range of half a million records that is sorted and a part of a
session take their own. Everything longer is in files without a name (`masquerade.core.util.scratch`).

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

from masquerade.core.util.scratch import Scratch
from masquerade.disguising.memo import Memo
from masquerade.protocols.linkage.pseudonyms import ROWS_AT_ONCE, SORTED_AT_ONCE, keyed_pseudonyms, parts_for
from masquerade.protocols.vertical.disguised_cells import CellRequest, RepeatedCells, Site
from masquerade.services.parties.linkage import Linkage
from masquerade.services.parties.local_data import read_local_data
from masquerade.services.parties.settings import DataSettings

SIZES = (100_000, 1_000_000, 10_000_000)
MOST_GROWN = 64  # MiB that ten times as many records may take beyond a million
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
    scratch = Scratch(folder)
    data = read_local_data(DataSettings(**files), names, apart=False, scratch=scratch)
    assert data.digest
    tags = keyed_pseudonyms(data.keys(), bytes(32), SESSION, scratch=scratch)
    linkage = Linkage.of(None, tags, scratch)
    del tags
    assert data.people(linkage.rows)
    for _ in linkage.to_pieces():
        pass
    memo, rows = Memo.load_or_create(folder / "memo.json"), data.rows
    block, linked = data.single_block, linkage
    if block.rows > SORTED_AT_ONCE:
        block, linked = block.in_order(linkage.rows, scratch), linkage.in_place(scratch)
    held = RepeatedCells(block.codes, linked.tags, linked.rows, partial(data.draws, memo, block))
    site, parts = Site(PARTIES[0], data.policy, [held], SESSION), parts_for(rows, ROWS_AT_ONCE)
    for part in range(parts):
        site.receive(CellRequest(SESSION, "miner", (), part, parts).encode())
    end, most = memory()
    kept = linkage.rows.nbytes + linkage.tags.nbytes
    for each in (data.single_block, block):
        kept += sum(column.nbytes for column in each.codes.values()) + each.keys.nbytes
    kept += linked.rows.nbytes
    said = {"rows": rows, "mib_at_start": start, "mib_at_the_end": end, "most_mib": most}
    many = rows > SORTED_AT_ONCE  # fewer are held, most of them
    print(json.dumps(said | {"bytes_of_a_record_on_the_disk": round(kept / rows, 1) if many else None}))


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
    grown = many["most_mib"] - few["most_mib"]
    print(f"{many['rows']:,} records take {grown:.0f} MiB more than {few['rows']:,}")
    keep(path, {"parties": found, "mib_more_for_ten_times_as_many": round(grown, 1), "limit": MOST_GROWN})


if __name__ == "__main__":
    main()
