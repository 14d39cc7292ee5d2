"""`masquerade simulate`: run a protocol with a whole population in this process, and measure its cost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.anonymize import columns_in
from masquerade.cli.options import Json, Overwrite, flag, group, option
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted
from masquerade.learn.catalogue import learner
from masquerade.learn.option_types import (
    CENTRES,
    category_called,
    names_in,
    owners_in,
    structure_in,
    variable_named,
)

if TYPE_CHECKING:
    from masquerade.core.schema import Category, Schema
    from masquerade.simulation import Census, HiddenModel, KAnonymity, People, SuppressionRunResult

ProtocolName = Literal["frequency", "aggregation", "mix"]
PEOPLE_BY_DEFAULT = {"frequency": 100, "aggregation": 1000, "mix": 100}
LEAST_PEOPLE, FEWEST_PEOPLE = 50, 12  # in the smallest run of a plot; the second for slow protocols

app = group("Simulate a protocol with many people in this process: its result, its cost, and who is caught.")

Data = Annotated[
    str | None,
    option("Clear records (CSV, Parquet or Arrow), one per person; by default synthetic people.", "FILE"),
]
Dropouts = Annotated[str, option("Share of the people who leave.", "SHARE")]
Cheaters = Annotated[str, option("Share of the people who cheat.", "SHARE")]
Seed = Annotated[int, option("Seed for the choice of people, who leaves and who cheats.", min=0)]
Plot = Annotated[
    str | None,
    option("Simulate n/16, n/8, … n people, and plot time by n into this file (.png, .svg or .pdf).", "FILE"),
]


@app.command("users")
def users(
    *,
    n: Annotated[
        int | None,
        option("Number of people.", None, "--n", min=1, show_default="1000; frequency and mix: 100"),
    ] = None,
    protocol: Annotated[ProtocolName, option("The protocol.")] = "aggregation",
    learn: Annotated[
        str, option("The learner: tables, or a command of masquerade learn.", "LEARNER")
    ] = "naive-bayes",
    target: Annotated[
        str | None, option("The variable to predict; income for synthetic people.", "VARIABLE")
    ] = None,
    features: Annotated[
        str | None,
        option("The other variables.", "A,B", show_default="all; a few with synthetic people and frequency"),
    ] = None,
    structure: Annotated[
        str | None, option("With network: its links, as 'B<-A,S; C<-B' or a file.", "TEXT|FILE")
    ] = None,
    data: Data = None,
    disguise: Annotated[
        str | None, option("Policy by which people first disguise their records.", "POLICY")
    ] = None,
    dropouts: Dropouts = "0",
    cheaters: Cheaters = "0",
    colluders: Annotated[
        str | None,
        option("Aggregation: share of people who may collude with the server.", "SHARE", show_default="0.1"),
    ] = None,
    server: Annotated[
        Literal["semi-honest", "malicious"] | None,
        option("Aggregation: the behaviour of the server to protect against.", show_default="malicious"),
    ] = None,
    leaders: Annotated[
        int | None, option("Mix: number of servers that shuffle.", min=1, max=20, show_default="2")
    ] = None,
    seed: Seed = 1,
    plot: Plot = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Count people who each keep their own record, learn from the counts, and compare with clear records.

    People are objects that exchange bytes with the server. To be fast, most of them share work; the time of
    a device is measured on users that share none. Cheaters add false votes: frequency mining and the mixnet
    identify them, aggregation cannot.

    Example: masquerade simulate users --n 1000 --dropouts 0.05 --learn naive-bayes --plot time.png
    """
    entry = learner("network" if learn == "parameters" else learn)  # "parameters" is an old name
    _only_for("--protocol aggregation", protocol == "aggregation", colluders=colluders, server=server)
    _only_for("--protocol mix", protocol == "mix", leaders=leaders)
    _only_for("--learn network", entry.name == "network", structure=structure)
    output.check_plot(plot, overwrite=overwrite)
    from masquerade.cli.simulation_report import BY, users_text  # noqa: PLC0415  (slow to load)
    from masquerade.simulation import Lesson, Trouble  # noqa: PLC0415
    from masquerade.simulation import users as simulated  # noqa: PLC0415
    from masquerade.simulation.people import FEW, TARGET  # noqa: PLC0415

    people, records = _population(data, disguise, n or PEOPLE_BY_DEFAULT[protocol], seed, exact=n is not None)
    schema = people.policy.schema
    chosen = None if features is None else names_in(features, schema, "--features")
    if data is None:
        target = TARGET if target is None and entry.name not in {"rules", "structure"} else target
        if protocol == "frequency" and chosen is None and structure is None:
            chosen = FEW if target == TARGET else (*FEW, TARGET)
    parents = None if structure is None else structure_in(structure, schema, "--structure")
    lesson = Lesson(entry.name, target, chosen, parents)
    lesson.about(schema)
    given = {"colluders": colluders, "server": server, "leaders": leaders}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

    def run(size: int) -> Census:
        trouble = Trouble(dropouts, cheaters, seed)
        return simulated(people.first(size), lesson, protocol, trouble=trouble, **options)

    learnt = entry.title[0].upper() + entry.title[1:]
    drawing = _Drawing(
        f"{learnt} by {BY[protocol]}",
        "Below 300 people, each person is a neighbour of all others." if protocol == "aggregation" else "",
        LEAST_PEOPLE if protocol == "aggregation" else FEWEST_PEOPLE,
    )
    with output.report_warnings():
        result, rungs = _run_ladder(run, len(people), plot, drawing, overwrite=overwrite)
    _show(result, lambda: users_text(result, learnt), records, rungs, json=json)


