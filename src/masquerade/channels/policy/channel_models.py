"""Channels of policy files: one validated model per kind, which builds its `Channel`.

Another package adds a kind by an entry point in the group ``masquerade.channels``. Its name is the `kind` in
policy files. It refers to a subclass of `PolicyPart` with that `kind` and a `build` method. γ and other
properties follow from the probabilities of the channel that it builds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from masquerade.channels import basic, block_designs, designs, survey_designs
from masquerade.channels.channel import Channel
from masquerade.channels.rationals import rational
from masquerade.core.errors import ChannelError
from masquerade.core.schema import Variable
from masquerade.core.util.plugins import load_plugin, plugins

Number = Annotated[
    Fraction,
    BeforeValidator(rational),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "pattern": r"^[-+]?[0-9.]+([eE][-+]?[0-9]+)?(/[0-9]+)?$"},
            ],
            "description": "a decimal such as 0.25, or a fraction as text such as '1/3'; taken exactly",
        }
    ),
]
Label = StrictBool | StrictInt | StrictStr


class PolicyPart(BaseModel):
    """Base of the models of parts of a policy file, such as channels. Unknown keys are refused.

    Examples
    --------
    >>> from typing import Literal
    >>> class Lottery(mq.extend.PolicyPart):
    ...     kind: Literal["lottery"]
    ...     p: mq.extend.Number
    >>> Lottery.model_validate({"kind": "lottery", "p": "1/3"}).p
    Fraction(1, 3)
    """

    # most policies use few kinds: the validator of a kind is built when it is first used
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Identity(PolicyPart):
    """Not disguised."""

    kind: Literal["identity"]

    def build(self, variables: Sequence[Variable]) -> Channel:
        return basic.identity(_joint_size(variables))


class Binary(PolicyPart):
    """The first category is changed with probability p1, the second with p2; or both with p."""

    kind: Literal["binary"]
    p: Number | None = None
    p1: Number | None = None
    p2: Number | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return basic.binary(*_one_or_two(self.p, self.p1, self.p2))


class Symmetric(PolicyPart):
    """The truth with probability 1 − p, else any other, with equal chances; for one or more variables."""

    kind: Literal["symmetric"]
    p: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        return basic.symmetric(_joint_size(variables), self.p)


class Ternary(PolicyPart):
    """Three categories in a ring: moved by one with probability p1, by two with p2; or p for both."""

    kind: Literal["ternary"]
    p: Number | None = None
    p1: Number | None = None
    p2: Number | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 3, self.kind)
        return basic.ternary(*_one_or_two(self.p, self.p1, self.p2))


class Grouped(PolicyPart):
    """Changed only within groups of categories: symmetric with p, or one channel per group."""

    kind: Literal["grouped"]
    groups: list[list[Label]]
    p: Number | None = None
    channels: list[ChannelSpec] | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        (variable,) = _need_one(variables, self.kind)
        if (self.p is None) == (self.channels is None):
            raise ChannelError("a grouped channel takes either 'p' or 'channels'.")
        codes = [[variable.code(label) for label in group] for group in self.groups]
        if self.channels is None:
            within = [basic.symmetric(len(group), self.p or 0) for group in self.groups]
        else:
            parts = [Variable(variable.name, tuple(group)) for group in self.groups]
            if len(self.channels) != len(parts):
                raise ChannelError(
                    f"{len(parts)} groups need {len(parts)} channels. Got {len(self.channels)}."
                )
            within = [spec.build([part]) for spec, part in zip(self.channels, parts, strict=True)]
        return basic.within_groups(codes, within)


class Matrix(PolicyPart):
    """Any probabilities: one row per truth, one column per report; 'reports' names the columns.

    With 'columns' a report is a combination of several, the first varying slowest.
    """

    kind: Literal["matrix"]
    rows: list[list[Number]]
    reports: list[Label] | None = None
    columns: dict[str, list[Label]] | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        size = _joint_size(variables)
        if len(self.rows) != size:
            raise ChannelError(f"the matrix has {len(self.rows)} rows for {size} categories.")
        return basic.matrix(self.rows, self.reports, self.columns)


class Flip(PolicyPart):
    """Multivariate randomized response: a group is unchanged with probability theta, else reversed."""

    kind: Literal["flip"]
    theta: Number | list[Number]
    groups: list[list[str]] | None = None
    opposites: dict[str, list[Label]] | None = Field(
        default=None,
        description="for a variable with more than two categories: the opposite of each, in order",
    )

    def build(self, variables: Sequence[Variable]) -> Channel:
        names = [variable.name for variable in variables]
        known = self.opposites or {}
        for name in [*known, *(name for group in self.groups or [] for name in group)]:
            if name not in names:
                raise ChannelError(f"{name!r} is not one of the variables disguised together.")
        groups = [[names.index(name) for name in group] for group in self.groups or [names]]
        opposites = [
            [variable.code(label) for label in known[variable.name]] if variable.name in known else None
            for variable in variables
        ]
        return basic.flip([len(variable) for variable in variables], self.theta, groups, opposites)


class Warner(PolicyPart):
    """Warner's design: 'are you A?' with probability p, else 'are you not A?'."""

    kind: Literal["warner"]
    p: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return survey_designs.warner(self.p)


