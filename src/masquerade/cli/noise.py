"""`masquerade noise`: differential privacy budgets for noisy counts, used by `--noise` of other commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from masquerade.cli.options import Json, argument, group, option
from masquerade.cli.output import emit, say
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.channels.noise.terms import NoiseTerms
    from masquerade.core.query import Query
    from masquerade.core.schema import Schema

noise_app = group("Plan, make and show differential privacy budgets for counts with noise.")
Ledger = Annotated[Path, argument("Folder of the ledger.", "LEDGER")]
Epsilon = Annotated[float, option("ε of all tables together, for each record.")]
Delta = Annotated[float, option("δ of all tables together; 0 for pure privacy.")]


@noise_app.command("plan")
def plan(
    policy: Annotated[Path, argument("Policy or schema of the records.", "POLICY")],
    *,
    records: Annotated[int, option("Number of records.", min=1)],
    epsilon: Epsilon,
    delta: Delta = 1e-6,
    by: Annotated[
        list[str] | None,
        option("Variables of a table, as A,B; may be repeated. By default all pairs.", "A,B"),
    ] = None,
    tables: Annotated[
        int | None, option("Number of tables in the budget. By default the number of tables given.", min=1)
    ] = None,
    contributors: Annotated[int, option("Number of contributors that add noise; 1 is a curator.", min=1)] = 1,
    colluders: Annotated[int, option("Number of contributors that may reveal their noise.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Show what a budget buys: noise and errors of every table, before anything is spent.

    Example: masquerade noise plan policy.yaml --records 10000 --epsilon 1 --contributors 3 --colluders 1
    """
    import masquerade as mq  # noqa: PLC0415  (loads numpy)

    schema = mq.Policy.load(policy).schema
    result = mq.plan_tables(
        schema,
        None if by is None else [_parse_table(text, schema) for text in by],
        n=records,
        epsilon=epsilon,
        delta=delta,
        tables=tables,
        contributors=contributors,
        colluders=colluders,
    )
    emit(result.to_dict() if json else f"{result.summary()}\n")


@noise_app.command("init")
def init(
    ledger: Ledger,
    *,
    epsilon: Epsilon,
    tables: Annotated[int | None, option("Number of tables, in all.", min=1)] = None,
    stage: Annotated[
        list[str] | None,
        option(
            "Instead of --tables: a stage of the budget, with its number of tables and its share; may be "
            "repeated.",
            "TABLES:SHARE",
        ),
    ] = None,
    delta: Delta = 1e-6,
    json: Json = False,
) -> None:
    """Make a ledger with fixed ε, δ and number of tables. These cannot be changed later.

    Example: masquerade noise init budget --epsilon 1 --tables 45
    """
    from masquerade.channels.noise.terms import NoiseTerms  # noqa: PLC0415  (loads numpy)
    from masquerade.services.common.noise_ledger import NoiseLedger  # noqa: PLC0415

    if (tables is None) == (not stage):
        raise InputError(
            "Give the number of tables (--tables 45), or stages (--stage 45:0.6 --stage 10:0.4)."
        )
    stages = [_parse_stage(text) for text in stage or ()]
    terms = NoiseTerms(epsilon, stages if tables is None else tables, delta)
    deviation = terms.deviation  # computed before the ledger is made, since it fails for an impossible budget
    with NoiseLedger(ledger) as opened:
        opened.promise(terms)
    if json:
        emit(_show_terms(terms) | {"spent": 0})
        return
    say(
        f"made the ledger {ledger}: {_describe(terms)}; noise of a cell has a standard deviation of "
        f"{deviation:.1f}."
    )


