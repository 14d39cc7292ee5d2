"""Generalisation before submission: rare rows may open at a coarser level.

Every level is an epoch with its own key and tags. A person whose class has opened sends nothing more; every
other person sends the same row again, generalised by one level on the person's device. So every row opens
once, at the finest level at which at least k of the *still closed* rows agree. A class is never filled up
with people whose finer rows are known already and could be subtracted. (Wright's talk of 2005: "Users may
agree to generalize data before submission".)

Disclosures beyond one epoch. If a row opened at some level, the collector learns that fewer than k reports
agreed with it at every finer level, and the sizes of the classes that stayed closed there. Reports of two
levels have nothing in common, so the collector cannot link them. The tags of open classes are published: they
are pseudo-random except to the members of a class, who learn that it opened. A collector that omits a tag
makes the members of an open class report again, and could then subtract them from a coarser class. Therefore
every member can check that the published tags and rows agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.schema import Category, Schema, Variable
from masquerade.protocols.k_anonymity.threshold.messages import ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.row_schema import Form

Grouping = Mapping[Category, Sequence[Category]]


class GeneralisedForm:
    """A form and the groups of its quasi-identifiers' categories by level; level 0 is the form itself.

    `hierarchies` lists the groupings of some quasi-identifiers, from fine to coarse. A grouping maps the
    label of each group to the categories in it. It contains every category once and does not split groups of
    the previous grouping. A variable with fewer groupings than another keeps its last one.

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
        """Return the form of a level; the level's epoch uses its terms and its `readable`."""
        return self._forms[level]

    def terms(self, epoch: str, level: int, k: int) -> ThresholdTerms:
        """Return the terms of a level's epoch; every level has a separate name, key and tags.

        Parameters
        ----------
        epoch : str
            Name of the collection.
        level : int
            Level of generalisation, 0 for the rows as entered.
        k : int
            Least size of a class that opens.

        Returns
        -------
        ThresholdTerms
        """
        return self.at(level).terms(f"{epoch}, level {level}", k)

    def row(self, row: Mapping[str, object], level: int) -> dict[str, object]:
        """Return a row generalised to a level, on the device that owns it.

        Parameters
        ----------
        row : mapping of str to object
            The row as entered.
        level : int
            Level of generalisation.

        Returns
        -------
        dict
        """
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
        return [f"{name!r} is not a quasi-identifier of the form."]
    found, categories = [], form.schema[name].categories
    finer: list[set[Category]] = [{category} for category in categories]
    for level, grouping in enumerate(groupings, start=1):
        members = [category for group in grouping.values() for category in group]
        if sorted(map(repr, members)) != sorted(map(repr, categories)):
            found.append(f"{name!r}, level {level}: every category must be in exactly one group.")
            continue
        groups = [set(group) for group in grouping.values()]
        if not all(any(small <= large for large in groups) for small in finer):
            found.append(f"{name!r}, level {level}: a group of the previous level is split.")
        finer = groups
    return found