class UnrelatedQuestion(PolicyPart):
    """The sensitive question with probability p, else a harmless one with known prevalence of 'yes'."""

    kind: Literal["unrelated_question"]
    p: Number
    prevalence: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return survey_designs.unrelated_question(self.p, self.prevalence)


class ForcedResponse(PolicyPart):
    """Forced 'yes' with probability p_yes, forced 'no' with p_no, else the truth."""

    kind: Literal["forced_response"]
    p_yes: Number
    p_no: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return survey_designs.forced_response(self.p_yes, self.p_no)


class Crosswise(PolicyPart):
    """'Are your answers to both questions the same?'; p is the prevalence of the harmless 'yes'.

    With an 'anchor' the truths are (yes, no, inattentive).
    """

    kind: Literal["crosswise"]
    p: Number
    anchor: Number | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2 if self.anchor is None else 3, self.kind)
        return survey_designs.crosswise(self.p, self.anchor)


class Mangat(PolicyPart):
    """'Yes' is reported unchanged; 'no' is reported as 'no' with probability p, otherwise as 'yes'."""

    kind: Literal["mangat"]
    p: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return survey_designs.mangat(self.p)


class Triangular(PolicyPart):
    """A circle for 'no' to both questions, else a triangle; p is the prevalence of the harmless 'yes'."""

    kind: Literal["triangular"]
    p: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return survey_designs.triangular(self.p)


class CheaterDetection(PolicyPart):
    """Two groups with different chances of a forced 'yes' (and 'no'); truths are (yes, no, cheat)."""

    kind: Literal["cheater_detection"]
    p_yes: list[Number]
    p_no: list[Number] = [Fraction(0), Fraction(0)]
    share: Number = Fraction(1, 2)

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 3, self.kind)
        return survey_designs.cheater_detection(self.p_yes, self.p_no, self.share)


class StochasticLieDetector(PolicyPart):
    """Two groups in which a 'no' is kept with probability p; truths are (yes, no, lying yes)."""

    kind: Literal["stochastic_lie_detector"]
    p: list[Number]
    share: Number = Fraction(1, 2)

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 3, self.kind)
        return survey_designs.stochastic_lie_detector(self.p, self.share)


class UnrelatedUnknown(PolicyPart):
    """Two groups with chances p of the sensitive question, else a harmless one; each answer is a variable."""

    kind: Literal["unrelated_unknown"]
    p: list[Number]
    share: Number = Fraction(1, 2)

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_sizes(variables, (2, 2), self.kind)
        return survey_designs.unrelated_unknown(self.p, self.share)


class ListExperiment(PolicyPart):
    """Number of statements that hold, with a sensitive statement in the second group's list."""

    kind: Literal["list_experiment"]
    share: Number = Fraction(1, 2)
    groups: list[Label] = ["control", "treated"]

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_sizes(variables, (None, 2), self.kind)
        return survey_designs.list_experiment(len(variables[0]) - 1, self.share, self.groups)


class DoubleList(PolicyPart):
    """Numbers of statements that hold in two lists; the sensitive one is in the first or the second list."""

    kind: Literal["double_list"]
    share: Number = Fraction(1, 2)
    groups: list[Label] = ["first", "second"]

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_sizes(variables, (None, None, 2), self.kind)
        first, second = (len(variable) - 1 for variable in variables[:2])
        return survey_designs.double_list(first, second, self.share, self.groups)


class SelfProtectiveNo(PolicyPart):
    """Items of one design; the last variable states who follows it and who says 'no' to all items."""

    kind: Literal["self_protective_no"]
    item: ChannelSpec

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_sizes(variables, (*(None for _ in variables[1:]), 2), self.kind)
        return survey_designs.self_protective_no([self.item.build([each]) for each in variables[:-1]])


