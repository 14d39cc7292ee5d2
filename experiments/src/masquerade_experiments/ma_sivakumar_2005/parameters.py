"""Table 2 of the 2005 paper and Table 5.2 of the dissertation: the parameters of the 11-node network.

Both tables come from one experiment: 20,000 records, the policy of Table 1, means over five disguises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

import masquerade as mq
from masquerade.report import ESTIMATE, INK, MUTED, SERIES, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Row, Setting, mean_square_stderr
from masquerade_experiments.ma_sivakumar_2005.distance import parameter_covariance
from masquerade_experiments.ma_sivakumar_2005.two_models import with_miner, without_miner

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

STRUCTURE = mq.data.eleven_nodes().structure
RECORDS = 20_000
PAPER_RUNS = 5
SITES = (("A", "T", "E"), ("S", "L", "B", "D"), ("X", "C", "F", "G"))

SHOWS = (
    "The parameters of an eleven-node network learnt from 20,000 records with eight disguised variables are "
    "those of the population, within their standard errors; without a miner they are more accurate still."
)
ARROWS = (
    "The arrows of the network are lost in the text. Table sizes fix the parents of A, S, T, L and B; "
    "we take E from T and L, X from E, D from E and B, C from X and D, F from D, G from C."
)
PLACES = (
    "The assignment of variables to the three sites is lost too: we take A, T, E; S, L, B, D; X, C, F, G. "
    "Without a miner, L goes disguised to the first site, E to the others and D to the third."
)
ORDER = (
    "The paper does not state the order of the configurations of two parents: we take the last parent as "
    "the one that changes first. With the first parent changing first, the printed deviations are nearer to "
    "what Theorem 2 expects of them (mean square of the log ratio 0.34 against 0.39); both are compared."
)
OWN_RECORDS = (
    "The paper disguises one data set five times; every run here draws its own. The variance is the sum "
    "of the variances of the paper's data set (multinomial), of its mean disguise, and of our runs."
)
GAMMA = (
    "For C and F (p1 = 0.1, p2 = 0.25) the paper gives γ = 9, a ratio within a row; the amplification is 7.5."
)
SPREAD = (
    "The printed standard deviations are those of the disguise alone, given the data: hence 0.00 for S, "
    "which is not disguised. Ours are shown with the standard error that includes sampling."
)


class Printed(NamedTuple):
    """A value of the printed table, with its standard deviation over the five runs."""

    value: float
    deviation: float
    rounding: float


def printed(text: Mapping[str, str]) -> dict[str, Printed]:
    """Return the printed values by parameter name, from one line of text per node.

    A line may omit the parameters of the node's last value, which follow from the others.
    """
    found = {}
    for node, line in text.items():
        for name, entry in zip(parameters(node), line.split(), strict=False):
            value, deviation = entry.rstrip(")").split("(")
            digits = len(value.partition(".")[2])
            found[name] = Printed(float(value), float(deviation) / 100, 0.5 * 10**-digits)
    return found


def parameters(node: str) -> dict[str, tuple[int, ...]]:
    """Return the names of a node's parameters and their indices, in the order of the printed tables.

    First the first value of the node given every configuration of its parents, then the second value, …
    """
    table = mq.data.eleven_nodes()[node]
    names = {}
    sizes = [len(variable) for variable in (table.child, *table.parents)]
    for value, *given in product(*map(range, sizes)):
        known = [f"{parent.name}={code + 1}" for parent, code in zip(table.parents, given, strict=True)]
        names[f"P({node}={value + 1}{' | ' if known else ''}{', '.join(known)})"] = (*given, value)
    return names


def settings(quick: bool) -> Sequence[Setting]:  # noqa: ARG001, FBT001  (the contract of experiments)
    """Return the single setting."""
    return [{"records": RECORDS}]


def measure(setting: Setting, seed: int) -> Sequence[Row]:  # noqa: ARG001  (there is one setting)
    """Return every parameter with its standard error, learnt with and without a miner."""
    drawing, disguising = np.random.default_rng(seed).spawn(2)
    clear = mq.data.eleven_nodes().sample(RECORDS, drawing)
    disguised = mq.simulate(clear, mq.data.eleven_nodes_policy(), disguising)
    miner = with_miner(disguised, mq.data.eleven_nodes_policy(), STRUCTURE)
    parties = without_miner(clear, disguised, mq.data.eleven_nodes_policy(), STRUCTURE, SITES)
    return [
        {
            "parameter": name,
            "estimate": float(miner[node].probabilities[cell]),
            "stderr": float(miner[node].stderr[cell]),
            "without_miner": float(parties[node].probabilities[cell]),
            "stderr_without_miner": float(parties[node].stderr[cell]),
        }
        for node in STRUCTURE
        for name, cell in parameters(node).items()
    ]


class Truth(NamedTuple):
    """A parameter of the population, and the variance of its estimate from 20,000 clear records."""

    value: float
    variance: float


@cache
def truths() -> dict[str, Truth]:
    """Return the parameters of the population."""
    found = {}
    for node, parents in STRUCTURE.items():
        shares = mq.data.eleven_nodes().query((*parents, node)).probabilities.sum(axis=-1)
        for name, cell in parameters(node).items():
            value = float(mq.data.eleven_nodes()[node].probabilities[cell])
            found[name] = Truth(value, value * (1 - value) / (RECORDS * float(shares[cell[:-1]])))
    return found


def variances(frame: pd.DataFrame, column: str = "stderr") -> dict[str, float]:
    """Return the variance of every parameter in one run, from the library's standard errors."""
    return {str(name): float(np.mean(rows[column] ** 2)) for name, rows in frame.groupby("parameter")}