@app.command("k-anonymity")
def k_anonymity(
    *,
    n: Annotated[
        int | None, option("Number of people.", None, "--n", min=1, show_default="300; formulation 2: 20")
    ] = None,
    k: Annotated[
        int, option("Least number of rows that share their quasi-identifiers.", None, "--k", "-k")
    ] = 5,
    formulation: Annotated[
        int,
        option(
            "1: open the rows of all classes that are large enough; 2: suppress values that differ within a "
            "group.",
            min=1,
            max=2,
        ),
    ] = 1,
    mode: Annotated[
        Literal["production", "faithful"] | None,
        option(
            "Formulation 1: with a randomness server, or with a dealer as published.",
            show_default="production",
        ),
    ] = None,
    data: Data = None,
    quasi: Annotated[
        list[str] | None, option("Columns by which a person might be recognised.", "COLUMNS")
    ] = None,
    sensitive: Annotated[
        list[str] | None,
        option("Formulation 1: columns whose values are opened when a class opens.", "COLUMNS"),
    ] = None,
    dropouts: Dropouts = "0",
    cheaters: Cheaters = "0",
    accept_cost: Annotated[bool, flag("Formulation 2: allow more than 300 people.", "--accept-cost")] = False,
    seed: Seed = 1,
    plot: Plot = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Collect k-anonymous rows from people who trust no server with their row.

    Cheaters send a bad share (formulation 1) or a row they cannot prove (formulation 2). Neither harms other
    participants. Bad shares are found when a class opens; cheaters are identified in formulation 2 and with
    --mode faithful.

    Example: masquerade simulate k-anonymity --n 1000 --k 10 --cheaters 0.01
    """
    by, opened = columns_in("--quasi", quasi), columns_in("--sensitive", sensitive)
    _only_for("formulation 1", formulation == 1, mode=mode, sensitive=sensitive)
    _only_for("formulation 2", formulation == 2, accept_cost=accept_cost or None)
    if data is not None and not (by and (opened or formulation == 2)):
        raise InputError("With --data, name the columns with --quasi and (formulation 1) --sensitive.")
    output.check_plot(plot, overwrite=overwrite)
    from masquerade import simulation  # noqa: PLC0415  (slow to load)
    from masquerade.simulation.people import QUASI, SENSITIVE  # noqa: PLC0415

    people, records = _population(
        data, None, n or (300 if formulation == 1 else 20), seed, exact=n is not None
    )
    trouble = simulation.Trouble(dropouts, cheaters, seed)

    def run(size: int) -> KAnonymity | SuppressionRunResult:
        some = people.first(size)
        if formulation == 2:
            return simulation.suppression(some, k, by or QUASI, trouble=trouble, accept_cost=accept_cost)
        return simulation.k_anonymity(
            some, k, by or QUASI, opened or SENSITIVE, mode or "production", trouble=trouble
        )

    form = f", {mode or 'production'}" if formulation == 1 else ""
    title = f"k-anonymity, formulation {formulation}{form}, k = {k}"
    least = max(LEAST_PEOPLE, k) if formulation == 1 else max(2 * k, 8)
    result, rungs = _run_ladder(run, len(people), plot, _Drawing(title, "", least), overwrite=overwrite)
    from masquerade.cli.simulation_report import k_anonymity_text, suppression_text  # noqa: PLC0415

    text = k_anonymity_text if formulation == 1 else suppression_text
    _show(result, lambda: text(result), records, rungs, json=json)


@app.command("hidden")
def simulate_hidden(
    *,
    model: Annotated[
        Literal["structure", "k-means", "tree"], option("The model: links, clusters or a decision tree.")
    ] = "structure",
    data: Annotated[
        str | None,
        option("Clear records (CSV, Parquet or Arrow), as if joined; by default synthetic patients.", "FILE"),
    ] = None,
    owners: Annotated[
        str | None,
        option(
            "The owners of the variables, as 'north=A,B; south=C'.",
            show_default="two, in turn; three with MPyC",
        ),
    ] = None,
    order: Annotated[
        str | None,
        option("Order of all variables, parents before children.", "A,B", show_default="as in the data"),
    ] = None,
    n: Annotated[int | None, option("Number of records.", None, "--n", min=1, show_default="1000")] = None,
    score: Annotated[
        Literal["k2", "bic", "aic", "bdeu"] | None, option("Score of the families.", show_default="k2")
    ] = None,
    max_parents: Annotated[
        int | None, option("Largest number of parents of a variable.", min=0, show_default="2")
    ] = None,
    hide_order: Annotated[
        bool,
        flag("Open only the final parents, not the winner of each step; every set of parents is scored."),
    ] = False,
    engine: Annotated[
        Literal["dealer", "mpyc"] | None,
        option(
            "The MPC engine: two owners with a dealer of randomness, or three or more owners without a "
            "dealer, in processes of MPyC.",
            show_default="dealer",
        ),
    ] = None,
    target: Annotated[
        str | None,
        option("With tree: the variable to predict.", "VARIABLE", show_default="the last variable"),
    ] = None,
    max_depth: Annotated[int | None, option("With tree: largest depth.", min=0, show_default="2")] = None,
    k: Annotated[
        int | None, option("With k-means: number of clusters.", None, "--k", min=1, show_default="2")
    ] = None,
    start: Annotated[
        list[str] | None,
        option(
            "With k-means: the numbers of a first centre; repeat for all centres.",
            "1,2.5",
            show_default="secret records",
        ),
    ] = None,
    partition: Annotated[
        Literal["columns", "rows", "cells"] | None,
        option("With k-means: how the two owners share the records.", show_default="cells, arbitrarily"),
    ] = None,
    least_size: Annotated[
        int | None,
        option("With k-means: least size of a cluster that opens.", min=1, show_default="10"),
    ] = None,
    steps: Annotated[
        int | None,
        option(
            "With k-means: largest number of steps; with --hide-steps the exact number.",
            min=1,
            show_default="30",
        ),
    ] = None,
    hide_steps: Annotated[
        bool, flag("With k-means: open centres and sizes only once, after all steps.")
    ] = False,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Learn links, clusters or a tree from records of several owners, on secret shares.

    No count is opened, except the sizes of clusters. Owners compute by MPC, with a dealer of randomness (the
    helper) unless --engine is mpyc. The result is compared with the same learner on the joined records.

    Example: masquerade simulate hidden --n 10000 --max-parents 2
    """
    from masquerade.simulation import people_from  # noqa: PLC0415  (slow to load)

    _only_for(
        "--model structure", model == "structure",
        order=order, score=score, max_parents=max_parents, hide_order=hide_order or None, engine=engine,
    )  # fmt: skip
    _only_for("--model tree", model == "tree", target=target, max_depth=max_depth)
    _only_for(
        "--model k-means", model == "k-means",
        k=k, start=start or None, partition=partition, least_size=least_size, steps=steps,
        hide_steps=hide_steps or None,
    )  # fmt: skip
    _only_for("--model structure or tree", model != "k-means", owners=owners)
    size = n or 1000
    if data is None:
        network = mq.data.eleven_nodes() if model == "k-means" else mq.data.network("asia")
        people = people_from(network.sample(size, seed), mq.Policy.clear(network.schema), seed=None)
    else:
        people, _ = _population(data, None, size, seed, exact=n is not None)
    schema = people.policy.schema
    held = owners_in(owners, schema, "--owners") if owners else _owner_parts(tuple(schema), engine)
    if model == "structure":
        listed = tuple(schema) if order is None else names_in(order, schema, "--order")
        options = {"max_parents": 2 if max_parents is None else max_parents, "score": score or "k2"}
        shared = {"hide_order": hide_order, "engine": engine or "dealer"}
        _hidden_structure(people, held, listed, options, shared, json=json)
    elif model == "tree":
        wanted = tuple(schema)[-1] if target is None else variable_named(target, schema, "--target").name
        _hidden_tree(people, held, wanted, 2 if max_depth is None else max_depth, json=json)
    else:
        clustering = {
            "k": k or 2,
            "start": CENTRES.read(start, schema, "--start") if start else None,
            "least_size": least_size or 10,
            "steps": steps or 30,
            "hide_steps": hide_steps,
        }
        _hidden_clusters(people, partition or "cells", seed, clustering, json=json)


def _hidden_structure(
    people: People,
    held: dict[str, tuple[str, ...]],
    order: tuple[str, ...],
    options: dict[str, Any],
    shared: dict[str, Any],
    *,
    json: bool,
) -> None:
    from masquerade.cli.simulation_report import hidden_text  # noqa: PLC0415  (slow to load)
    from masquerade.simulation import hidden_structure  # noqa: PLC0415

    schema = people.policy.schema
    with output.progress("learning on shares"):
        found = hidden_structure(people.codes, schema, held, order, **shared, **options)
    clear = mq.learn.structure(people.in_the_open(), order, **options).structure
    if json:
        output.emit({**found.to_dict(), "same_as_clear": clear == found.structure})
        return
    output.emit(output.render(*hidden_text(found, clear)))


@app.command("control")
def control(
    *,
    ask: Annotated[
        list[str] | None,
        option(
            "A cell to count, as 'A=yes,B=no'; may be repeated. By default cells of one to three variables.",
            "CELL",
        ),
    ] = None,
    data: Data = None,
    n: Annotated[int | None, option("Number of records.", None, "--n", min=1, show_default="1000")] = None,
    most_overlap: Annotated[
        int, option("Largest number of people that two answered cells may share.", min=0)
    ] = 100,
    least_people: Annotated[int, option("Least number of people in a cell.", min=0)] = 5,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Query two servers for counts without revealing the query; rules may refuse the answer.

    The servers hold the same table. On secret shares they check the query against all earlier queries. They
    learn neither the query nor whether it was answered.

    Example: masquerade simulate control --ask smoke=yes --ask smoke=yes,bronc=yes
    """
    from masquerade.cli.simulation_report import control_text  # noqa: PLC0415  (slow to load)
    from masquerade.protocols.mpc.private_queries import OverlapRules  # noqa: PLC0415
    from masquerade.simulation import people_from, private_answers  # noqa: PLC0415
    from masquerade.simulation.private_queries import random_questions  # noqa: PLC0415

    size = n or 1000
    if data is None:
        network = mq.data.network("asia")
        people = people_from(network.sample(size, seed), mq.Policy.clear(network.schema), seed=None)
    else:
        people, _ = _population(data, None, size, seed, exact=n is not None)
    schema = people.policy.schema
    asked = [_cell(text, schema) for text in ask] if ask else random_questions(schema, 8, seed)
    rules = OverlapRules(most_overlap, least_people)
    with output.progress("answering on shares"):
        found = private_answers(people.codes, schema, asked, rules)
    if json:
        output.emit(found.to_dict())
        return
    output.emit(output.render(*control_text(found)))


def _cell(text: str, schema: Schema) -> dict[str, Category]:
    found: dict[str, Category] = {}
    for part in text.split(","):
        name, equals, label = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"--ask {text!r}: a cell is given as 'A=yes,B=no'.")
        variable = variable_named(name, schema, "--ask")
        if name in found:
            raise InputError(f"--ask {text!r} names {name!r} twice.")
        found[name] = category_called(variable, label, "--ask")
    return found


def _hidden_tree(
    people: People, held: dict[str, tuple[str, ...]], target: str, depth: int, *, json: bool
) -> None:
    from masquerade.simulation import hidden_tree  # noqa: PLC0415  (slow to load)

    with output.progress("learning on shares"):
        found = hidden_tree(people.codes, people.policy.schema, held, target, max_depth=depth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of empty nodes, which a tree on shares does not reveal
        grown = mq.learn.decision_tree(people.in_the_open(), target, max_depth=depth, significance=None)
    clear = mq.learn.LabelTree.of(grown)
    _show_hidden(found, f"A tree for {target}", same=clear.to_dict() == found.model.to_dict(), json=json)


def _hidden_clusters(
    people: People, partition: str, seed: int, options: dict[str, Any], *, json: bool
) -> None:
    import numpy as np  # noqa: PLC0415  (help does not need it)

    from masquerade.simulation import hidden_clusters  # noqa: PLC0415

    schema = people.policy.schema
    shape = (len(people), len(schema))
    rows, columns = np.indices(shape)
    random_cells = np.random.default_rng(seed).integers(0, 2, shape)
    holder = {"rows": rows % 2, "columns": columns % 2, "cells": random_cells}[partition]
    with output.progress("learning on shares"):
        found = hidden_clusters(people.codes, schema, holder, ("north", "south"), **options)
    # start at the same centres, or at the final centres if the first centres are secret
    start = found.model.centres if options["start"] is None else options["start"]
    clear = mq.learn.k_means(people.in_the_open(), len(start), start=start)
    same = len(clear.centres) == len(found.model.centres) and np.allclose(
        clear.centres, found.model.centres, rtol=0, atol=1e-9
    )
    _show_hidden(found, f"{counted(options['k'], 'cluster')}", same=bool(same), json=json)


def _show_hidden(found: HiddenModel[Any], what: str, *, same: bool, json: bool) -> None:
    from masquerade.cli.simulation_report import hidden_model_text  # noqa: PLC0415  (slow to load)

    if json:
        output.emit({**found.to_dict(), "same_as_clear": same})
        return
    output.emit(output.render(*hidden_model_text(found, what, same=same)))


def _owner_parts(names: tuple[str, ...], engine: str | None) -> dict[str, tuple[str, ...]]:
    """Distribute variables in turn to as many owners as the engine needs."""
    owners = ("north", "south", "registry") if engine == "mpyc" else ("north", "south")
    return {owner: names[start :: len(owners)] for start, owner in enumerate(owners)}


def _only_for(what: str, applies: bool, **given: object) -> None:  # noqa: FBT001
    """Raise InputError if `applies` is False and an option that is only for `what` is given."""
    for name, value in given.items():
        if value is not None and not applies:
            raise InputError(f"--{name.replace('_', '-')} is for {what}.")


def _population(
    data: str | None, disguise: str | None, n: int, seed: int, *, exact: bool
) -> tuple[People, int]:
    """Return n people, synthetic or from a file in random order, and the number of records of the file.

    If the file has fewer than n records, raise InputError if `exact`, and return fewer people otherwise. If
    it has more and `exact` is False, print a note.
    """
    from masquerade.simulation import people_from, synthetic_people  # noqa: PLC0415

    policy = None if disguise is None else mq.Policy.load(disguise)
    if data is None:
        return synthetic_people(n, policy, seed=seed), n
    population = people_from(data, policy, seed=seed)
    if exact and len(population) < n:
        raise InputError(f"{data}: has {counted(len(population), 'record')}, fewer than --n {n:,}.")
    if not exact and len(population) > n:
        output.say(f"a random {n:,} of the {len(population):,} records participate; --n changes the number.")
    return population.first(min(n, len(population))), len(population)


def _show(
    result: Any, text: Callable[[], list[Any]], records: int, rungs: dict[str, Any], *, json: bool
) -> None:
    """Print a result as text, or as JSON with the number of all records."""
    if not json:
        output.emit(output.render(*text()))
        return
    found: dict[str, Any] = {}
    for name, value in result.to_dict().items():
        found |= {name: value} | ({"records": records} if name == "n" else {})
    output.emit(found | rungs)


class _Drawing(NamedTuple):
    """Title and note of a plot, and the least number of people in its series of runs."""

    title: str
    note: str
    least: int


def _run_ladder(
    run: Callable[[int], Any], n: int, plot: str | None, drawing: _Drawing, *, overwrite: bool
) -> tuple[Any, dict[str, Any]]:
    """Simulate n people, and smaller numbers too for a plot; return the last result and all costs."""
    from masquerade.simulation.costs import ladder, timing_plot  # noqa: PLC0415

    sizes: Sequence[int] = [n] if plot is None else ladder(n, drawing.least)
    rungs, result = {}, None
    with output.progress("simulating") as advance:
        for done, size in enumerate(sizes):
            advance(sum(sizes[:done]), sum(sizes))
            result = run(size)
            rungs[size] = result.cost
    if plot is None:
        return result, {}
    picture = output.picture_of(timing_plot(rungs, drawing.title, drawing.note), plot)
    output.write_whole(plot, picture, overwrite=overwrite)
    run_for = ", ".join(f"{size:,}" for size in sizes)
    output.say(f"a plot of time by number of people ({run_for}) is in {plot}.")
    return result, {"ladder": [{"n": size, "cost": asdict(cost)} for size, cost in rungs.items()]}