class Panel(PolicyPart):
    """A variable in two waves that were disguised under one memo: the same answer has the same report."""

    kind: Literal["panel"]
    wave: ChannelSpec

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_sizes(variables, (None, len(variables[0])), self.kind)
        return survey_designs.panel(self.wave.build(variables[:1]))


class Kuk(PolicyPart):
    """Kuk's cards: the number of red cards drawn from a deck that depends on the answer."""

    kind: Literal["kuk"]
    p1: Number
    p2: Number
    cards: int = Field(default=1, ge=1, le=1000)

    def build(self, variables: Sequence[Variable]) -> Channel:
        _need_size(variables, 2, self.kind)
        return survey_designs.kuk(self.p1, self.p2, self.cards)


class ForGamma(PolicyPart):
    """The best symmetric channel with this γ."""

    kind: Literal["for_gamma"]
    gamma: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        return designs.for_gamma(_joint_size(variables), self.gamma)


class ForEpsilon(PolicyPart):
    """The best symmetric channel with this ε (local differential privacy)."""

    kind: Literal["for_epsilon"]
    epsilon: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        return designs.for_epsilon(_joint_size(variables), self.epsilon)


class BlockDesign(PolicyPart):
    """A balanced block of categories is reported, γ times as often if it contains the truth."""

    kind: Literal["block_design"]
    gamma: Number | None = None
    epsilon: Number | None = None
    size: int | None = Field(default=None, ge=1)

    def build(self, variables: Sequence[Variable]) -> Channel:
        (variable,) = _need_one(variables, self.kind)
        return block_designs.block_design(len(variable), self.gamma, epsilon=self.epsilon, size=self.size)


class SubsetSelection(PolicyPart):
    """Any subset of 'size' categories is reported, γ times as often if it contains the truth."""

    kind: Literal["subset_selection"]
    gamma: Number | None = None
    epsilon: Number | None = None
    size: int | None = Field(default=None, ge=1)

    def build(self, variables: Sequence[Variable]) -> Channel:
        (variable,) = _need_one(variables, self.kind)
        return block_designs.subset_selection(len(variable), self.gamma, epsilon=self.epsilon, size=self.size)


class HadamardResponse(PolicyPart):
    """One of 2^m reports, those in the truth's half γ times as often."""

    kind: Literal["hadamard_response"]
    gamma: Number | None = None
    epsilon: Number | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        (variable,) = _need_one(variables, self.kind)
        return block_designs.hadamard_response(len(variable), self.gamma, epsilon=self.epsilon)


class Optimal(PolicyPart):
    """A computed channel with the least variance at γ: report m has γ times its weight inside block m.

    The weights define the channel. 'queries', 'prior', 'second_moment' and 'lower_bound' record what it is
    optimal for and how near it is to the optimum. They have no effect: the optimum is not computed again.
    """

    kind: Literal["optimal"]
    gamma: Number
    blocks: list[list[Label]]
    weights: list[StrictInt]
    queries: list[list[Number]] | None = None
    prior: list[Number] | None = None
    second_moment: Number | None = None
    lower_bound: Number | None = None

    def build(self, variables: Sequence[Variable]) -> Channel:
        (variable,) = _need_one(variables, self.kind)
        blocks = [[variable.code(label) for label in block] for block in self.blocks]
        if self.gamma <= 1:
            raise ChannelError(f"'gamma' must be above 1. Got {float(self.gamma):g} instead.")
        return block_designs.staircase_channel(len(variable), self.gamma, blocks, self.weights)


class Invariant(PolicyPart):
    """Invariant PRAM: leaves the given distribution unchanged."""

    kind: Literal["invariant"]
    prior: list[Number]
    base: ChannelSpec
    strength: Number = Fraction(1)

    def build(self, variables: Sequence[Variable]) -> Channel:
        return designs.invariant(self.prior, self.base.build(variables), self.strength)


class Additive(PolicyPart):
    """Noise added to a binned number, reported as a bin (the variable needs 'bins' of equal width)."""

    kind: Literal["additive"]
    noise: Literal["uniform", "gaussian"]
    scale: Number
    margin: int | None = Field(default=None, ge=0, le=10_000)

    def build_binned(self, edges: Sequence[Fraction], categories: int) -> Channel:
        if categories != len(edges) - 1:
            raise ChannelError("additive noise cannot hide a missing number; choose another channel.")
        return designs.additive(edges, self.noise, self.scale, self.margin)

    def build(self, variables: Sequence[Variable]) -> Channel:
        raise ChannelError(f"additive noise needs 'bins' on {variables[0].name!r}, and a channel of its own.")