def given_records(name: str, variance: Mapping[str, float]) -> float:
    """Return the variance of a parameter given the records, without the sampling variance."""
    return max(variance[name] - truths()[name].variance, 0.0)


def comparisons(frame: pd.DataFrame, table: Mapping[str, Printed]) -> Iterator[Comparison]:
    """Compare every printed value, all printed deviations together, and the two models."""
    variance, runs = variances(frame), frame["run"].nunique()
    means = frame.groupby("parameter")["estimate"].mean()
    squares = []
    for name, entry in table.items():
        paper = truths()[name].variance + given_records(name, variance) / PAPER_RUNS
        yield Comparison(
            name,
            entry.value,
            float(means[name]),
            float(np.sqrt(variance[name] / runs)),
            float(np.sqrt(paper)),
            entry.rounding,
        )
        if not is_last(name):  # the last is one minus the others
            rounding = entry.rounding**2 / 3  # variance of the rounding error
            gap = entry.value - float(means[name])
            squares.append(gap**2 / (variance[name] / runs + paper + rounding))
    yield Comparison(
        "mean square of all differences from print, in standard errors",
        1.0,
        float(np.mean(squares)),
        stderr=mean_square_stderr(len(squares)),
    )
    firsts = [name for name in table if "=1" in name.partition(" ")[0] and given_records(name, variance) > 0]
    ratios = [table[name].deviation ** 2 / given_records(name, variance) for name in firsts]
    yield Comparison(
        "mean square of the printed deviations over that of ours, given the records",
        float(np.mean(ratios)),
        1.0,
        # the square of a deviation over R runs has the relative variance 2/(R − 1)
        paper_stderr=float(np.sqrt(2 / (PAPER_RUNS - 1) / len(ratios))),
    )
    for order in ("last", "first"):
        yield Comparison(
            "mean square of log(printed deviation over that by Theorem 2), "
            f"the {order} parent changing first",
            None,
            misfit(table, order),
        )
    parties = variances(frame, "stderr_without_miner")
    yield Comparison(
        "largest standard error without a miner over that with one",
        1.0,
        float(np.sqrt(max(parties[name] / variance[name] for name in table))),
        rule="at most",
        kind="claim as read",
        read_as=(
            "“The results of the other case are always better” (Ma 2006, §5.6.1), read as: no standard error "
            "is larger; those of variables that need no other party are the same."
        ),
    )


