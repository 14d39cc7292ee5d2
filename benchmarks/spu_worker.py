"""One party of SecretFlow's SPU, in a process and an environment of its own: SPU needs NumPy below 2.

`spu_engine` starts this file with the Python of that environment, so it imports nothing of masquerade. It is
told what to do through its input and answers through its output: frames of a JSON header and plain arrays
(`write_frame`, `read_frame`), never pickles. Its two peers it meets over SPU's own links.

Steps only grow a graph. When something is opened, or much has piled up, the graph is compiled by JAX and SPU
and run, and whatever took messages is kept. SPU's log of a run says what passed over the links.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("<i8", "|u1")
MOST_HEADER = 1 << 24
AT_ONCE = 1 << 21  # numbers of unit vectors that are formed together
MOST_PENDING = 64  # steps that take messages, before they are run unasked
TOLD = re.compile(r"Link details: total send bytes (\d+), .* recv actions (\d+)")

Array = NDArray[Any]


def write_frame(stream: IO[bytes], header: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Write a header and arrays of whole numbers or bytes."""
    plain = [np.asarray(one, dtype="|u1" if one.dtype == np.uint8 else "<i8") for one in arrays]
    told = {**header, "arrays": [[one.dtype.str, one.shape] for one in plain]}
    text = json.dumps(told).encode()
    stream.write(len(text).to_bytes(4, "little") + text)
    stream.writelines(one.tobytes() for one in plain)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], list[Array]]:
    """Read a header and its arrays; a stream that ends before a frame does is an `EOFError`."""
    length = int.from_bytes(_read(stream, 4), "little")
    if length > MOST_HEADER:
        raise ValueError("A frame's header is too long.")
    header = json.loads(_read(stream, length))
    arrays = []
    for kind, shape in header.pop("arrays"):
        if kind not in KINDS or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("A frame has arrays of whole numbers or bytes, of given sizes.")
        data = _read(stream, prod(shape) * np.dtype(kind).itemsize)
        arrays.append(np.frombuffer(data, dtype=kind).reshape(shape))
    return header, arrays


