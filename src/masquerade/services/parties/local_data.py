"""Records of a party as codes, and the keys of the people in them."""

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
from masquerade.core.util.scratch import MEMORY_ONLY, Scratch, release_pages
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import refuse_disguised
from masquerade.disguising.memo import MOST_PLACES, Memo
from masquerade.disguising.report_draws import DEALING, Codes, Draws, disguise_codes, fresh_draws
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode, missing_texts_of
from masquerade.protocols.linkage.pseudonyms import SORTED_AT_ONCE
from masquerade.protocols.linkage.record_keys import KEYS_AT_ONCE, KeyColumn, is_text
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.services.parties.growing_keys import GrowingKeys, sorted_keys
from masquerade.services.parties.kinds import Partition, find
from masquerade.services.parties.settings import DataSettings, PartySettings
from masquerade.sources.records import Records

MEMO = "memo.json"  # below a node's state folder


@dataclass(frozen=True, slots=True, eq=False)
class RecordBlock:
    """A block of records: the codes of some variables and, if there are any, the keys of the records."""

    codes: dict[str, Codes]
    keys: pa.Array | None
    rows: int

    def take(self, rows: NDArray[np.integer[Any]]) -> RecordBlock:
        """Return the records at the given indices, in their order."""
        keys = None if self.keys is None else self.keys.take(pa.array(rows))
        return RecordBlock({name: column[rows] for name, column in self.codes.items()}, keys, len(rows))

    def in_order(self, rows: NDArray[np.integer[Any]], scratch: Scratch) -> RecordBlock:
        """Return the same records as `take`, copied in chunks to `scratch`, since there may be many."""
        columns, keys = {name: scratch.column() for name in self.codes}, GrowingKeys(scratch)
        for begin in range(0, len(rows), SORTED_AT_ONCE):
            wanted = np.asarray(rows[begin : begin + SORTED_AT_ONCE])
            found: list[RecordBlock] = []
            places: list[NDArray[np.intp]] = []
            for at in range(0, self.rows, SORTED_AT_ONCE):
                places.append(np.flatnonzero((wanted >= at) & (wanted < at + SORTED_AT_ONCE)))
                found.append(self.take(wanted[places[-1]]))
                release_pages()
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
    """The records that a party brings into a session, and the policy of the variables it consents to.

    Attributes
    ----------
    policy : Policy
        The policy of the variables of this session.
    blocks : tuple of RecordBlock
        If any party may hold any cell, one block per file, each with some of the variables. Otherwise one
        block with all variables.
    memo_id : str
        Id of the party's whole policy. Reports are drawn for the whole policy, so that sessions about
        different variables still get the same reports.
    places : tuple of int
        Index of each channel of `policy` in the whole policy.
    nameless : str
        Digest of the files if the records have no key, else empty.
    linking_key : bytes or None
        Secret shared by the parties of a keyed session.
    scratch : Scratch
        Storage for long columns.
    all_variables : Policy or None
        The party's policy for all of its variables; its limit applies.
    link_settings : DataSettings or None
        Files and columns of the fields that linking keys are derived from.
    """

    policy: Policy
    blocks: tuple[RecordBlock, ...]
    memo_id: str
    places: tuple[int, ...]
    nameless: str = ""
    linking_key: bytes | None = field(default=None, repr=False)
    scratch: Scratch = MEMORY_ONLY
    all_variables: Policy | None = None
    link_settings: DataSettings | None = None

    def link_fields(self) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
        """Return the fields that linking keys are derived from, and the names of those that are dates."""
        settings = self.link_settings
        if settings is None or not settings.link_fields:
            raise InputError("This party has no fields to derive linking keys from: set data.link_fields.")
        columns: dict[str, list[Any]] = {name: [] for name in settings.link_fields}
        with open_batches([str(path) for path in settings.files], None) as opened:
            for batch in opened.select([*dict.fromkeys(settings.link_fields.values())]):
                for name, column in settings.link_fields.items():
                    columns[name] += batch.column(column).to_pylist()
        if any(len(column) != self.rows for column in columns.values()):
            raise InputError("The files have changed since the session began.")
        return columns, settings.link_dates

    @property
    def single_block(self) -> RecordBlock:
        """Return the only block; raise ValueError if this party has several."""
        (block,) = self.blocks
        return block

    @property
    def digest(self) -> str:
        """Return the SHA-256 of policy, keys and values, which identifies exactly these records."""
        digest = hashlib.sha256(self.memo_id.encode())
        for block in self.blocks:
            for name, codes in block.codes.items():
                digest.update(name.encode() + b"\0")
                digest.update(np.ascontiguousarray(codes).data)
                release_pages()
            if block.keys is not None:
                _hash_texts(digest, block.keys)
        return digest.hexdigest()

    def people(self, rows: NDArray[np.integer[Any]] | None = None) -> str:
        """Return the digest of a set of people: all, or those at the given indices among the keys.

        The digest depends neither on the order of records nor on the variables. Without keys it is the
        digest of the files.
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
        """Return the number of records, summed over blocks; a person in two blocks counts twice."""
        return sum(block.rows for block in self.blocks)

    def keys(self) -> KeyColumn:
        """Return the keys of all people, each once, in order of appearance.

        Raises
        ------
        InputError
            If a key occurs twice within one of several blocks. Linking checks the keys of a single block.
        """
        if len(self.blocks) == 1:
            return _keys_of(self.single_block)
        columns = self._keys_of_one_type()
        if any(pc.count_distinct(column).as_py() < len(column) for column in columns):
            raise InputError("A key names two records of this party: only one record per person is linked.")
        return KeyColumn(pc.unique(pa.chunked_array(columns)))

    def places_of_keys(self) -> list[NDArray[np.integer[Any]]]:
        """Return, for every block, the index of each record's key among `keys`."""
        listed = self.keys().column
        return [pc.index_in(column, value_set=listed).to_numpy() for column in self._keys_of_one_type()]

    def _keys_of_one_type(self) -> list[pa.Array]:
        """Return the keys of every block as one type; integers become text if another block has text."""
        columns = [_keys_of(block).column for block in self.blocks]
        if len({column.type for column in columns}) == 1:
            return columns
        for column in columns:
            if not (pa.types.is_integer(column.type) or is_text(column.type)):
                raise InputError("A key must be a text or a whole number.")
        return [column.cast(pa.string()) for column in columns]

    def source(self, memo: Memo) -> Records:
        """Return a source over the local records, or over their reports if the policy disguises any."""
        block = self.single_block
        if not self.policy.disguised:
            return Records(block.codes, self.policy)
        reports = disguise_codes(block.codes, self.policy, self.draws(memo, block))
        memo.save(self.memo_id)
        return Records(reports, self.policy)

    def draws(self, memo: Memo, block: RecordBlock, rows: NDArray[np.integer[Any]] | None = None) -> Draws:
        """Return the random draws for `rows` from the memo, so that a person's value is disguised only once.

        A second, independent report of the same value would let an observer average the noise away.
        """
        if block.keys is None:
            if self.policy.disguised:
                raise InputError("Disguised records need a key: name its column, data.key in the settings.")
            return fresh_draws(Keystream())
        keys = block.keys if rows is None else block.keys.take(pa.array(rows))
        release_pages()
        draws, places = memo.draws(self.memo_id, _person_names(keys), "key"), self.places

        def draw_reports(
            codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int
        ) -> Codes:
            return draws(codes, channel, rows, places[place & ~DEALING] | place & DEALING)

        return draw_reports


