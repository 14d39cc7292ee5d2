"""A search for parents on SecretFlow's SPU, run by the Python of an environment that has it.

SPU needs NumPy below 2 and cannot live beside masquerade, so it has a process of its own. This one reads a
task from its input as JSON, plays three parties (ABY3, threads with SPU's own links) and prints the parents
as JSON. Numbers are whole, in the units of masquerade's tables: no fixed point is involved. It imports
nothing of masquerade; `benchmarks/hidden_engines.py` starts it.
"""

import json
import sys
import threading
import time

import jax
import numpy as np
import spu
from spu import libspu
from spu.utils import frontend

jax.config.update("jax_enable_x64", True)  # noqa: FBT003
import jax.numpy as jnp  # noqa: E402  (after 64 bits were asked for)

PARTIES = 3
LOWEST = -(2**54)


class Parties:
    """Three runtimes that stay, as do the shares in them under names."""

    def __init__(self):
        self._config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM64)
        self._io = spu.Io(PARTIES, self._config)
        links = libspu.link.Desc()
        for rank in range(PARTIES):
            links.add_party(f"party {rank}", f"thread_{rank}")
        self._runtimes = self._each(
            lambda rank: spu.Runtime(libspu.link.create_mem(links, rank), self._config)
        )

    @staticmethod
    def _each(work):
        """Let all parties work at once, and return what each came to."""
        found, wrong = [None] * PARTIES, []

        def one(rank):
            try:
                found[rank] = work(rank)
            except Exception as error:  # noqa: BLE001  (told by the thread that waits)
                wrong.append(error)

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(PARTIES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise wrong[0]
        return found

    def share(self, name, values):
        """Share what an owner knows among all."""
        shares = self._io.make_shares(values, libspu.Visibility.VIS_SECRET)
        for runtime, part in zip(self._runtimes, shares, strict=True):
            runtime.set_var(name, part)

    def opened(self, program, names, examples):
        """Run a program on shares, and open what it comes to."""
        hidden = [libspu.Visibility.VIS_SECRET] * len(names)
        made, _ = frontend.compile(
            frontend.Kind.JAX,
            program,
            examples,
            {},
            names,
            hidden,
            lambda found: [f"o{i}" for i in range(len(found))],
        )
        self._each(lambda rank: self._runtimes[rank].run(made))
        return self._io.reconstruct([runtime.get_var("o0") for runtime in self._runtimes])


def step(task, rows):
    """Return the program that scores rows of families, and finds the best of each row."""
    sizes, n = task["sizes"], task["n"]
    names = sorted(sizes)

    def program(*indicators):
        lines = dict(zip(names, indicators, strict=True))

        def counts(family):
            cells = jnp.ones((1, n), dtype=jnp.int64)
            for name in family:
                cells = (cells[:, None, :] * lines[name][None, :, :]).reshape(-1, n)
            return cells.sum(axis=1)

        sought, tables, pieces, start = [], [], [], 0
        for row in rows:
            for child, given in row:
                configurations = int(np.prod([sizes[name] for name in given], dtype=int))
                table = task["tables"][f"{configurations},{sizes[child]}"]
                cells, margins = counts((*given, child)), counts(given)
                sought += [cells, margins]
                tables += [table["cells"]] * cells.shape[0] + [
                    [-x for x in table["margins"]]
                ] * margins.shape[0]
                end = start + cells.shape[0] + margins.shape[0]
                pieces.append((start, end, table["constant"]))
                start = end
        everything = jnp.concatenate(sought)
        places = jnp.arange(n + 1)[None, :] == everything[:, None]
        values = jnp.where(places, jnp.array(tables, dtype=jnp.int64), 0).sum(axis=1)
        scores = [values[start:end].sum() + constant for start, end, constant in pieces]
        width, at, padded = max(map(len, rows)), 0, []
        for row in rows:
            padded.append(jnp.stack([*scores[at : at + len(row)], *[jnp.int64(LOWEST)] * (width - len(row))]))
            at += len(row)
        return jnp.argmax(jnp.stack(padded), axis=1)

    return program, names


def search(task):
    """Return the parents of every variable, added one at a time until none gains."""
    parties = Parties()
    names, examples = sorted(task["sizes"]), []
    for name in names:
        own = np.array(task["codes"][name])[None] == np.arange(task["sizes"][name])[:, None]
        parties.share(name, own.astype(np.int64))
        examples.append(own.astype(np.int64))
    found = {name: [] for name in names}
    growing = [name for name in names if task["candidates"][name]]
    for _ in range(task["limit"]):
        left = {x: [z for z in task["candidates"][x] if z not in found[x]] for x in growing}
        growing = [x for x in growing if left[x]]
        if not growing:
            break
        rows = [[(x, sorted(found[x])), *((x, sorted([*found[x], z])) for z in left[x])] for x in growing]
        program, listed = step(task, rows)
        winners = parties.opened(program, listed, examples).tolist()
        for x, place in zip(growing, winners, strict=True):
            if place:
                found[x].append(left[x][place - 1])
        growing = [x for x, place in zip(growing, winners, strict=True) if place]
    return found


def main():
    """Read a task, and print what was found and how long it took."""
    task = json.load(sys.stdin)
    start = time.perf_counter()
    found = search(task)
    seconds = round(time.perf_counter() - start, 2)
    print(json.dumps({"parents": found, "seconds": seconds, "version": spu.__version__}))


if __name__ == "__main__":
    main()