class Composition(PolicyPart):
    """Several channels in sequence."""

    kind: Literal["composition"]
    steps: list[ChannelSpec] = Field(min_length=1)

    def build(self, variables: Sequence[Variable]) -> Channel:
        first, *rest = self.steps
        result = first.build(variables)
        for step in rest:
            labels = result.labels or tuple(range(result.reports))
            result = result.then(step.build([Variable("report", labels)]))
        return result


class Undecided(PolicyPart):
    """Placeholder of a drafted policy until a person decides."""

    kind: Literal["decide"]

    def build(self, variables: Sequence[Variable]) -> Channel:
        raise ChannelError(
            f"still to be decided for {variables[0].name!r}: choose a channel such as "
            "{kind: for_gamma, gamma: 19}, or remove 'channel' to release it undisguised."
        )


def _validate_channel(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate a channel by the model of its kind, which is built in or from a plug-in."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind not in KINDS and kind in plugins("channels"):
        return model_of(kind).model_validate(value)
    return handler(value)


def model_of(kind: str) -> type[PolicyPart]:
    """Return the model of a kind of channel, built in or from a plug-in."""
    found: type[PolicyPart] = KINDS[kind] if kind in KINDS else load_plugin("channels", kind, _problem)
    return found


def _problem(part: Any) -> str | None:
    known = isinstance(part, type) and issubclass(part, PolicyPart) and callable(getattr(part, "build", None))
    return None if known else "it must name a model: a subclass of PolicyPart with a 'build' method"


OwnSpec = Annotated[
    Identity
    | Binary
    | Symmetric
    | Ternary
    | Grouped
    | Matrix
    | Flip
    | Warner
    | UnrelatedQuestion
    | ForcedResponse
    | Crosswise
    | Kuk
    | Mangat
    | Triangular
    | CheaterDetection
    | StochasticLieDetector
    | UnrelatedUnknown
    | ListExperiment
    | DoubleList
    | SelfProtectiveNo
    | Panel
    | ForGamma
    | ForEpsilon
    | BlockDesign
    | SubsetSelection
    | HadamardResponse
    | Optimal
    | Invariant
    | Additive
    | Composition
    | Undecided,
    Field(discriminator="kind"),
]
ChannelSpec = Annotated[OwnSpec, WrapValidator(_validate_channel)]
KINDS: dict[str, type[PolicyPart]] = {
    model.model_fields["kind"].annotation.__args__[0]: model
    for model in OwnSpec.__origin__.__args__  # type: ignore[attr-defined]
}


def _joint_size(variables: Sequence[Variable]) -> int:
    return prod(len(variable) for variable in variables)


def _need_one(variables: Sequence[Variable], kind: str) -> Sequence[Variable]:
    if len(variables) != 1:
        raise ChannelError(f"a {kind} channel is for one variable, not for several together.")
    return variables


def _need_size(variables: Sequence[Variable], size: int, kind: str) -> None:
    (variable,) = _need_one(variables, kind)
    if len(variable) != size:
        raise ChannelError(
            f"a {kind} channel needs {size} categories; {variable.name!r} has {len(variable)}."
        )


def _need_sizes(variables: Sequence[Variable], sizes: Sequence[int | None], kind: str) -> None:
    """Raise ChannelError unless the variables have the numbers of categories that a design needs."""
    found = [len(variable) for variable in variables]
    fits = [size in (None, own) for size, own in zip(sizes, found, strict=False)]
    if len(found) != len(sizes) or not all(fits):
        wanted = ", ".join("any number" if size is None else str(size) for size in sizes)
        raise ChannelError(
            f"a {kind} channel is for {len(sizes)} variables together, under 'joint', with {wanted} "
            f"categories. Got {', '.join(variable.name for variable in variables)} with "
            f"{', '.join(map(str, found))} instead."
        )


def _one_or_two(p: Fraction | None, p1: Fraction | None, p2: Fraction | None) -> tuple[Any, Any]:
    """Return (p1, p2), given either `p` or both `p1` and `p2`."""
    if p is not None and p1 is None and p2 is None:
        return p, p
    if p is None and p1 is not None and p2 is not None:
        return p1, p2
    raise ChannelError("give either 'p', or both 'p1' and 'p2'.")
