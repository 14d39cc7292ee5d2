"""`masquerade session example`: a deployment to try out, on this machine or on several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from masquerade.cli import output
from masquerade.cli.options import Folder, option
from masquerade.core.errors import InputError
from masquerade.services.parties.kinds import BUILT_IN, EXAMPLE

if TYPE_CHECKING:
    from masquerade.services.parties.session import LearningGoal


def example(
    folder: Folder,
    *,
    protocol: Annotated[str, option(f"The protocol: {', '.join(BUILT_IN)}.", "KIND")] = EXAMPLE,
    people: Annotated[int, option("Number of synthetic people.", None, "--n", min=10)] = 2000,
    epsilon: Annotated[
        float | None,
        option("For pooled-counts: two hospitals, without the registry, pool counts with noise of this ε."),
    ] = None,
    learn: Annotated[
        list[str] | None,
        option(
            "A further session: its name, and what it learns, written as in a session file; may be repeated.",
            "NAME={model: …}",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        option("The machine of each node, to write a complete folder for each.", "NODE=HOST[:PORT],…"),
    ] = None,
) -> None:
    """Write a deployment to try out on this machine: two hospitals, a registry and a university.

    A protocol for exactly two parties runs between the hospitals.

    The deployment consists of certificates, identities, settings, policies and synthetic records. The
    commands that start it are printed. With --hosts, each node has a complete folder for its own machine,
    with the only copy of its key, a systemd unit and a compose file.

    Example: masquerade session example try
    """
    from masquerade.services.parties.example import (  # noqa: PLC0415
        MINER,
        two_hospitals_and_a_registry,
        two_hospitals_with_noise,
        write_deployment,
    )

    output.check_new(folder)
    if epsilon is None:
        plan = two_hospitals_and_a_registry(protocol, people)
    else:
        plan = two_hospitals_with_noise(protocol, people, epsilon)
    plan = replace(plan, more=_goals(learn or ()))
    files = write_deployment(folder, plan, hosts=None if hosts is None else _hosts(hosts))
    coordinator = files.get(MINER, files[next(iter(files))])
    output.say(f"wrote a deployment of {len(files)} nodes into {folder}. To run it:")
    if hosts is not None:
        output.say(
            f"move each folder to its machine and delete it here; {folder / 'tls'} stays with the authority. "
            f"Run each command where its files are; {folder / 'session.yaml'} goes to "
            f"{coordinator.parent.name}."
        )
    lines = [f"masquerade {file.stem} serve {file} &" for file in files.values()]
    lines += [
        f"masquerade session create {folder / 'session.yaml'} --node {coordinator}",
        f"masquerade session run example --node {coordinator} --out model.json",
        f"masquerade party ledger {folder / 'north' / 'state'}",
    ]
    output.emit("\n".join(lines) + "\n")


def _goals(texts: Iterable[str]) -> dict[str, LearningGoal]:
    """Return the goals of further sessions, by name."""
    import yaml  # noqa: PLC0415
    from pydantic import ValidationError  # noqa: PLC0415

    from masquerade.services.parties.session import LearningGoal  # noqa: PLC0415

    goals: dict[str, LearningGoal] = {}
    for text in texts:
        name, _, goal = text.partition("=")
        try:
            goals[name] = LearningGoal.model_validate(yaml.safe_load(goal))
        except (yaml.YAMLError, ValidationError):
            raise InputError(
                f"--learn: {name!r} must be followed by what is learnt, such as "
                "'two={model: tables, tables: [[S, L]]}'."
            ) from None
        if name in {"", "session"}:
            raise InputError("--learn: name the session, as in 'two={model: …}'; 'session' is taken.")
    return goals


def _hosts(text: str) -> dict[str, str]:
    """Return the hosts by node."""
    hosts: dict[str, str] = {}
    for item in text.split(","):
        name, _, host = item.strip().partition("=")
        if not name or not host or name in hosts:
            raise InputError(
                f"--hosts: each node is named once, as north=10.0.0.1,south=10.0.0.2. Got {item.strip()!r}."
            )
        hosts[name] = host
    return hosts
