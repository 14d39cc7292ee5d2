"""Generalising before submission: a form at several levels; rows too rare as they are may open coarser.

Level after level is an epoch of its own, with a key and tags of its own: whoever's class has opened sends
nothing more, everybody else sends the same row once more, generalised by one level on the own device. Every
row therefore opens at the finest level at which at least k of those *still closed* agree, once, and never
with fewer than k others: a class is not filled up with people whose finer rows are known already, who could
be subtracted. (Wright's talk of 2005: "Users may agree to generalize data before submission".)

Who learns what beyond one epoch. The collector learns of a row that opened at some level that fewer than k
reports agreed with it at every finer one, and the sizes of the classes that stayed closed there; reports of
two levels have nothing in common, so it cannot tell which closed report became which. The tags of open
classes are published: pseudo-random to everybody but the members of a class, who learn that it opened. A
collector that leaves a tag out makes the members of an open class report again, and could then subtract them
from a coarser one: the tags and rows that it publishes must fit, which every member can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.schema import Category, Schema, Variable
from masquerade.protocols.k_anonymity.threshold.messages import Terms
from masquerade.protocols.k_anonymity.threshold.row_schema import Form

Grouping = Mapping[Category, Sequence[Category]]


class GeneralisedForm:
    """A form and what its quasi-identifiers are grouped into, level by level; level 0 is the form itself.

    `hierarchies` lists, for some quasi-identifiers, their groupings from fine to coarse: labels of groups
    with the categories of the form in each. Every grouping covers every category once and keeps together
    what the one before it does. Where a variable has fewer of them than another, its last one stays.

    >>> schema = mq.Schema({"zip": ["07029", "07030", "08000"], "ill": ["yes", "no"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> levels = mq.people.GeneralisedForm(form, {"zip": [{"07*": ["07029", "07030"], "08*": ["08000"]}]})
    >>> levels.at(1).schema["zip"].categories, levels.row({"zip": "07030", "ill": "no"}, 1)
    (('07*', '08*'), {'zip': '07*', 'ill': 'no'})
    """

    def __init__(self, form: Form, hierarchies: Mapping[str, Sequence[Grouping]]) -> None:
        problems = [problem for name in hierarchies for problem in _problems(form, name, hierarchies[name])]
        if not any(hierarchies.values()):
            problems.append("there is no grouping: the form alone needs no hierarchies.")
        if problems:
            raise SchemaError("The hierarchies of a form: " + " ".join(problems))
        self._hierarchies = {
            name: tuple(dict(one) for one in own) for name, own in hierarchies.items() if own
        }
        self._forms = [form]
        for level in range(1, 1 + max(map(len, self._hierarchies.values()))):
            variables = [self._variable(variable, level) for variable in form.schema.variables]
            self._forms.append(Form(Schema(variables), form.quasi, form.sensitive))

    @property
    def levels(self) -> int:
        """Return the number of levels, the finest included."""
        return len(self._forms)

    def at(self, level: int) -> Form:
        """Return the form of a level, whose epoch has its terms and whose collector its `readable`."""
        return self._forms[level]

    def terms(self, epoch: str, level: int, k: int) -> Terms:
        """Return the terms of a level's epoch: every level has a name, a key and tags of its own."""
        return self.at(level).terms(f"{epoch}, level {level}", k)

    def row(self, row: Mapping[str, object], level: int) -> dict[str, object]:
        """Return a row of the form as it is at a level; done on the device that the row is of."""
        return {name: self._label(name, value, level) for name, value in row.items()}

    def _grouping(self, name: str, level: int) -> Grouping | None:
        own = self._hierarchies.get(name)
        return None if own is None or level == 0 else own[min(level, len(own)) - 1]

    def _variable(self, variable: Variable, level: int) -> Variable:
        grouping = self._grouping(variable.name, level)
        return variable if grouping is None else Variable(variable.name, tuple(grouping))

    def _label(self, name: str, value: object, level: int) -> object:
        grouping = self._grouping(name, level)
        if grouping is None:
            return value
        for label, members in grouping.items():
            if any(type(member) is type(value) and member == value for member in members):
                return label
        raise UnknownValue(name, None, "is not one of the form's categories")


def _problems(form: Form, name: str, groupings: Sequence[Grouping]) -> list[str]:
    if name not in form.quasi:
        return [f"{name!r} is no quasi-identifier of the form."]
    found, categories = [], form.schema[name].categories
    finer: list[set[Category]] = [{category} for category in categories]
    for level, grouping in enumerate(groupings, start=1):
        members = [category for group in grouping.values() for category in group]
        if sorted(map(repr, members)) != sorted(map(repr, categories)):
            found.append(f"{name!r}, level {level}: every category must stand in one group.")
            continue
        groups = [set(group) for group in grouping.values()]
        if not all(any(small <= large for large in groups) for small in finer):
            found.append(f"{name!r}, level {level}: what was together before is apart.")
        finer = groups
    return found