def _read(stream: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError("The other side has gone.")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Node:
    """A number or array of the graph: what it is made of, until it has been run and lies with SPU."""

    def __init__(
        self, step: str, parts: Sequence[Node], facts: Sequence[int], shape: tuple[int, ...]
    ) -> None:
        self.step, self.parts, self.facts, self.shape = step, tuple(parts), tuple(facts), shape
        self.place = ""  # what SPU knows it by
        self.public = False
        self.gone: Callable[[str], object] | None = None

    def __del__(self) -> None:
        if self.gone is not None:
            self.gone(self.place)


class Arithmetic:
    """What each step computes, in JAX: whole numbers of 64 bits that wrap around; nothing is a fraction."""

    MESSAGES = frozenset({"product", "inner", "counts", "crossed", "lookup", "less"})

    def __init__(self, jnp: Any) -> None:
        self._jnp = jnp

    def apply(self, step: str, facts: Sequence[int], parts: Sequence[Any]) -> Any:
        """Return what a step makes of its parts."""
        return getattr(self, step)(facts, *parts)

    def add(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return sums."""
        return first + second

    def subtract(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return differences."""
        return first - second

    def reshape(self, facts: Sequence[int], secret: Any) -> Any:
        """Return the same numbers in another shape."""
        return secret.reshape(tuple(facts))

    def part(self, facts: Sequence[int], secret: Any) -> Any:
        """Return neighbours of a flattened array."""
        return secret.reshape(-1)[facts[0] : facts[1]]

    def taken(self, _facts: Sequence[int], secret: Any, places: Any) -> Any:
        """Return numbers of a flattened array at public places."""
        return self._jnp.take(secret.reshape(-1), places, mode="clip")  # they are in bounds

    def transpose(self, _facts: Sequence[int], secret: Any) -> Any:
        """Return the columns as rows."""
        return secret.T

    def stack(self, _facts: Sequence[int], *secrets: Any) -> Any:
        """Return flattened arrays one after another."""
        return self._jnp.concatenate([secret.reshape(-1) for secret in secrets])

    def linear(self, _facts: Sequence[int], matrix: Any, secret: Any) -> Any:
        """Return a public matrix times a vector or a matrix."""
        return matrix @ secret

    def product(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return products, number by number."""
        return first * second

    def inner(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return the matrix product of the first, transposed, and the second."""
        return first.T @ second

    def counts(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return in how many records each line of the one and of the other are 1."""
        return first @ second.T

    def crossed(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return the products of lines record by record, the first varying slowest."""
        return (first[:, None] * second[None]).reshape(-1, first.shape[1])

    def less(self, _facts: Sequence[int], first: Any, second: Any) -> Any:
        """Return 1 where the first is less, by the sign of the difference."""
        return (first < second).astype(self._jnp.int64)

    def lookup(self, _facts: Sequence[int], secret: Any, tables: Any, which: Any) -> Any:
        """Return entries at secret places: unit vectors of their bits, times the tables."""
        jnp = self._jnp
        places, bits = secret.reshape(-1), tables.shape[1].bit_length() - 1
        step, found = max(AT_ONCE >> bits, 1), []
        for start in range(0, places.shape[0], step):
            some = places[start : start + step]
            clear = 1 - ((some[:, None] >> jnp.arange(bits)[None]) & 1)
            units = jnp.concatenate([clear[:, :1], 1 - clear[:, :1]], axis=1)
            for place in range(1, bits):  # the lowest first: later ones vary slowest
                low = units * clear[:, place : place + 1]
                units = jnp.concatenate([low, units - low], axis=1)
            found.append(((units @ tables.T) * which[start : start + step]).sum(axis=1))
        return jnp.concatenate(found).reshape(secret.shape)


class Party:
    """SPU's runtime of one of three parties (ABY3 over 64 bits), and the graph of what it computes."""

    def __init__(self, rank: int, addresses: Sequence[str], seconds: int, log: str) -> None:
        jax = import_module("jax")
        jax.config.update("jax_enable_x64", True)  # noqa: FBT003
        self._jax, self._numpy = jax, import_module("jax.numpy")
        self._spu = spu = import_module("spu")
        self._frontend = import_module("spu.utils.frontend")
        self._lib = lib = spu.libspu
        self._steps = Arithmetic(self._numpy)
        self._log, self._log_read = Path(log), 0
        options = lib.logging.LogOptions()
        options.enable_console_logger, options.system_log_path = False, log
        lib.logging.setup_logging(options)
        desc = lib.link.Desc()
        for place, address in enumerate(addresses):
            desc.add_party(f"party {place}", address)
        desc.recv_timeout_ms = desc.http_timeout_ms = 1000 * seconds
        desc.connect_retry_interval_ms, desc.connect_retry_times = 200, 5 * seconds
        config = lib.RuntimeConfig(protocol=lib.ProtocolKind.ABY3, field=lib.FieldType.FM64)
        config.enable_pphlo_profile = True
        self._rank, self._parties = rank, len(addresses)
        link = lib.link.create_brpc(desc, rank)
        self._link = link.spawn()  # for shares that are given and opened
        self._io, self._runtime = spu.Io(self._parties, config), spu.Runtime(link, config)
        self._nodes: dict[int, Node] = {}
        self._pending: list[Node] = []
        self._places = 0
        self.rounds = self.sent = 0

    @property
    def version(self) -> str:
        """Return which SPU this is."""
        return str(self._spu.__version__)

    def answer(self, header: Mapping[str, Any], arrays: list[Array]) -> tuple[dict[str, Any], list[Array]]:
        """Do what a frame says, and return what to answer."""
        for number in header.get("forget", ()):
            del self._nodes[number]
        told: dict[str, Any] = {}
        shown: list[Array] = []
        asked, number = header["do"], header.get("number", 0)
        if asked == "open":
            shown = [self.opened(self._nodes[number])]
        elif asked == "share":
            values = arrays[0] if arrays else None
            self._nodes[number] = self.shared(header["owner"], values, tuple(header["shape"]))
        elif asked == "step":
            parts = [self._nodes[one] for one in header["parts"]]
            node = self.node(header["step"], parts, header["facts"], arrays)
            self._nodes[number] = node
            told["shape"] = node.shape
        else:
            raise ValueError("A frame asks to share, to open or for a step.")
        return {**told, "rounds": self.rounds, "sent": self.sent}, shown

    def node(self, step: str, parts: Sequence[Node], facts: Sequence[int], arrays: Sequence[Array]) -> Node:
        """Return a new part of the graph. What is public comes before (a matrix) or after the secrets."""
        public = [self.known(one) for one in arrays]
        if step == "constant":
            return public[0]
        whole = [*public, *parts] if step == "linear" else [*parts, *public]
        shapes = [self._jax.ShapeDtypeStruct(one.shape, np.int64) for one in whole]
        found = self._jax.eval_shape(lambda *given: self._steps.apply(step, facts, given), *shapes)
        node = Node(step, whole, facts, tuple(found.shape))
        if step in Arithmetic.MESSAGES:
            self._pending.append(node)
            if len(self._pending) >= MOST_PENDING:
                self.run(())
        return node

    def known(self, values: Array) -> Node:
        """Return numbers that everybody knows."""
        node = Node("", (), (), values.shape)
        node.public = True
        shares = self._io.make_shares(values.astype(np.int64), self._lib.Visibility.VIS_PUBLIC)
        self._keep(node, shares[self._rank])
        return node

    def shared(self, owner: int, values: Array | None, shape: tuple[int, ...]) -> Node:
        """Return what one party knows: it makes the shares and sends each to whom it is for."""
        if owner == self._rank and values is not None:
            secret = self._lib.Visibility.VIS_SECRET
            shares = self._io.make_shares(values.reshape(shape).astype(np.int64), secret)
            for rank, share in enumerate(shares):
                if rank != owner:
                    self._send(rank, share)
            mine = shares[self._rank]
        else:
            mine = self._receive(owner)
        self.rounds += 1
        node = Node("", (), (), shape)
        self._keep(node, mine)
        return node

    def opened(self, node: Node) -> Array:
        """Return the numbers themselves, of the shares of all."""
        self.run((node,))
        mine = self._runtime.get_var(node.place)
        others = [rank for rank in range(self._parties) if rank != self._rank]
        for rank in others:
            self._send(rank, mine)
        shares = {rank: self._receive(rank) for rank in others} | {self._rank: mine}
        self.rounds += 1
        found = self._io.reconstruct([shares[rank] for rank in range(self._parties)])
        return np.asarray(found, dtype=np.int64).reshape(node.shape)

    def run(self, wanted: Iterable[Node]) -> None:
        """Compile and run all that is pending, and keep it."""
        outputs = [one for one in dict.fromkeys((*self._pending, *wanted)) if not one.place]
        self._pending = []
        if not outputs:
            return
        order, inputs = _ordered(outputs)

        def program(*given: Any) -> list[Any]:
            values = dict(zip(inputs, given, strict=True))
            for node in order:
                values[node] = self._steps.apply(node.step, node.facts, [values[one] for one in node.parts])
            return [values[node] for node in outputs]

        visible = self._lib.Visibility
        made, _ = self._frontend.compile(
            self._frontend.Kind.JAX,
            program,
            [np.zeros(node.shape, dtype=np.int64) for node in inputs],
            {},
            [node.place for node in inputs],
            [visible.VIS_PUBLIC if node.public else visible.VIS_SECRET for node in inputs],
            lambda _found: [self._named(node) for node in outputs],
        )
        self._runtime.run(made)
        for node in outputs:
            node.parts, node.gone = (), self._runtime.del_var
            node.public = self._runtime.get_var_meta(node.place).visibility == visible.VIS_PUBLIC
        self._count()

    def _named(self, node: Node) -> str:
        self._places += 1
        node.place = f"n{self._places}"
        return node.place

    def _keep(self, node: Node, share: Any) -> None:
        self._runtime.set_var(self._named(node), share)
        node.gone = self._runtime.del_var

    def _count(self) -> None:
        """Add what SPU's log says of the last run; messages of a run are waited for one after another."""
        with self._log.open("rb") as log:
            log.seek(self._log_read)
            text = log.read()
        self._log_read += len(text)
        told = TOLD.findall(text.decode(errors="replace"))
        if len(told) != 1:
            raise RuntimeError("SPU's log does not say what a run sent.")
        self.sent += int(told[0][0])
        self.rounds += int(told[0][1])

    def _send(self, rank: int, share: Any) -> None:
        pieces = [share.meta, *share.share_chunks]
        data = b"".join(len(one).to_bytes(8, "little") + one for one in pieces)
        self.sent += len(data)
        self._link.send(rank, data)  # waits until it is there: this process may end next

    def _receive(self, rank: int) -> Any:
        data, pieces = bytes(self._link.recv(rank)), []
        while data:
            end = 8 + int.from_bytes(data[:8], "little")
            pieces.append(data[8:end])
            data = data[end:]
        share = self._lib.Share()
        share.meta, share.share_chunks = pieces[0], pieces[1:]
        return share


def _ordered(outputs: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return what has to be computed, parts before wholes, and what lies there already."""
    order: dict[Node, None] = {}
    inputs: dict[Node, None] = {}
    waiting = list(reversed(outputs))
    while waiting:
        node = waiting[-1]
        if node.place or node in order:
            if node.place:
                inputs[node] = None
            waiting.pop()
            continue
        missing = [one for one in node.parts if not one.place and one not in order]
        if missing:
            waiting += missing
        else:
            inputs.update(dict.fromkeys(one for one in node.parts if one.place))
            order[node] = None
            waiting.pop()
    return list(order), list(inputs)


def main() -> None:
    """Serve the engine that started this process, until it closes the pipe."""
    asks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed shall not get among the frames
    try:
        header, _ = read_frame(asks)
        party = Party(header["rank"], header["addresses"], header["seconds"], header["log"])
        write_frame(answers, {"version": party.version})
        while True:
            header, arrays = read_frame(asks)
            write_frame(answers, *party.answer(header, arrays))
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001  (told to the engine; this process is of no more use)
        text = " ".join(str(error).split())[:200]
        write_frame(answers, {"error": f"{type(error).__name__}: {text}"})
    answers.flush()
    os._exit(0)  # SPU's threads would wait for peers that have gone


if __name__ == "__main__":
    main()
