"""Three computing parties and no helper on SecretFlow's SPU: shares of ABY3 (Mohassel & Rindal 2018).

SPU needs NumPy below 2 and cannot be installed beside masquerade. So each party's engine starts a process
(`spu_worker`) with the Python of another environment, and talks to it through a pipe; the three processes
have SPU's own links. No two of the parties may collude, and all are taken to follow the program.

Numbers are integers modulo 2^64, as with `helped_engine`; SPU's fixed point is not used, so that every step
is exact. SPU's links are neither encrypted nor authenticated: addresses are this machine's, and parties on
several machines bring a tunnel's ends.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
from benchmarks import spu_worker
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.protocols.mpc.engine import Cost, Integers, SecretEngine, Steps, at_once, run_alone

PYTHON = "MASQUERADE_SPU_PYTHON"
PACKAGE = "spu==0.9.5"
PARTIES = 3
BITS = 64


class SpuSecret:
    """Numbers that lie with SPU: a shape, and what this party's process knows them by."""

    def __init__(self, engine: SpuEngine, number: int, shape: tuple[int, ...]) -> None:
        self._engine, self.number, self.shape = engine, number, shape

    def __add__(self, other: SpuSecret) -> SpuSecret:
        return self._engine.step("add", [self, other])

    def __sub__(self, other: SpuSecret) -> SpuSecret:
        return self._engine.step("subtract", [self, other])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> SpuSecret:
        """Return numbers at public places, by any of NumPy's indices."""
        places = np.arange(prod(self.shape)).reshape(self.shape)[index]
        flat = np.ravel(places)
        if flat.size and np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
            found = self._engine.step("part", [self], facts=(int(flat[0]), int(flat[0]) + flat.size))
        else:
            found = self._engine.step("taken", [self], arrays=[flat])
        return found.reshape(*np.shape(places))

    @property
    def T(self) -> SpuSecret:  # noqa: N802  (as NumPy's)
        """Return the columns as rows."""
        return self._engine.step("transpose", [self])

    def reshape(self, *shape: Any) -> SpuSecret:
        """Return the same numbers in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if tuple(sizes) == self.shape:
            return self
        return self._engine.step("reshape", [self], facts=[int(size) for size in sizes])

    def __del__(self) -> None:
        self._engine.forget(self.number)


class SpuEngine(SecretEngine[SpuSecret]):
    """One party's part: `addresses` are those of all three on this machine, in an order that all know.

    `python` is the Python of an environment that has SPU, or else what the environment variable
    ``MASQUERADE_SPU_PYTHON`` names. The engine is ready when all three have met; whoever waits for another
    longer than `seconds` gives up. It is closed after use, as by ``with``.
    """

    def __init__(
        self,
        name: str,
        addresses: Mapping[str, str],
        *,
        python: str | os.PathLike[str] | None = None,
        seconds: int = 600,
    ) -> None:
        self.name, self.parties = name, tuple(addresses)
        program = _checked(name, addresses, python)
        self._cost, self._number = Cost(), 0
        self._forgotten: list[int] = []
        self._folder = TemporaryDirectory(prefix="masquerade-spu-", ignore_cleanup_errors=True)
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the user named it)
                [
                    program,
                    "-I",
                    str(Path(spu_worker.__file__)),
                ],  # -I: nothing of this environment
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._folder.cleanup()
            raise InputError(f"The Python for SPU cannot be started: {error.strerror}.") from None
        hello = {
            "rank": self.parties.index(name),
            "addresses": list(addresses.values()),
            "seconds": seconds,
            "log": str(Path(self._folder.name) / "spu.log"),
        }
        try:
            told, _ = self._ask(hello)
        except BaseException as error:
            self.close()
            if isinstance(error, RoundAborted):
                raise InputError(f"{program} cannot be a party of SPU's. {error}") from None
            raise
        self.version = str(told["version"])

    def __enter__(self) -> SpuEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End this party's process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # the process ended before it read everything
                    stream.close()
        self._process.wait()
        self._folder.cleanup()

    @property
    def cost(self) -> Cost:
        """Return the rounds so far, and the bytes that this party sent.

        SPU's log says, run by run, how many messages this party received, which it waits for one after
        another, and what it sent; what is shared and opened is a round each, and is counted as it is sent.
        """
        return self._cost

    def constant(self, values: Integers) -> SpuSecret:
        """Return values that every party puts in itself."""
        return self.step("constant", [], arrays=[np.asarray(values, dtype=np.int64)])

    def share(self, owner: str, values: Integers | None, shape: tuple[int, ...]) -> Steps[SpuSecret]:
        """Return an owner's numbers, shared among all."""
        if (values is not None) != (owner == self.name):
            raise InputError("Numbers are shared by the party that knows them.")
        given = [] if values is None else [np.asarray(values, dtype=np.int64).reshape(shape)]
        secret = self._new(shape)
        place = self.parties.index(owner)
        self._ask({"do": "share", "number": secret.number, "owner": place, "shape": shape}, given)
        return at_once(secret)

    def indicators(self, owner: str, lines: NDArray[np.uint8] | None, shape: tuple[int, int]) -> SpuSecret:
        """Return an owner's lines, shared among all."""
        if (lines is not None) != (owner == self.name) or (lines is not None and lines.shape != shape):
            raise InputError("Indicators are known to their owner, in the shape that everybody expects.")
        values = None if lines is None else lines.astype(np.int64)
        return run_alone(self.share(owner, values, shape))

    def counts(self, pairs: Sequence[tuple[SpuSecret, SpuSecret]]) -> Steps[list[SpuSecret]]:
        """Multiply lines of different owners and sum over records."""
        return at_once([self.step("counts", [left, right]) for left, right in pairs])

    def cross(self, pairs: Sequence[tuple[SpuSecret, SpuSecret]]) -> Steps[list[SpuSecret]]:
        """Multiply lines of different owners record by record."""
        return at_once([self.step("crossed", [left, right]) for left, right in pairs])

    def linear(self, matrix: Integers, secret: SpuSecret) -> SpuSecret:
        """Return a public matrix times a secret vector, or each column of a secret matrix."""
        return self.step("linear", [secret], arrays=[np.asarray(matrix, dtype=np.int64)])

    def product(self, first: SpuSecret, second: SpuSecret) -> Steps[SpuSecret]:
        """Multiply number by number."""
        return at_once(self.step("product", [first, second]))

    def inner(self, first: SpuSecret, second: SpuSecret) -> Steps[SpuSecret]:
        """Multiply two matrices (records × lines)."""
        return at_once(self.step("inner", [first, second]))

    def lookup(self, secret: SpuSecret, tables: Integers, which: Integers) -> Steps[SpuSecret]:
        """Look secret places up by unit vectors, which are formed of their bits."""
        bits = max(int(tables.shape[1] - 1).bit_length(), 1)
        whole = np.zeros((len(tables), 1 << bits), dtype=np.int64)
        whole[:, : tables.shape[1]] = tables
        marks = np.eye(len(tables), dtype=np.int64)[np.ravel(which)]
        return at_once(self.step("lookup", [secret], arrays=[whole, marks]))

    def less(self, first: SpuSecret, second: SpuSecret, *, bits: int = 62) -> Steps[SpuSecret]:
        """Compare number by number, by the sign of the difference."""
        if bits > BITS - 2:
            raise InputError(f"Differences of {bits} bits are more than {BITS - 2}.")
        return at_once(self.step("less", [first, second]))

    def open(self, secret: SpuSecret, bits: Sequence[int] | None = None) -> Steps[Integers]:  # noqa: ARG002
        """Return the numbers themselves, to everybody; all of their bits, however few there should be."""
        _, [numbers] = self._ask({"do": "open", "number": secret.number})
        return at_once(numbers)

    def wait_for_all(self) -> Steps[None]:
        """Open a zero, in which every party takes part."""
        run_alone(self.open(self.constant(np.zeros(1, dtype=np.int64))))
        return at_once(None)

    def stack(self, secrets: Sequence[SpuSecret]) -> SpuSecret:
        """Return secrets one after another."""
        return self.step("stack", secrets)

    def step(
        self,
        step: str,
        secrets: Sequence[SpuSecret],
        *,
        facts: Sequence[int] = (),
        arrays: Sequence[NDArray[np.int64]] = (),
    ) -> SpuSecret:
        """Return what a step of `spu_worker.Arithmetic` makes of secrets, public sizes and public arrays."""
        secret = self._new(())
        parts = [one.number for one in secrets]
        header = {"do": "step", "number": secret.number, "step": step, "parts": parts, "facts": list(facts)}
        told, _ = self._ask(header, arrays)
        secret.shape = tuple(told["shape"])
        return secret

    def forget(self, number: int) -> None:
        """Let SPU's process drop a secret with the next thing that it is told."""
        self._forgotten.append(number)

    def _new(self, shape: tuple[int, ...]) -> SpuSecret:
        self._number += 1
        return SpuSecret(self, self._number, shape)

    def _ask(
        self, header: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()
    ) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        asks, answers = self._process.stdin, self._process.stdout
        forgotten, self._forgotten = self._forgotten, []
        told: dict[str, Any] = {"error": "its process ended"}
        found: list[NDArray[Any]] = []
        try:
            if asks is not None and answers is not None:
                spu_worker.write_frame(asks, {**header, "forget": forgotten}, arrays)
                told, found = spu_worker.read_frame(answers)
        except (EOFError, OSError, ValueError):  # it ended, or the engine was closed
            pass
        if "error" in told:
            raise RoundAborted(f"SPU gave up: {told['error']}", spent=True)
        self._cost = Cost(rounds=int(told.get("rounds", 0)), sent=int(told.get("sent", 0)))
        return told, found


def _checked(name: str, addresses: Mapping[str, str], python: str | os.PathLike[str] | None) -> str:
    """Return the Python to start; say all that is wrong with what was given."""
    wrong = []
    if len(addresses) != PARTIES:
        wrong.append(f"SPU's shares (ABY3) are for {PARTIES} parties, named are {len(addresses)}.")
    if name not in addresses:
        wrong.append(f"{name!r} is none of the parties: {', '.join(addresses)}.")
    for party, address in addresses.items():
        host, _, port = address.rpartition(":")
        if not (_loopback(host) and port.isdecimal() and 0 < int(port) < 1 << 16):
            wrong.append(
                f"The address of {party!r} is none of this machine, as 127.0.0.1:9001: SPU's links are not "
                "encrypted; to another machine give the end of a tunnel."
            )
    if len(set(addresses.values())) < len(addresses):
        wrong.append("Every party has an address of its own.")
    program = os.fspath(python) if python is not None else os.environ.get(PYTHON, "")
    if not program:
        wrong.append(
            "SPU needs an environment of its own, with NumPy below 2. Make one with "
            f"`pip install {PACKAGE}`, and give its Python as `python` or in {PYTHON}."
        )
    if wrong:
        raise InputError(" ".join(wrong))
    return program


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
