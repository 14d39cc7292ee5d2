"""What a party holds: its records as codes, and the keys that name the people in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.core.util.scratch import HELD, Scratch, let_go
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import refuse_disguised
from masquerade.disguising.memo import MOST_PLACES, Memo
from masquerade.disguising.report_draws import DEALING, Codes, Draws, disguise_codes, fresh_draws
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode
from masquerade.protocols.linkage.pseudonyms import SORTED_AT_ONCE
from masquerade.protocols.linkage.record_keys import KEYS_AT_ONCE, KeyColumn, is_text
from masquerade.protocols.vertical.disguised_cells import restricted
from masquerade.services.parties.growing_keys import GrowingKeys, sorted_keys
from masquerade.services.parties.kinds import Partition, find
from masquerade.services.parties.settings import DataSettings, PartySettings
from masquerade.sources.records import Records


@dataclass(frozen=True, slots=True, eq=False)
class RecordBlock:
    """Some variables of some records: codes, and the key of every record where there is one."""

    codes: dict[str, Codes]
    keys: pa.Array | None
    rows: int

    def take(self, rows: NDArray[np.integer[Any]]) -> RecordBlock:
        """Return some records, in the order given."""
        keys = None if self.keys is None else self.keys.take(pa.array(rows))
        return RecordBlock({name: column[rows] for name, column in self.codes.items()}, keys, len(rows))

    def in_order(self, rows: NDArray[np.integer[Any]], scratch: Scratch) -> RecordBlock:
        """Return the same as `take`, of many records, held in `scratch`: read and written some at a time."""
        columns, keys = {name: scratch.column() for name in self.codes}, GrowingKeys(scratch)
        for begin in range(0, len(rows), SORTED_AT_ONCE):
            wanted = np.asarray(rows[begin : begin + SORTED_AT_ONCE])
            found: list[RecordBlock] = []
            places: list[NDArray[np.intp]] = []
            for at in range(0, self.rows, SORTED_AT_ONCE):
                places.append(np.flatnonzero((wanted >= at) & (wanted < at + SORTED_AT_ONCE)))
                found.append(self.take(wanted[places[-1]]))
                let_go()
            back = np.argsort(np.concatenate(places))
            for name, column in columns.items():
                column.append(np.concatenate([each.codes[name] for each in found])[back])
            if self.keys is not None:
                keys.append(pa.concat_arrays([each.keys for each in found]).take(pa.array(back)))
        return RecordBlock(
            {name: column.array() for name, column in columns.items()}, keys.array(), len(rows)
        )


@dataclass(frozen=True, slots=True, eq=False)
class LocalData:
    """All that a party brings into a session: the policy of the variables it consents to, and their cells.

    In an arbitrary partition every file is a block of its own, with some of the variables; otherwise there is
    one block with all of them. Reports are drawn for the whole policy (`memo_id`) and the `places` of its
    channels there: two sessions with different variables of one policy get the same reports. `nameless` is
    the digest of the files where no key names the people in them. `linking_key` is the secret that parties
    share whose records are linked by it. Long columns are in `scratch`.
    """

    policy: Policy
    blocks: tuple[RecordBlock, ...]
    memo_id: str
    places: tuple[int, ...]
    nameless: str = ""
    linking_key: bytes | None = field(default=None, repr=False)
    scratch: Scratch = HELD

    @property
    def whole(self) -> RecordBlock:
        """Return the one block of a party that holds all of its variables of all of its records."""
        (block,) = self.blocks
        return block

    @property
    def digest(self) -> str:
        """Return the sha256 of policy, keys and values: other records have another one."""
        found = hashlib.sha256(self.memo_id.encode())
        for block in self.blocks:
            for name, codes in block.codes.items():
                found.update(name.encode() + b"\0")
                found.update(np.ascontiguousarray(codes).data)
                let_go()
            if block.keys is not None:
                _hash_texts(found, block.keys)
        return found.hexdigest()

    def people(self, rows: NDArray[np.integer[Any]] | None = None) -> str:
        """Return the digest of a set of people: of all here, or of those in some places among the keys.

        Neither the order of records nor what is asked about people changes it; where nobody is named, the
        files stand for them.
        """
        if self.nameless:
            return self.nameless
        keys = self.keys().column
        if len(self.blocks) > 1:
            keys = keys.cast(pa.string())
        everybody = rows is None or len(rows) == len(keys)
        return people_digest(keys if everybody else keys.take(pa.array(rows)), self.scratch)

    @property
    def rows(self) -> int:
        """Return how many records there are, at most, over all blocks."""
        return sum(block.rows for block in self.blocks)

    def keys(self) -> KeyColumn:
        """Return the keys of all people here, each once, in order of appearance.

        Linking refuses a key that names two records; over several blocks that must be seen here.
        """
        if len(self.blocks) == 1:
            return _keys_of(self.whole)
        columns = self._alike()
        if any(pc.count_distinct(column).as_py() < len(column) for column in columns):
            raise InputError("A key names two records of this party: one record a person can be linked.")
        return KeyColumn(pc.unique(pa.chunked_array(columns)))

    def places_of_keys(self) -> list[NDArray[np.integer[Any]]]:
        """Return, for every block, the place of each record's key among `keys`."""
        listed = self.keys().column
        return [pc.index_in(column, value_set=listed).to_numpy() for column in self._alike()]

    def _alike(self) -> list[pa.Array]:
        """Return the keys of every block as one type: whole numbers stand for their digits among texts."""
        columns = [_keys_of(block).column for block in self.blocks]
        if len({column.type for column in columns}) == 1:
            return columns
        for column in columns:
            if not (pa.types.is_integer(column.type) or is_text(column.type)):
                raise InputError("A key is a text or a whole number.")
        return [column.cast(pa.string()) for column in columns]

    def source(self, memo: Memo) -> Records:
        """Return a source over own records: clear, or their reports where the policy disguises."""
        block = self.whole
        if not self.policy.disguised:
            return Records(block.codes, self.policy)
        reports = disguise_codes(block.codes, self.policy, self.draws(memo, block))
        memo.saved(self.memo_id)
        return Records(reports, self.policy)

    def draws(self, memo: Memo, block: RecordBlock, rows: NDArray[np.integer[Any]] | None = None) -> Draws:
        """Return draws for some rows that a memo repeats: a person's value is disguised once and for all."""
        if block.keys is None:
            if self.policy.disguised:
                raise InputError("Disguising needs to know whose record it is: data.key in the settings.")
            return fresh_draws(Keystream())
        keys = block.keys if rows is None else block.keys.take(pa.array(rows))
        let_go()
        draws, places = memo.draws(self.memo_id, _person_names(keys), "key"), self.places

        def drawn(codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int) -> Codes:
            return draws(codes, channel, rows, places[place & ~DEALING] | place & DEALING)

        return drawn


