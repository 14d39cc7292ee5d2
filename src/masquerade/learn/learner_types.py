"""A learner and its options, as the catalogue and plug-ins describe them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from masquerade.core.errors import InputError, did_you_mean
from masquerade.learn import option_types as kinds

if TYPE_CHECKING:
    from masquerade.core.errors import Refusal
    from masquerade.core.guarantee import Guarantee
    from masquerade.core.query import Query
    from masquerade.core.schema import Schema
    from masquerade.core.table import CountTable
    from masquerade.core.tally import Tally

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a learner.

    Parameters
    ----------
    name : str
        Name of the learner's parameter.
    kind : OptionType
        Type of the value.
    default : object
        Default, as a user would type it.
    help : str
        Description.
    metavar : str, optional
        Placeholder of the value in a command's help.
    for_summary : bool, default False
        Pass the option to the model's `summary` instead of the learner.
    typed_as : str, optional
        Name of the command's option, if it differs from `name`.

    Examples
    --------
    >>> [option] = [option for option in mq.learn.learner("tree").options if option.name == "max_depth"]
    >>> option.flag, option.default
    ('--max-depth', None)
    """

    name: str
    kind: kinds.OptionType
    default: Any
    help: str
    metavar: str | None = None
    for_summary: bool = False
    typed_as: str = ""

    @property
    def flag(self) -> str:
        """Return the name of the command's option."""
        return f"--{self.typed_as or self.name.replace('_', '-')}"


