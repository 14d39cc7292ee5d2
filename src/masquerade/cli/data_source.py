"""The records that a command counts: files, or a table that `--engine` and `--url` name."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import masquerade as mq
from masquerade.cli import options
from masquerade.cli.output import Watch, join_names, report_warnings, say, watch_progress
from masquerade.core.errors import InputError, did_you_mean
from masquerade.learn.option_types import category_called, names_in, variable_named

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.core.schema import Category, Schema, Variable
    from masquerade.frames.file_reader import Batches
    from masquerade.sources.report_tally import Missing

TITLES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "spark": "Spark"}
ELSEWHERE: Final = ("postgres", "spark")  # engines for which DATA names a table
READ: Final[dict[str, tuple[Any, Any]]] = {
    "variables": (options.Variables, None),
    "weights": (options.Weights, None),
    "counts": (options.Counts, None),
    "person": (options.Person, None),
    "clear": (options.Clear, False),
    "noise": (options.Noise, None),
    "accept_incomplete": (options.AcceptIncomplete, False),
    "sep": (options.Separator, None),
    "decimal": (options.Decimal, None),
    "encoding": (options.Encoding, None),
    "engine": (options.Engine, "auto"),
    "url": (options.Url, None),
    "verbose": (options.Verbose, False),
    "strata": (options.Strata, None),
    "clusters": (options.Clusters, None),
    "fpc": (options.Fpc, None),
    "replicates": (options.Replicates, None),
    "replicate_method": (options.ReplicateMethod, "bootstrap"),
    "replicate_scale": (options.ReplicateScale, None),
}


def keyword_option(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """Return a keyword parameter that Typer turns into an option."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def over_records(
    run: Callable[..., None], declared: Sequence[Parameter] | None = None, help_text: str | None = None
) -> Callable[..., None]:
    """Return a command that reads records and passes them to `run` as its parameter `records`.

    In the command's signature, `records` is replaced by options that locate the records and control reading.

    Parameters
    ----------
    run : callable
        Function that runs the command.
    declared : sequence of Parameter, optional
        Parameters of the command. By default the parameters of `run`.
    help_text : str, optional
        Help text of the command. By default the docstring of `run`.
    """
    reports = Parameter("data", Parameter.POSITIONAL_OR_KEYWORD, annotation=options.Reports)
    parameters = [reports, keyword_option("policy", options.CarriedPolicy, None)]
    declared = declared or list(signature(run, eval_str=True).parameters.values())
    taken = {item.name for item in declared}  # a command may itself define an option of the same name
    for item in declared:
        named = [pair for pair in READ.items() if pair[0] not in taken] if item.name == "records" else ()
        parameters += [keyword_option(name, *kind) for name, kind in named] or [item]

    def command(data: list[str], policy: str | None, **typed: Any) -> None:
        read: dict[str, Any] = {name: None if name in taken else typed.pop(name) for name in READ}
        run(records=RecordOptions(data, policy, **read), **typed)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = help_text or run.__doc__
    return command


