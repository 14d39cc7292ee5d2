"""`masquerade learn naive-bayes`, `tree` and `linear`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

import masquerade as mq
from masquerade.cli.data_source import Given, Place
from masquerade.cli.learner_arguments import names_given, scores_given
from masquerade.cli.learner_commands import (
    Clear,
    Features,
    ModelJson,
    ModelOut,
    Person,
    Plot,
    Results,
    Target,
    Weights,
    learn,
)
from masquerade.cli.options import AcceptIncomplete, Engine, Overwrite, PolicyFile, Reports, Url, Verbose
from masquerade.cli.query_arguments import known
from masquerade.core.errors import InputError


def naive_bayes(
    data: Reports,
    *,
    policy: PolicyFile,
    target: Target,
    features: Features = None,
    alpha: Annotated[float, typer.Option(help="Pseudo-count added to every cell of a class.")] = 1.0,
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
    """Learn a naive Bayes classifier, each probability with its standard error.

    Example: masquerade learn naive-bayes disguised.csv -p policy.yaml --target smoker --out model.json
    """
    loaded = mq.Policy.load(policy)
    known(target, loaded.schema, "--target")
    names = names_given(features, loaded.schema, "--features")
    learn(
        Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete),
        lambda source: mq.learn.naive_bayes(source, target, names, alpha),
        Results(out, overwrite, json),
    )


def tree(
    data: Reports,
    *,
    policy: PolicyFile,
    target: Target,
    features: Features = None,
    criterion: Annotated[
        Literal["gain", "gain_ratio"], typer.Option(help="What a split is chosen by: ID3's or C4.5's.")
    ] = "gain",
    max_depth: Annotated[int | None, typer.Option(help="Most questions on a way down.")] = None,
    min_records: Annotated[float, typer.Option(help="Least records of two branches of a split.")] = 1.0,
    significance: Annotated[
        float, typer.Option(help="Chance of a split where nothing depends on anything; 1: no test.")
    ] = 0.05,
    prune: Annotated[
        float | None, typer.Option(help="Cut back by pessimistic errors at this confidence (C4.5: 0.25).")
    ] = None,
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
    """Grow a decision tree whose splits must beat the noise of the disguise.

    Example: masquerade learn tree disguised.csv -p policy.yaml --target smoker --max-depth 3 --plot tree.svg
    """
    loaded = mq.Policy.load(policy)
    known(target, loaded.schema, "--target")
    names = names_given(features, loaded.schema, "--features")
    if not 0 < significance <= 1:
        raise InputError(f"--significance must be above 0 and at most 1. Got {significance:g} instead.")
    learn(
        Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete),
        lambda source: mq.learn.decision_tree(
            source,
            target,
            names,
            criterion,
            max_depth=max_depth,
            min_records=min_records,
            significance=None if significance == 1 else significance,
            prune=prune,
        ),
        Results(out, overwrite, json, plot),
    )


def linear(
    data: Reports,
    *,
    policy: PolicyFile,
    target: Target,
    features: Features = None,
    loss: Annotated[
        Literal["pocket", "squares", "logistic"], typer.Option(help="What is made small.")
    ] = "pocket",
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="Numbers of a feature's categories, or 'indicator'; repeat for more.",
            metavar="VARIABLE=1,2,5",
        ),
    ] = None,
    ridge: Annotated[float, typer.Option(help="Penalty of large coefficients; not for pocket.")] = 0.0,
    counts: Annotated[
        Literal["auto", "mle", "simplex", "clip", "unbiased"],
        typer.Option(help="What becomes of negative counts."),
    ] = "auto",
    steps: Annotated[int, typer.Option(help="Steps of the pocket algorithm.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the pocket algorithm.", min=0)] = 0,
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
    """Learn a linear classifier by expected cost: pocket perceptron, least squares or logistic.

    Example: masquerade learn linear disguised.csv -p policy.yaml --target smoker --loss logistic
    """
    loaded = mq.Policy.load(policy)
    known(target, loaded.schema, "--target")
    names = names_given(features, loaded.schema, "--features")
    numbers = scores_given(scores or [], loaded.schema)
    learn(
        Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete),
        lambda source: mq.learn.linear_classifier(
            source,
            target,
            names,
            loss,
            numbers,
            ridge=ridge,
            counts=counts,
            steps=steps,
            seed=seed,
        ),
        Results(out, overwrite, json),
    )