class FirstQueries(Exception):
    """Raised by a `Rehearsal` to pass on the first queries of a learner."""

    def __init__(self, queries: Iterable[Query]) -> None:
        self.queries = list(queries)
        super().__init__(self.queries)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A source that answers nothing: once a learner queries it, the learner has checked its options."""

    schema: Schema

    @property
    def guarantee(self) -> Guarantee:
        """Return no disclosures: nothing is answered."""
        from masquerade.core.guarantee import Guarantee  # noqa: PLC0415

        return Guarantee(())

    def check(self, queries: Iterable[Query]) -> list[Refusal]:  # noqa: ARG002
        """Return no refusals."""
        return []

    def answer(self, queries: Iterable[Query]) -> list[CountTable]:
        """Raise FirstQueries with the queries."""
        raise FirstQueries(queries)


@dataclass(frozen=True, slots=True)
class Learner:
    """A learner: its options, its function, the model it returns and the tables it queries.

    Parameters
    ----------
    name : str
        Name, as in ``masquerade learn NAME``.
    title : str
        Name for readers.
    help : str
        Description.
    learn : callable
        Takes a source of counts and the options by name. Returns a model with `summary` and `to_dict`.
    options : tuple of Option, optional
        Options of the learner.
    needs : tuple of tuple of str, optional
        Sets of options of which exactly one must be given.
    model : callable, optional
        Returns the class of the model, which has `from_dict`.
    asks : callable, optional
        Takes the options and names of variables. Returns True if the learner may query a table of these
        variables. Parties consent to no other table.
    limits : tuple of str, optional
        Options that, if given, name all variables that are queried. Without them, any variable may be
        queried.
    at_once : bool, default False
        True if the learner makes all queries in its first batch.
    draw : callable, optional
        Takes the source and the model. Returns a plot.
    example : str, optional
        Example of options on the command line.
    command : bool, default True
        False if there is no ``masquerade learn NAME``.
    in_steps : bool, default False
        True if `learn` takes `progress`, a function of the steps done and the number of steps.

    Examples
    --------
    >>> learner = mq.learn.learner("naive-bayes")
    >>> [option.name for option in learner.options]
    ['target', 'features', 'alpha', 'method', 'missing']
    >>> learner.fit(mq.tally(mq.data.students()), {"target": "sleep"}).target.name
    'sleep'
    """

    name: str
    title: str
    help: str
    learn: Callable[..., Any]
    options: tuple[Option, ...] = ()
    needs: tuple[tuple[str, ...], ...] = ()
    model: Callable[[], type[Any]] | None = None
    asks: Callable[[Options, Collection[str]], bool] = lambda _options, _names: True
    limits: tuple[str, ...] = ()
    at_once: bool = False
    draw: Callable[[Tally, Any], Any] | None = None
    example: str = ""
    command: bool = True
    in_steps: bool = False

    def read(
        self, typed: Options, schema: Schema, called: Callable[[Option], str] = lambda option: option.name
    ) -> dict[str, Any]:
        """Parse options that a user typed, into the values that the learner takes.

        Parameters
        ----------
        typed : mapping
            Typed values by option. None means the default.
        schema : Schema
            Variables of the source.
        called : callable, optional
            Returns the name of an option for error messages.

        Returns
        -------
        dict
            Values by option.

        Raises
        ------
        InputError
            If an option is unknown, missing or not valid.
        """
        by_name = {option.name: option for option in self.options}
        faults: list[InputError] = [
            InputError(f"{self.name!r} has no option {name!r}.{did_you_mean(name, by_name)}")
            for name in typed
            if name not in by_name
        ]
        for names in self.needs:
            present = [name for name in names if typed.get(name) is not None]
            if len(present) != 1:
                flags = " or ".join(called(by_name[name]) for name in names)
                such = f", such as {self.example}" if flags.startswith("--") and self.example else ""
                faults.append(
                    InputError(f"{flags} is missing{such}." if not present else f"Give only one of {flags}.")
                )
        values = {}
        for name, option in by_name.items():
            value = option.default if typed.get(name) is None else typed[name]
            try:
                values[name] = None if value is None else option.kind.read(value, schema, called(option))
            except InputError as error:
                faults.append(error)
        if faults:
            raise faults[0] if len(faults) == 1 else InputError(" ".join(map(str, faults)))
        return values

    def rehearse(self, schema: Schema, options: Options) -> list[Query]:
        """Return the first queries of the learner, without querying any source.

        The learner itself runs all checks that come before its first query.

        Parameters
        ----------
        schema : Schema
            Variables of the source.
        options : mapping
            Values by option, from `read`.

        Returns
        -------
        list of Query
            The first batch of queries.

        Raises
        ------
        InputError
            If the learner does not accept the options.
        """
        try:
            self.fit(Rehearsal(schema), options)
        except FirstQueries as asked:
            return asked.queries
        return []

    def needed_variables(self, options: Options, names: Collection[str]) -> tuple[str, ...]:
        """Return the variables that are queried.

        Parameters
        ----------
        options : mapping
            Values by option.
        names : collection of str
            Variables of the source.

        Returns
        -------
        tuple of str
            Those that the options name; all if the options name none.
        """
        if not any(options.get(name) for name in self.limits):
            return tuple(names)
        named = set(self.variables(options))
        return tuple(name for name in names if name in named)

    def fit(self, source: Tally, options: Options, progress: Callable[[int, int], None] | None = None) -> Any:
        """Learn a model from a source.

        Parameters
        ----------
        source : Tally
            Source of counts.
        options : mapping
            Values by option, from `read`.
        progress : callable, optional
            Takes the number of steps done and the number of steps. Only used if `in_steps`.

        Returns
        -------
        object
            The model.
        """
        summary_options = {option.name for option in self.options if option.for_summary}
        learn_options = {name: value for name, value in options.items() if name not in summary_options}
        return self.learn(source, **learn_options, **({"progress": progress} if self.in_steps else {}))

    def summary(self, model: Any, options: Options) -> str:
        """Return a model as text.

        Parameters
        ----------
        model : object
            The model.
        options : mapping
            Values by option; those marked `for_summary` are used.

        Returns
        -------
        str
            The summary.
        """
        summary_options = {
            o.name: options[o.name] for o in self.options if o.for_summary and o.name in options
        }
        return str(model.summary(**summary_options))

    def variables(self, options: Options) -> tuple[str, ...]:
        """Return the variables that the options name."""
        names: list[str] = []
        for option in self.options:
            if options.get(option.name) is not None:
                names += option.kind.names(options[option.name])
        return tuple(dict.fromkeys(names))
