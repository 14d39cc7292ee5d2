"""Variables of a policy that go through one channel together."""

from __future__ import annotations

from dataclasses import dataclass

from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.core.errors import PolicyError
from masquerade.core.schema import Category, Variable

MOST_JUDGED = 512  # most combinations of a joint channel that is checked when a policy is read


@dataclass(frozen=True, slots=True)
class Group:
    """Variables that go through one channel together; a single variable in most policies.

    Parameters
    ----------
    names, sizes : tuples
        The variables and their numbers of categories.
    channel : Channel or ClassResponse
        The channel over all combinations of the variables, or class response on blocks of them.
    report_sizes, reports : tuples
        Number of labels and name of each report column. Unless the report columns have their own names, there
        is one column per variable, with the variable's name.
    """

    names: tuple[str, ...]
    channel: Channel | ClassResponse
    sizes: tuple[int, ...]
    report_sizes: tuple[int, ...]
    reports: tuple[str, ...]

    @property
    def disguised(self) -> bool:
        """Return True if the channel hides anything."""
        return not self.channel.is_identity

    @property
    def response(self) -> ClassResponse | None:
        """Return the class response on blocks of the variables; None if all go through one channel."""
        return self.channel if isinstance(self.channel, ClassResponse) else None

    @property
    def own_report(self) -> bool:
        """Return True if the report columns have names of their own."""
        return self.reports != self.names

    @property
    def matrix_channel(self) -> Channel:
        """Return the channel over all combinations; raise PolicyError for variables dealt in blocks."""
        if isinstance(self.channel, ClassResponse):
            raise PolicyError(f"{', '.join(self.names)} are dealt in blocks: they have no channel in common.")
        return self.channel


def report_labels(group: Group, variable: Variable) -> tuple[Category, ...]:
    """Return the labels of a variable's reports."""
    own = group.channel.labels if len(group.names) == 1 else None
    if own is not None:
        return own
    same = len(group.names) > 1 or group.channel.reports == len(variable)
    return variable.categories if same else tuple(range(1, group.channel.reports + 1))


def check_telling(names: tuple[str, ...], channel: Channel, sizes: tuple[int, ...]) -> None:
    """Raise PolicyError if no table can be estimated from the reports of a joint channel."""
    if channel.truths > MOST_JUDGED:
        if channel.gamma == 1:
            raise PolicyError(f"{', '.join(names)}: all truths give the same reports: nothing can be learnt.")
        return
    if not any(channel.tells(sizes, (place,)) for place in range(len(names))):
        raise PolicyError(
            f"{', '.join(names)}: no table can be estimated from their joint report, not even of one "
            "variable. Change the channel's probabilities."
        )