@dataclass
class RecordOptions:
    """Options that select the records to count and the engine that counts them, and how files are read.

    After `open_source`, `origin_note` is a note about records that do not state their policy, or None.
    """

    data: list[str]
    rules: str | None
    variables: str | None
    weights: str | None
    counts: str | None
    person: str | None
    clear: bool
    noise: str | None
    accept_incomplete: bool
    sep: str | None
    decimal: str | None
    encoding: str | None
    engine: str
    url: str | None
    verbose: bool
    strata: str | None = None
    clusters: str | None = None
    fpc: str | None = None
    replicates: str | None = None
    replicate_method: Literal["bootstrap", "jackknife", "brr"] = "bootstrap"
    replicate_scale: float | None = None
    origin_note: str | None = None
    _watch: Watch | None = None

    @cached_property
    def policy(self) -> Policy:
        """Return the policy named by the user, or else the policy stored with the records."""
        if self.rules is not None:
            return mq.Policy.load(self.rules)
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (these load Arrow)
        from masquerade.frames.streams import is_duckdb_file  # noqa: PLC0415
        from masquerade.sources.tally import carried_policy  # noqa: PLC0415

        carried = None
        is_file = self.engine not in ELSEWHERE and not any(map(is_duckdb_file, self.data))
        if is_file and "-" not in self.data:
            with open_batches(self.data, []) as batches:
                carried = carried_policy(batches.metadata)
        if carried is None:
            raise InputError(
                f"{join_names(self.data)}: no policy is stored with the records; give --policy FILE."
            )
        return carried

    @cached_property
    def chosen_variables(self) -> tuple[str, ...]:
        """Return the variables that the user named; empty means all."""
        if self.variables is None:
            return ()
        return names_in(self.variables, self.policy.schema, "--variables")

    @property
    def has_design(self) -> bool:
        """Return True if options describe the design of a complex survey."""
        return any((self.strata, self.clusters, self.fpc, self.replicates))

    @contextmanager
    def open_source(self, doing: str, what: str = "results are") -> Iterator[Any]:
        """Yield the source of counts, with a progress bar; print warnings at the end.

        `doing` labels the bar. `what` starts a clause in notes about the records, such as "results are".
        Connections and files are open until the context ends.
        """
        self._check()
        with report_warnings(), watch_progress(doing) as watch, ExitStack() as stack:
            if self.verbose:
                stack.enter_context(_print_log())
            self._watch = watch
            records, self.origin_note = self._open_records(stack, what)
            read: dict[str, Any] = {"schema": self.policy} if self.clear else {"policy": self.policy}
            read |= {"weights": self.weights, "id": self.person, "accept_incomplete": self.accept_incomplete}
            read |= {"counts": self.counts}
            read["engine"] = "auto" if self.engine in ELSEWHERE else self.engine
            source = (
                self._survey(records, read) if self.has_design else mq.tally(records, **read, watch=watch)
            )
            say_missing(getattr(source, "missing", None))
            if self.noise is not None:
                from masquerade.cli.noise import open_noise  # noqa: PLC0415  (few commands need it)

                source = stack.enter_context(open_noise(source, self.noise))
            from masquerade.core.tally import Selected  # noqa: PLC0415  (loads numpy)

            yield Selected(source, self.chosen_variables) if self.chosen_variables else source

    def advance(self, done: int, total: int) -> None:
        """Show that `done` of `total` steps are done, if progress is shown."""
        if self._watch is not None:
            self._watch(done / total)

    def _check(self) -> None:
        """Raise InputError, before anything is read, if options contradict each other."""
        if self.url is not None and self.engine not in ELSEWHERE:
            raise InputError("--url says where a table is: also give --engine postgres or --engine spark.")
        if "-" in self.data and self.engine in TITLES:
            raise InputError(
                f"{TITLES[self.engine]} cannot count standard input, which can be read only once: write it "
                "to a file, or omit --engine."
            )
        if self.has_design and (self.engine not in {"auto", "memory"} or "-" in self.data):
            raise InputError(
                "Strata, clusters, fpc and replicates need files that are counted in memory: omit --engine, "
                "and write standard input to a file."
            )
        if self.has_design and (self.person or self.accept_incomplete):
            raise InputError(
                "--id and --accept-incomplete cannot be combined with the design of a complex survey."
            )
        if self.counts is not None and (self.weights or self.person or self.has_design):
            raise InputError(
                "--counts is for a frequency table, where a row represents several records. It cannot be "
                "combined with --weights, --id or the design of a complex survey."
            )
        if self.counts is not None and self.engine not in {"auto", "memory"}:
            raise InputError("--counts needs a file that is counted in memory: omit --engine.")
        if self.noise is not None and not self.clear:
            raise InputError(
                "--noise protects clear records: also give --clear. Disguised records need no noise."
            )
        if self.noise is not None and (self.weights or self.has_design):
            raise InputError(
                "--noise cannot be combined with survey weights: there is no limit then on how much one "
                "record changes a count."
            )
        if self.engine == "postgres" and len(self.data) > 1:
            raise InputError(f"PostgreSQL counts one table at a time. Got {len(self.data)} names instead.")

    def _survey(self, records: Batches, read: Mapping[str, Any]) -> Any:
        """Return the source of counts for records of a complex survey."""
        from fnmatch import fnmatchcase  # noqa: PLC0415  (few commands need it)

        named = [name.strip() for name in (self.replicates or "").split(",") if name.strip()]
        columns: list[str] = []
        for name in named:
            found = [column for column in records.file_names if fnmatchcase(column, name)]
            columns += [name] if name in records.file_names else found
            if not found and name not in records.file_names:
                raise InputError(
                    f"--replicates: no column is called {name!r}.{did_you_mean(name, records.file_names)}"
                )
        return mq.SurveyRecords(
            records,
            read.get("policy"),
            schema=read.get("schema"),
            weights=self.weights,
            strata=self.strata,
            clusters=self.clusters,
            fpc=self.fpc,
            replicates=columns,
            method=self.replicate_method,
            scale=self.replicate_scale,
        )

    def _open_records(self, stack: ExitStack, what: str) -> tuple[Any, str | None]:
        """Open the files, a table of the engine, or a source of another package.

        Returns the records for `mq.tally`, and a note if their policy is unknown.
        """
        from masquerade.frames.dialect import Dialect  # noqa: PLC0415  (these load Arrow)
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415
        from masquerade.frames.streams import is_duckdb_file  # noqa: PLC0415
        from masquerade.sources.tally import opener_of  # noqa: PLC0415

        if self.engine in ELSEWHERE:
            files = self.engine == "spark" and all(Path(name).is_file() for name in self.data)
            table = None if self.clear else _unknown_policy_note(f"the {TITLES[self.engine]} table", what)
            note = self._note_of_files(what) if files else table
            return self._table(stack), note
        paths = self.data[0] if len(self.data) == 1 else self.data
        if opener_of(paths, self.engine) is not None or is_duckdb_file(paths):
            source = f"the source {join_names(self.data)}"
            return paths, None if self.clear else _unknown_policy_note(source, what)
        dialect = Dialect(self.sep, self.decimal, self.encoding)
        batches = stack.enter_context(open_batches(self.data, [], dialect=dialect))
        for note in batches.notes:
            say(note)
        return batches, origin_note(batches, what, clear=self.clear)

    def _note_of_files(self, what: str) -> str | None:
        """Check the metadata of files, because the engine that reads them ignores it; return a note."""
        from masquerade.core.tally import raise_refusals  # noqa: PLC0415  (these load Arrow)
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415
        from masquerade.sources.tally import check_origin, missing_from  # noqa: PLC0415

        with open_batches(self.data, []) as batches:
            note = origin_note(batches, what, clear=self.clear)
            origin = check_origin(batches, None if self.clear else self.policy)
        missing = missing_from(origin, accepted=self.accept_incomplete)
        if missing is not None:
            raise_refusals(missing.refusals([None]))
        say_missing(missing)
        return note

    def _table(self, stack: ExitStack) -> Any:
        from masquerade.sources.engines.connections import postgres_table, spark_table, url_of  # noqa: PLC0415

        url = url_of(self.url)
        if self.engine == "postgres":
            return stack.enter_context(postgres_table(self.data[0], url))
        fields = self.policy.fields if self.clear else self.policy.report_fields
        with _silence_children(wanted=not self.verbose):
            return stack.enter_context(spark_table(self.data, url, fields))


