"""Report columns whose labels differ by stratum, such as direct answers in one and crosswise in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from masquerade.channels.basic import identity
from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.core.errors import PolicyError
from masquerade.core.schema import Category, Schema, Variable

Channels = Mapping[tuple[str, ...], Channel | ClassResponse]
Strata = tuple[str, Mapping[Category, Mapping[str, Channel]]]


def unite_labels(schema: Schema, channels: Channels, strata: Strata) -> tuple[Channels, Strata]:
    """Return the channels with the labels of all strata, so that one column can contain all reports.

    A label that a stratum does not use has probability 0 there. Designs of several columns are unchanged.
    """
    by, stratum_channels = strata
    united = dict(channels)
    changed = {label: dict(chosen) for label, chosen in stratum_channels.items()}
    for name in dict.fromkeys(name for chosen in stratum_channels.values() for name in chosen):
        if name not in schema:
            continue
        variable = schema[name]
        usual = channels.get((name,), identity(len(variable)))
        used = [usual, *(chosen[name] for chosen in stratum_channels.values() if name in chosen)]
        each = [_labels_of(channel, variable) for channel in used]
        if any(labels is None for labels in each) or len(set(each)) == 1:
            continue
        every = tuple(dict.fromkeys(label for labels in each if labels is not None for label in labels))
        if isinstance(usual, Channel):
            united[(name,)] = _widen(usual, variable, every)
        for chosen in changed.values():
            if name in chosen:
                chosen[name] = _widen(chosen[name], variable, every)
    return united, (by, changed)


def check_same_reports(channel: Channel, usual: Channel, where: str) -> None:
    """Raise PolicyError if a stratum's reports have different columns."""
    if (channel.reports, channel.labels, channel.columns) != (usual.reports, usual.labels, usual.columns):
        raise PolicyError(
            f"{where}: a design of several columns must be the same in all strata. Give each design a "
            "policy, and join the sources with mq.Merged."
        )


def _labels_of(channel: Channel | ClassResponse, variable: Variable) -> tuple[Category, ...] | None:
    """Return the labels of a report of one column; None for other reports."""
    if isinstance(channel, ClassResponse) or channel.columns or channel.truths != len(variable):
        return None
    if channel.labels is not None:
        return channel.labels
    return variable.categories if channel.reports == len(variable) else None


def _widen(channel: Channel, variable: Variable, labels: tuple[Category, ...]) -> Channel:
    """Return the same channel with reports among a larger set of labels."""
    place = np.array([labels.index(label) for label in _labels_of(channel, variable) or ()], dtype=np.int32)
    return replace(channel, outcomes=place[channel.outcomes], reports=len(labels), labels=labels)
