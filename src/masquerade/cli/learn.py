"""`masquerade learn`: models from disguised records; networks, structures and rules here."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

import masquerade as mq
from masquerade.cli import learn_classifiers
from masquerade.cli.data_source import Given, Place
from masquerade.cli.learner_arguments import (
    correction_given,
    items_given,
    links_given,
    names_given,
    structure_given,
)
from masquerade.cli.learner_commands import (
    Clear,
    ModelJson,
    ModelOut,
    Person,
    Plot,
    Results,
    Weights,
    learn,
)
from masquerade.cli.options import AcceptIncomplete, Engine, Overwrite, PolicyFile, Reports, Url, Verbose
from masquerade.core.errors import InputError

app = typer.Typer(
    help="Learn a model from disguised (or clear) records.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("network")
def network(
    data: Reports,
    *,
    policy: PolicyFile,
    structure: Annotated[
        str,
        typer.Option(
            help="Parents as 'B<-A,S; C<-B', or a file: a learnt structure, a network, BIF, or JSON with the "
            "list of parents of every node.",
            metavar="TEXT|FILE",
            show_default=False,
        ),
    ],
    prior: Annotated[float, typer.Option(help="Pseudo-count added to every cell (MAP).")] = 0.0,
    equivalent_size: Annotated[
        float | None, typer.Option(help="Records that a BDeu prior is worth, instead of --prior.")
    ] = None,
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="Set negative estimates to zero and rescale (biased).")
    ] = False,
    weights: Weights = None,
    person: Person = None,
    clear: Clear = False,
    accept_incomplete: AcceptIncomplete = False,
    engine: Engine = "auto",
    url: Url = None,
    verbose: Verbose = False,
    json: ModelJson = False,
    plot: Plot = None,
    out: ModelOut = None,
    overwrite: Overwrite = False,
) -> None:
    """Estimate the parameters of a Bayesian network, each with its standard error.

    Example: masquerade learn network disguised.csv -p policy.yaml --structure "cough<-smoker; smoker<-region"
    """
    loaded = mq.Policy.load(policy)
    parents = structure_given(structure, loaded.schema)
    learn(
        Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete),
        lambda source: mq.learn.bayesian_network(
            source, parents, prior=prior, equivalent_size=equivalent_size, nonnegative=nonnegative
        ),
        Results(out, overwrite, json, plot),
    )


@app.command("structure")
def structure(
    data: Reports,
    *,
    policy: PolicyFile,
    order: Annotated[
        str | None,
        typer.Option(help="All variables, parents first: K2. Without it, hill climbing.", metavar="A,B,…"),
    ] = None,
    max_parents: Annotated[int, typer.Option(help="Most parents of a node.", min=0)] = 3,
    score: Annotated[
        Literal["bic", "aic", "k2", "bdeu"], typer.Option(help="What a structure is judged by.")
    ] = "bic",
    correction: Annotated[
        str,
        typer.Option(
            help="How gains account for the noise: design-effect, none, constant:C (C*), eta:E.",
            metavar="RULE",
        ),
    ] = "design-effect",
    required: Annotated[
        list[str] | None, typer.Option(help="A link that must be there; repeat for more.", metavar="A->B")
    ] = None,
    forbidden: Annotated[
        list[str] | None, typer.Option(help="A link that must not; repeat for more.", metavar="A->B")
    ] = None,
    tabu: Annotated[int, typer.Option(help="Moves that climbing may go on without a gain.", min=0)] = 10,
    restarts: Annotated[int, typer.Option(help="Times that climbing starts again.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the restarts.", min=0)] = 0,
    weights: Weights = None,
    person: Person = None,
    clear: Clear = False,
    accept_incomplete: AcceptIncomplete = False,
    engine: Engine = "auto",
    url: Url = None,
    verbose: Verbose = False,
    json: ModelJson = False,
    plot: Plot = None,
    out: ModelOut = None,
    overwrite: Overwrite = False,
) -> None:
    """Find the links of a Bayesian network over all variables of the policy, with the strength of each.

    Example: masquerade learn structure disguised.csv -p policy.yaml --out structure.json
    """
    loaded = mq.Policy.load(policy)
    rule = correction_given(correction)
    names = names_given(order, loaded.schema, "--order")
    needed = links_given(required or [], loaded.schema, "--required")
    refused = links_given(forbidden or [], loaded.schema, "--forbidden")
    learn(
        Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete),
        lambda source: mq.learn.structure(
            source,
            names,
            max_parents=max_parents,
            score=score,
            correction=rule,
            required=needed,
            forbidden=refused,
            tabu=tabu,
            restarts=restarts,
            seed=seed,
        ),
        Results(out, overwrite, json, plot),
        drawn=lambda source, found: mq.learn.bayesian_network(source, found).plot(),
    )


@app.command("rules")
def rules(
    data: Reports,
    *,
    policy: PolicyFile,
    min_support: Annotated[float, typer.Option(help="Least share of records with both sides.")] = 0.05,
    min_confidence: Annotated[float, typer.Option(help="Least share of the left side's records.")] = 0.6,
    max_len: Annotated[int | None, typer.Option(help="Most items of a rule.")] = None,
    lhs: Annotated[
        list[str] | None,
        typer.Option(help="Only these items on the left; repeat for more.", metavar="VARIABLE[=CATEGORY]"),
    ] = None,
    rhs: Annotated[
        list[str] | None,
        typer.Option(help="Only these items on the right; repeat for more.", metavar="VARIABLE[=CATEGORY]"),
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Option(help="Only these items anywhere; repeat for more.", metavar="VARIABLE[=CATEGORY]"),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    rows: Annotated[int, typer.Option(help="Most rules shown.", min=1)] = 20,
    sort: Annotated[
        Literal["lift", "confidence", "support", "leverage", "conviction"],
        typer.Option(help="Which rules are shown first."),
    ] = "lift",
    weights: Weights = None,
    person: Person = None,
    clear: Clear = False,
    accept_incomplete: AcceptIncomplete = False,
    engine: Engine = "auto",
    url: Url = None,
    verbose: Verbose = False,
    json: ModelJson = False,
    out: ModelOut = None,
    overwrite: Overwrite = False,
) -> None:
    """Find association rules, with standard errors of supports and confidences.

    Example: masquerade learn rules disguised.csv -p policy.yaml --min-support 0.1 --rhs cough=yes
    """
    loaded = mq.Policy.load(policy)
    for name, value in (("--min-support", min_support), ("--min-confidence", min_confidence)):
        if not 0 < value <= 1:
            raise InputError(f"{name} must be above 0 and at most 1. Got {value:g} instead.")
    if not 0 < level < 1:
        raise InputError(f"--level must be between 0 and 1, such as 0.95. Got {level:g} instead.")
    left, right, only = (
        items_given(texts, loaded.schema, option)
        for texts, option in ((lhs, "--lhs"), (rhs, "--rhs"), (items, "--items"))
    )
    learn(
        Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete),
        lambda source: mq.learn.association_rules(
            source,
            min_support,
            min_confidence,
            max_len=max_len,
            lhs=left,
            rhs=right,
            level=level,
            items=only,
        ),
        Results(out, overwrite, json),
        text=lambda found: found.summary(rows, sort),
    )


app.command("naive-bayes")(learn_classifiers.naive_bayes)
app.command("tree")(learn_classifiers.tree)
app.command("linear")(learn_classifiers.linear)