@noise_app.command("show")
def show(ledger: Ledger, *, json: Json = False) -> None:
    """Show the budget of a ledger, and the tables that were answered.

    Example: masquerade noise show budget
    """
    from masquerade.services.common.noise_ledger import NoiseLedger  # noqa: PLC0415  (loads numpy)

    _check_exists(ledger)
    with NoiseLedger(ledger) as opened:
        terms, spent, problem = opened.terms, opened.entries, opened.problem
    if terms is None:
        raise InputError(f"{ledger}: the ledger has no terms yet; masquerade noise init sets them.")
    number = sum(entry["tables"] for entry in spent)
    asked = [_title(query) for entry in spent for query in entry["asked"]]
    if json:
        emit(_show_terms(terms) | {"spent": number, "asked": asked, "restored": problem or None})
        return
    lines = [f"{_describe(terms)}: {number} spent, {terms.number - number} left"]
    lines += [f"  {title}" for title in asked]
    if problem:
        lines.append(
            f"restored from a copy ({problem}): further tables are refused, see masquerade noise restored"
        )
    emit("\n".join(lines) + "\n")


@noise_app.command("restored")
def show_restored(
    ledger: Ledger,
    *,
    agree: Annotated[str | None, option("The sentence to agree to, exactly.", "SENTENCE")] = None,
) -> None:
    """Show whether a ledger was restored from a copy, and agree to the consequences."""
    from masquerade.services.common.noise_ledger import AGREEMENT, NoiseLedger  # noqa: PLC0415

    _check_exists(ledger)
    with NoiseLedger(ledger, agree) as opened:
        problem = opened.problem
    if agree is not None:
        emit("Agreed.\n")
    elif problem:
        emit(
            f"This ledger was restored from a copy ({problem}). Tables spent since are unknown.\n"
            f'To agree: masquerade noise restored {ledger} --agree "{AGREEMENT}"\n'
        )
    else:
        emit("This ledger is the latest.\n")


@contextmanager
def open_noise(source: Any, ledger: str) -> Iterator[Any]:
    """Yield a source with noise, within the budget of a ledger; state what was spent at the end."""
    from masquerade.services.common.noise_ledger import NoiseLedger  # noqa: PLC0415  (loads numpy)
    from masquerade.sources.noise.noisy import Noisy  # noqa: PLC0415

    _check_exists(Path(ledger))
    with NoiseLedger(ledger) as opened:
        terms = opened.terms
        if terms is None:
            raise InputError(f"{ledger}: the ledger has no terms yet; masquerade noise init sets them.")
        noisy = Noisy(source, epsilon=terms.epsilon, tables=terms.tables, delta=terms.delta, ledger=opened)
        before = noisy.tables_spent
        try:
            yield noisy
        finally:
            after = noisy.tables_spent
            say(
                f"note: counts have noise, {_describe(terms)}; {after - before} spent now, "
                f"{terms.number - after} left."
            )


def _check_exists(ledger: Path) -> None:
    if not ledger.is_dir():
        raise InputError(f"{ledger}: there is no such ledger; masquerade noise init {ledger} makes it.")


def _describe(terms: NoiseTerms) -> str:
    number = "1 table" if terms.number == 1 else f"{terms.number} tables"
    return f"{number} at ε = {terms.epsilon:g} (δ = {terms.delta:g}) a record"


def _show_terms(terms: NoiseTerms) -> dict[str, Any]:
    return terms.to_dict() | {"deviations": [float(stage.variance) ** 0.5 for stage in terms.stages]}


def _title(query: dict[str, Any]) -> str:
    where = ", ".join(f"{name} = {label}" for name, label in query["where"])
    return " × ".join(query["by"]) + (f" where {where}" if where else "")


def _parse_table(text: str, schema: Schema) -> Query:
    from masquerade.core.query import Query  # noqa: PLC0415  (loads numpy)
    from masquerade.learn.option_types import names_in  # noqa: PLC0415

    return Query(by=names_in(text, schema, "--by"))


def _parse_stage(text: str) -> tuple[int, float]:
    tables, _, share = text.partition(":")
    try:
        return int(tables), float(share)
    except ValueError:
        raise InputError(f"A stage has tables and a share, as 45:0.6. Got {text!r} instead.") from None