def origin_note(batches: Batches, what: str = "results are", *, clear: bool) -> str | None:
    """Raise InputError if files read with --clear are disguised; return a note if they state no policy."""
    origin = batches.metadata.get("policy")
    if clear and origin is not None:
        raise InputError(f"{batches.file}: was disguised under policy {origin[:12]}; omit --clear.")
    if clear or origin is not None or "-" in batches.paths:
        return None
    return _unknown_policy_note(batches.file, what)


def say_missing(missing: Missing | None) -> None:
    """Print which rows are missing, if the user accepted the records as incomplete."""
    if missing is not None and missing.accepted:
        say(f"note: rows are missing, not at random: {missing.what}.")


def _unknown_policy_note(name: str, what: str) -> str:
    return (
        f"note: {name} does not say under which policy it was disguised; the {what} right only if it was "
        "this one."
    )


@contextmanager
def _print_log() -> Iterator[None]:
    """Print the log messages of sources about their choices, one per line."""
    log = logging.getLogger("masquerade.sources")
    handler, level = _LineHandler(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _LineHandler(logging.Handler):
    """Log handler that prints messages in the same form as the command does."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def _silence_children(*, wanted: bool) -> Iterator[None]:
    """Silence standard error of child processes, because Java prints long logs that may quote data."""
    if not wanted:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def conditions_in(texts: Sequence[str] | None, schema: Schema, flag: str = "--where") -> dict[str, Category]:
    """Parse conditions such as "C=x", with each category converted to the policy's type."""
    found: dict[str, Category] = {}
    for text in texts or []:
        variable, label = _split(text, schema, flag)
        if variable.name in found:
            raise InputError(f"{flag} names {variable.name!r} twice; a record has one category.")
        found[variable.name] = category_called(variable, label, flag)
    return found


def _split(text: str, schema: Schema, flag: str) -> tuple[Variable, str]:
    """Split a condition; a variable's name may contain "="."""
    positions = [position for position, character in enumerate(text) if character == "="]
    for position in positions:
        if text[:position].strip() in schema:
            return schema[text[:position].strip()], text[position + 1 :].strip()
    if not positions or not text[: positions[0]].strip():
        raise InputError(f"{flag} {text!r}: a condition is given as VARIABLE=CATEGORY.")
    return variable_named(text[: positions[0]].strip(), schema, flag), ""
