"""What every engine owes: a program that does everything with secrets, and what it has to find.

Three parties run it, whatever the engine. MPyC's are processes, and this file is one of them:

python -m tests.unit.protocols.mpc.conformance [--learnt] -M3 -I0 -B9000
"""

import json
import sys

import numpy as np
from tests.unit.protocols.mpc.programs import own

from masquerade.protocols.mpc import HiddenColumns, MpycEngine, run_alone
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.protocols.mpc.tree import Growth, tree

PARTIES = ("a", "b", "c")
CASES, LENGTH, RECORDS = 120, 101, 40


class Task:
    """Numbers that parties know. MPyC's do not wrap around: products of `narrow` ones have 62 bits."""

    def __init__(self, *, narrow):
        generator = np.random.default_rng(24)
        reach, table = (2**30, 2**61) if narrow else (2**63 - 1, 2**63 - 1)
        self.x, self.y = generator.integers(-reach, reach, (2, CASES), endpoint=True)
        self.few = generator.integers(-1000, 1000, CASES)
        self.low = generator.integers(-(2**61), 2**61, CASES)
        self.high = self.low + generator.integers(-2, 3, CASES)
        self.low[:2], self.high[:2] = (2**61 - 1, -(2**61)), (-(2**61), 2**61 - 1)
        self.tables = generator.integers(-table, table, (3, LENGTH))
        self.places = generator.integers(0, LENGTH, CASES)
        self.places[:2] = 0, LENGTH - 1
        self.which = generator.integers(0, 3, CASES)
        self.matrix = generator.integers(-9, 9, (4, CASES))
        self.rows = generator.integers(-2, 3, (8, 5))
        sizes = zip(PARTIES, (3, 2, 4), strict=True)
        self.lines = {name: (generator.random((k, RECORDS)) < 0.4).astype(np.uint8) for name, k in sizes}
        self.some = generator.permutation(CASES)[:70]

    def program(self, engine):
        """Do everything, and open it."""
        x = yield from own(engine, "a", self.x)
        y = yield from own(engine, "b", self.y)
        few = yield from own(engine, "c", self.few)
        low = yield from own(engine, "b", self.low)
        high = yield from own(engine, "c", self.high)
        places = yield from own(engine, "c", self.places - self.few)  # never negative only as a sum
        rows = yield from own(engine, "a", self.rows.ravel())
        table = few.reshape(-1, 5)
        less = yield from engine.less(low, high)
        value, place = yield from engine.largest(rows, self.rows.shape)
        held = {
            name: engine.indicators(name, some if engine.name == name else None, some.shape)
            for name, some in self.lines.items()
        }
        two = yield from engine.counts([(held["a"], held["b"]), (held["a"], held["c"])])
        [crossed] = yield from engine.cross([(held["a"], held["c"])])
        [three] = yield from engine.counts([(crossed, held["b"])])
        bits = [LENGTH.bit_length()] * CASES
        secrets = {
            "sum": x + engine.constant(self.few) - y,
            "linear": engine.linear(self.matrix, few),
            "linear, by columns": engine.linear(self.matrix[:, : CASES // 5], table),
            "product": (yield from engine.product(x, y)),
            "inner": (yield from engine.inner(table, table)),
            "lookup": (yield from engine.lookup(places + few, self.tables, self.which)),
            "less": less,
            "select": (yield from engine.select(less, x, few)),
            "largest": value,
            "largest, where": place,
            "counts of two": engine.stack(two),
            "counts of three": three,
            "taken": engine.stack([x[self.some], y[np.arange(5, 20)]]),
            "transposed": table.T,
        }
        found = {"few bits": (yield from engine.open(places + few, bits))}
        for name, secret in secrets.items():
            found[name] = yield from engine.open(secret)
        return found

    def due(self):
        """Return what has to be found."""
        lines = {name: some.astype(int) for name, some in self.lines.items()}
        table = self.few.reshape(-1, 5)
        three = np.einsum("ir,jr,kr->ijk", lines["a"], lines["c"], lines["b"])
        return {
            "sum": self.x + self.few - self.y,
            "linear": self.matrix @ self.few,
            "linear, by columns": self.matrix[:, : CASES // 5] @ table,
            "product": self.x * self.y,
            "inner": table.T @ table,
            "lookup": self.tables[self.which, self.places],
            "less": (self.low < self.high).astype(int),
            "select": np.where(self.low < self.high, self.x, self.few),
            "largest": self.rows.max(axis=1),
            "largest, where": self.rows.argmax(axis=1),
            "counts of two": np.concatenate([(lines["a"] @ lines[name].T).ravel() for name in "bc"]),
            "counts of three": three.reshape(12, 2),
            "taken": np.concatenate([self.x[self.some], self.y[5:20]]),
            "transposed": table.T,
            "few bits": self.places,
        }


def short(engine):
    """Take one round to share, one to multiply and one to open."""
    secret = yield from own(engine, "a", np.arange(4))
    square = yield from engine.product(secret, secret)
    return (yield from engine.open(square))


def learnt(engine):
    """Find clusters, with open and with hidden steps, and a tree."""
    generator = np.random.default_rng(25)
    whole = np.vstack([generator.integers(low, low + 30, (6, 2)) for low in (0, 60)])
    holder = generator.integers(0, 3, whole.shape)
    held = np.where(holder == PARTIES.index(engine.name), whole, 0)
    start = np.array([[0.0, 0.0], [40.0, 40.0]])
    found = {}
    for hide in (False, True):
        plan = Lloyd(len(whole), 2, (90, 90), start, 2, 2, hide_steps=hide)
        ended = yield from clusters(engine, held, plan)
        found[f"sizes, {hide}"], found[f"sums, {hide}"] = ended.sizes.tolist(), ended.sums.tolist()
    codes = dict(zip("xyz", generator.integers(0, 2, (3, 30)), strict=True))
    codes["t"] = codes["x"] & codes["y"]
    owners = {"x": "a", "y": "b", "z": "c", "t": "a"}
    own_codes = {name: codes[name] for name, owner in owners.items() if owner == engine.name}
    columns = HiddenColumns(dict.fromkeys(codes, 2), owners, own_codes, 30)
    nodes = yield from tree(engine, columns, Growth.of("t", ["x", "y", "z"], 2))
    found["splits"] = [[node.feature, node.label] for node in nodes]
    return found


def main():
    """Be one of MPyC's parties, and print what was found and what it took."""
    from mpyc.runtime import mpc  # noqa: PLC0415  (reads the arguments of the process, and need not be there)

    mpc.run(mpc.start())
    engine = MpycEngine(mpc, PARTIES)
    if "--learnt" in sys.argv:
        told = run_alone(learnt(engine))
    else:
        run_alone(short(engine))
        first = engine.cost
        found = run_alone(Task(narrow=True).program(engine))
        costs = [vars(one) for one in (first, engine.cost)]
        told = {"found": {name: some.tolist() for name, some in found.items()}, "costs": costs}
    mpc.run(mpc.shutdown())
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