def _person_names(keys: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return the names of people in the memo: normalized keys, so that a respelled key is the same person."""
    if pa.types.is_integer(keys.type):
        return keys  # the memo stores an integer key as its decimal digits
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


def restrict_policy(whole: Policy, variables: Sequence[str], needed: Sequence[str] | None = None) -> Policy:
    """Return the policy of the variables that a party brings into a session.

    Parameters
    ----------
    whole : Policy
        The policy of the party.
    variables : sequence of str
        Variables that the party consents to.
    needed : sequence of str, optional
        Variables that the session needs; without it, all. Variables that are disguised together with them
        are added. A policy with strata is never restricted.

    Returns
    -------
    Policy
        The restricted policy.

    Raises
    ------
    InputError
        If `variables` contains only part of a set that is disguised together or shares strata.
    """
    for name in variables:
        whole.schema[name]
    policy = whole if set(variables) == set(whole.schema) else restrict_to_variables(whole, variables)
    if set(policy.schema) != set(variables):
        extra = sorted(set(policy.schema) - set(variables))
        listed = ", ".join(map(repr, extra))
        raise InputError(f"The consent lacks {listed}, disguised together with variables that it lists.")
    if whole.stratum_variable is not None and policy is not whole:
        raise InputError("A policy with strata is consented to as a whole: list all of its variables.")
    if needed is not None and whole.stratum_variable is None and set(needed) != set(variables):
        return restrict_to_variables(whole, needed)
    return policy


def read_local_data(
    settings: DataSettings,
    variables: Sequence[str],
    needed: Sequence[str] | None = None,
    *,
    apart: bool,
    scratch: Scratch = MEMORY_ONLY,
) -> LocalData:
    """Read the variables of a session from the files of a party.

    Parameters
    ----------
    settings : DataSettings
        Files, policy and key of the party.
    variables, needed
        As for `restrict_policy`.
    apart : bool
        Return one block per file instead of one block.
    scratch : Scratch, optional
        Storage for long columns.

    Returns
    -------
    LocalData
        The records of the session.
    """
    whole = Policy.load(settings.policy)
    policy = restrict_policy(whole, variables, needed)
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
    return LocalData(policy, blocks, whole.id, places, content, shared, scratch, whole, settings)


def people_digest(keys: pa.Array, scratch: Scratch = MEMORY_ONLY) -> str:
    """Return the SHA-256 of sorted keys as text; long columns are sorted in `scratch`."""
    digest = hashlib.sha256()
    if pa.types.is_large_string(keys.type):  # hash a bitmap of ones first, as earlier versions did
        digest.update(np.packbits(np.ones(len(keys), np.uint8), bitorder="little").data)
    _hash_runs(digest, sorted_keys(keys, scratch))
    return digest.hexdigest()


def _hash_texts(digest: hashlib._Hash, keys: pa.Array) -> None:
    """Hash keys as text, in their order."""
    if pa.types.is_integer(keys.type) and keys.buffers()[0] is None:
        _hash_runs(digest, keys)
        return
    if keys.type != pa.string() or keys.offset or keys.buffers()[0] is not None:
        keys = pa.concat_arrays([keys.cast(pa.string())])
    for buffer in keys.buffers():
        digest.update(b"" if buffer is None else buffer)


def _hash_runs(digest: hashlib._Hash, keys: pa.Array) -> None:
    """Hash the end offset of each text, then the texts, `KEYS_AT_ONCE` at a time."""

    def texts() -> Iterator[tuple[NDArray[np.int64], memoryview]]:
        for at in range(0, len(keys), KEYS_AT_ONCE):
            run = keys[at : at + KEYS_AT_ONCE].cast(pa.string())
            _, offsets, text = run.buffers()
            cuts = np.frombuffer(offsets, np.int32)[run.offset : run.offset + len(run) + 1].astype(np.int64)
            yield cuts[1:] - cuts[0], memoryview(b"" if text is None else text)[cuts[0] : cuts[-1]]
            release_pages()

    reached = 0
    digest.update(bytes(4))
    for ends, _ in texts():
        digest.update((reached + ends).astype("<i4").data)
        reached += int(ends[-1])
    for _, text in texts():
        digest.update(text)


def _read_block(
    paths: Sequence[str], key: str | None, policy: Policy, *, some: bool, scratch: Scratch
) -> RecordBlock:
    """Read the key and the columns of a policy; with `some`, columns that the files lack are omitted."""
    with open_batches(paths, None) as opened:
        parts = {name: scratch.column() for name in policy.schema if not some or name in opened.file_names}
        keys = GrowingKeys(scratch)
        batches = opened.select([*parts, *([] if key is None else [key])])
        refuse_disguised(batches.tell_missing(missing_texts_of(policy.fields)).metadata, paths[0])
        for batch in batches:
            for read in policy.fields:
                name = read.variable.name
                if name in parts:
                    try:
                        parts[name].append(encode(batch.column(name), read, text=batches.text))
                    except UnknownValue as error:
                        raise error.shift_rows(batches.rows_before, batches.file) from None
            if key is not None:
                keys.append(batch.column(key))
    if keys.missing:
        raise InputError(f"{paths[0]}: {keys.missing:,} records have no value of {key!r}.")
    joined = keys.array()
    read_rows = next(iter(parts.values())).rows if parts else 0
    codes = {name: parts.pop(name).array() for name in [*parts]}
    pa.default_memory_pool().release_unused()  # frees the reader's buffers, which were copied
    return RecordBlock(codes, joined, read_rows if joined is None else len(joined))


def check_records(settings: PartySettings) -> None:
    """Raise InputError if a consent lists an unknown variable, or files lack its columns or the key."""
    data, policy = settings.data, Policy.load(settings.data.policy)
    for consent in settings.consents:
        for name in consent.variables:
            if name not in policy.schema:
                raise InputError(
                    f"consents: session {consent.session!r} lists {name!r}, which is not a variable of "
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
            pass  # opening raises if a file or column is missing