def _person_names(keys: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return what the memo knows people by: keys as they are linked, so that a respelling is nobody else."""
    if pa.types.is_integer(keys.type):
        return keys  # the memo takes them for their digits
    listed, names = KeyColumn(keys), []
    for begin in range(0, len(keys), KEYS_AT_ONCE):
        data, offsets = listed.forms(begin, begin + KEYS_AT_ONCE, lead=0)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        names.append(pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers))
    return pa.chunked_array(names, pa.large_string())


def _keys_of(block: RecordBlock) -> KeyColumn:
    if block.keys is None:
        raise InputError(
            "The records have no key to be linked by: name its column, data.key in the settings."
        )
    return KeyColumn(block.keys)


def brought(whole: Policy, variables: Sequence[str], needed: Sequence[str] | None = None) -> Policy:
    """Return the policy of what a party brings: of the variables it consents to those that are needed.

    What is disguised together with them comes, too; of a policy with strata all.
    """
    for name in variables:
        whole.schema[name]
    policy = whole if set(variables) == set(whole.schema) else restricted(whole, variables)
    if set(policy.schema) != set(variables):
        extra = sorted(set(policy.schema) - set(variables))
        raise InputError(f"{', '.join(map(repr, extra))} is disguised together with others: consent to all.")
    if whole.stratum_variable is not None and policy is not whole:
        raise InputError("A policy with strata is consented to as a whole: list all of its variables.")
    if needed is not None and whole.stratum_variable is None and set(needed) != set(variables):
        return restricted(whole, needed)
    return policy


def read_local_data(
    settings: DataSettings,
    variables: Sequence[str],
    needed: Sequence[str] | None = None,
    *,
    apart: bool,
    scratch: Scratch = HELD,
) -> LocalData:
    """Read the variables of a session from the files of a party; `apart` keeps the files as blocks.

    Of the `variables` that are consented to those are read that are `needed`, and what is disguised together
    with them; of a policy with strata all. Long columns are held in `scratch`.
    """
    whole = Policy.load(settings.policy)
    policy = brought(whole, variables, needed)
    paths = [str(path) for path in settings.files]
    groups = [[path] for path in paths] if apart else [paths]
    blocks = tuple(_read_block(group, settings.key, policy, some=apart, scratch=scratch) for group in groups)
    held = {name for block in blocks for name in block.codes}
    missing = [name for name in policy.schema if name not in held]
    if missing:
        raise SchemaError(f"No file has the column {missing[0]!r}.")
    names = [group.names for group in whole.groups]
    places = (
        tuple(range(MOST_PLACES)) if policy is whole else tuple(names.index(g.names) for g in policy.groups)
    )
    nameless = hashlib.sha256()
    for path in paths if settings.key is None else ():
        with Path(path).open("rb") as file:
            nameless.update(hashlib.file_digest(file, "sha256").digest())
    content = nameless.hexdigest() if settings.key is None else ""
    shared = None if settings.linking_key is None else settings.linking_key.read_bytes()
    return LocalData(policy, blocks, whole.id, places, content, shared, scratch)


def people_digest(keys: pa.Array, scratch: Scratch = HELD) -> str:
    """Return the sha256 of keys as texts in order; a second copy of many is in `scratch`."""
    found = hashlib.sha256()
    if pa.types.is_large_string(keys.type):  # digests of earlier versions have that none is missing
        found.update(np.packbits(np.ones(len(keys), np.uint8), bitorder="little").data)
    _hash_runs(found, sorted_keys(keys, scratch))
    return found.hexdigest()


def _hash_texts(found: hashlib._Hash, keys: pa.Array) -> None:
    """Hash keys as texts, in their order."""
    if pa.types.is_integer(keys.type) and keys.buffers()[0] is None:
        _hash_runs(found, keys)
        return
    if keys.type != pa.string() or keys.offset or keys.buffers()[0] is not None:
        keys = pa.concat_arrays([keys.cast(pa.string())])
    for buffer in keys.buffers():
        found.update(b"" if buffer is None else buffer)


def _hash_runs(found: hashlib._Hash, keys: pa.Array) -> None:
    """Hash where each of some texts ends, then the texts, so many at a time."""

    def texts() -> Iterator[tuple[NDArray[np.int64], memoryview]]:
        for at in range(0, len(keys), KEYS_AT_ONCE):
            run = keys[at : at + KEYS_AT_ONCE].cast(pa.string())
            _, offsets, text = run.buffers()
            cuts = np.frombuffer(offsets, np.int32)[run.offset : run.offset + len(run) + 1].astype(np.int64)
            yield cuts[1:] - cuts[0], memoryview(b"" if text is None else text)[cuts[0] : cuts[-1]]
            let_go()

    reached = 0
    found.update(bytes(4))
    for ends, _ in texts():
        found.update((reached + ends).astype("<i4").data)
        reached += int(ends[-1])
    for _, text in texts():
        found.update(text)


def _read_block(
    paths: Sequence[str], key: str | None, policy: Policy, *, some: bool, scratch: Scratch
) -> RecordBlock:
    """Read the columns of a policy (those that are there, if `some` suffice) and the key."""
    with open_batches(paths, None) as opened:
        parts = {name: scratch.column() for name in policy.schema if not some or name in opened.file_names}
        keys = GrowingKeys(scratch)
        batches = opened.select([*parts, *([] if key is None else [key])])
        refuse_disguised(batches.metadata, paths[0])
        for batch in batches:
            for read in policy.fields:
                name = read.variable.name
                if name in parts:
                    try:
                        parts[name].append(encode(batch.column(name), read, text=batches.text))
                    except UnknownValue as error:
                        raise error.shifted(batches.rows_before, batches.file) from None
            if key is not None:
                keys.append(batch.column(key))
    if keys.missing:
        raise InputError(f"{paths[0]}: {keys.missing:,} records have no value of {key!r}.")
    joined = keys.array()
    read_rows = next(iter(parts.values())).rows if parts else 0
    codes = {name: parts.pop(name).array() for name in [*parts]}
    pa.default_memory_pool().release_unused()  # what was read is not held a second time
    return RecordBlock(codes, joined, read_rows if joined is None else len(joined))


def check_records(settings: PartySettings) -> None:
    """Refuse records that lack a column of the policy or the key, and consents to variables that are none."""
    data, policy = settings.data, Policy.load(settings.data.policy)
    for consent in settings.consents:
        for name in consent.variables:
            if name not in policy.schema:
                raise InputError(
                    f"consents: session {consent.session!r} lists {name!r}, which is no variable of "
                    f"{data.policy}.{did_you_mean(name, policy.schema)}"
                )
        if consent.rules is not None and find(consent.protocol).partition is Partition.ROWS:
            try:
                consent.rules.rules().check(policy.observed)
            except InputError as error:
                raise InputError(f"consents: session {consent.session!r}: {error}") from None
    scattered = any(find(it.protocol).partition is Partition.CELLS for it in settings.consents)
    names = [] if scattered else [name for consent in settings.consents for name in consent.variables]
    columns = list(dict.fromkeys([*names, *([] if data.key is None else [data.key])]))
    for paths in [[path] for path in data.files] if scattered else [data.files]:
        with open_batches([str(path) for path in paths], columns):
            pass  # a file or column that is missing has been named by now