def misfit(table: Mapping[str, Printed], order: Literal["last", "first"]) -> float:
    """Return the misfit between printed and expected standard deviations, for nodes with two parents.

    Deviations are expected by Theorem 2 for the network whose printed tables are read with this order of
    parents.
    """
    network, policy = mq.data.eleven_nodes(), mq.data.eleven_nodes_policy()
    tables = {node: network[node].probabilities for node in STRUCTURE}
    if order == "first":
        # printed tables have the axes (value, parents…): here the first parent varies fastest
        tables |= {
            node: np.stack([value.reshape(value.shape[::-1]).T for value in np.moveaxis(held, -1, 0)], -1)
            for node, held in tables.items()
            if len(STRUCTURE[node]) == 2
        }
    read = mq.learn.known_network(network.schema, STRUCTURE, tables)
    squares = []
    for node, parents in STRUCTURE.items():
        if len(parents) != 2:
            continue
        family = (*parents, node)
        counts = RECORDS * read.query(family).probabilities
        channels = [policy.group(name).matrix_channel.matrix for name in family]
        deviations = np.sqrt(np.diag(parameter_covariance(counts, channels))).reshape(counts.shape)
        for name, (*given, value) in parameters(node).items():
            if name not in table or is_last(name):
                continue
            shape = counts.shape[:-1]
            flat = int(np.ravel_multi_index(given, shape))
            place = given if order == "last" else np.unravel_index(flat, shape, order="F")
            squares.append(np.log(table[name].deviation / deviations[(*place, value)]) ** 2)
    return float(np.mean(squares))


def beside(frame: pd.DataFrame, table: Mapping[str, Printed]) -> pd.DataFrame:
    """Return the printed values next to ours; standard deviations and errors are for one run."""
    import pandas as pd  # noqa: PLC0415  (loaded with the first table)

    variance, parties = variances(frame), variances(frame, "stderr_without_miner")
    means = frame.groupby("parameter")[["estimate", "without_miner"]].mean()
    return pd.DataFrame(
        [
            {
                "parameter": name,
                "population": truths()[name].value,
                "paper": entry.value,
                "paper's deviation": entry.deviation,
                "ours": means["estimate"][name],
                "deviation given the records": np.sqrt(given_records(name, variance)),
                "standard error": np.sqrt(variance[name]),
                "without a miner": means["without_miner"][name],
                "its standard error": np.sqrt(parties[name]),
            }
            for name, entry in table.items()
        ]
    )


def differences(frame: pd.DataFrame, table: Mapping[str, Printed]) -> Figure:
    """Draw the distances of the printed values and of ours from the population, with standard errors."""
    truth, runs = truths(), frame["run"].nunique()
    shown = [name for name in table if not is_last(name)]
    rows = beside(frame, {name: table[name] for name in shown})
    places = np.arange(len(shown))
    population = rows["population"].to_numpy()
    given = rows["deviation given the records"].to_numpy() ** 2 / PAPER_RUNS
    errors = np.sqrt([truth[name].variance for name in shown] + given)
    figure = canvas(9.5, 4.2)
    axes = figure.subplots()
    axes.axhline(0, color=MUTED, linewidth=0.8)
    for shift, values, bars, colour, filled, label in (
        (-0.22, rows["paper"], errors, INK, False, "paper (rounded)"),
        (0.0, rows["ours"], rows["standard error"] / np.sqrt(runs), ESTIMATE, True, "ours, with a miner"),
        (
            0.22,
            rows["without a miner"],
            rows["its standard error"] / np.sqrt(runs),
            SERIES[1],
            True,
            "ours, without a miner",
        ),
    ):
        axes.errorbar(
            places + shift,
            values - population,
            yerr=bars,
            fmt="o",
            markersize=4,
            color=colour,
            markerfacecolor=colour if filled else "none",
            linewidth=1,
            label=label,
        )
    axes.set_xticks(places, shown, rotation=90, fontsize=7.5)
    axes.set_xlim(-0.8, len(shown) - 0.2)
    axes.set_ylabel("estimate − population")
    axes.set_title("Parameters from disguised records, mean over runs ± one standard error", fontsize=11)
    open_frame(axes)
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def is_last(name: str) -> bool:
    """Return True for the parameter of a node's last value, which follows from the others."""
    node, value = name.removeprefix("P(").rstrip(")").partition(" ")[0].split("=")
    return int(value) == len(mq.data.eleven_nodes()[node].child)
