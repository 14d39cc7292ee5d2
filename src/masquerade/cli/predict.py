"""`masquerade predict`: what a saved model says of rows, and how often it is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

import masquerade as mq
from masquerade.cli.data_source import origin_note, say_missing
from masquerade.cli.options import AcceptIncomplete, Clear, Data, Overwrite
from masquerade.cli.output import as_json, emit, progress, say, warnings_said
from masquerade.core.errors import InputError, PolicyMismatch, UnknownValue
from masquerade.core.words import category_text

if TYPE_CHECKING:
    import pyarrow as pa

    from masquerade.channels.policy import Policy
    from masquerade.core.schema import Field
    from masquerade.core.tally import Tally
    from masquerade.frames.file_reader import Batches
    from masquerade.sources.records import Records


def command(
    data: Data,
    *,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="The model, as `learn --out` saved it.",
            metavar="MODEL.json",
            show_default=False,
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", "-p", help="The policy that DATA were disguised by. None: clear rows.", metavar="FILE"
        ),
    ] = None,
    clear: Clear = False,
    accuracy: Annotated[
        bool,
        typer.Option("--accuracy", help="Print how often the model is right, corrected for the disguise."),
    ] = False,
    accept_incomplete: AcceptIncomplete = False,
    person: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that names the rows, written before the predictions.", metavar="COLUMN"
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to: .csv, .parquet, .arrow. None: CSV on standard output.",
            metavar="FILE",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the accuracy as JSON.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict the target of every row, with probabilities; or test a model on records nobody may see.

    Example: masquerade predict disguised.csv --model model.json -p policy.yaml --out predictions.csv
    """
    check(data, policy, out, accuracy=accuracy, clear=clear, json=json)
    loaded = mq.learn.load(model)
    if not hasattr(loaded, "predict"):
        raise InputError(f"{model}: a model of kind {loaded.to_dict()['kind']!r} predicts no target.")
    rules = None if policy is None else mq.Policy.load(policy)
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (loads Arrow)

    with warnings_said(), open_batches(data, []) as batches:
        unsure = note_of(batches, rules, clear=clear)
        used = reading(loaded, rules, clear=clear) if out is not None or not accuracy else None
        figure = None
        if accuracy:
            source = records(batches, loaded, rules, clear=clear, accept_incomplete=accept_incomplete)
            figure = tested(loaded, source, json=json)
        if used is not None:
            rows = written(batches, used, out or "-", person, overwrite=overwrite)
    if used is not None and out not in {None, "-"}:
        say(f"{rows:,} row{'' if rows == 1 else 's'} predicted into {out}.")
    if figure is not None:
        emit(figure)
    if unsure is not None:
        say(unsure)


def check(
    data: list[str], policy: str | None, out: str | None, *, accuracy: bool, clear: bool, json: bool
) -> None:
    """Refuse what cannot work before anything is read."""
    if json and not accuracy:
        raise InputError("--json prints the accuracy; give --accuracy, or write predictions with --out.")
    if accuracy and out == "-":
        raise InputError("--accuracy prints to standard output; write the predictions into a file.")
    if accuracy and out is not None and "-" in data:
        raise InputError("Standard input is read once: ask for --accuracy or for predictions.")
    if clear and policy is None:
        raise InputError("--clear reads rows by a policy's variables: give --policy, or leave it out.")


def note_of(batches: Batches, policy: Policy | None, *, clear: bool) -> str | None:
    """Refuse disguised rows as clear ones and rows of another policy; return what to say if it is unknown."""
    from masquerade.sources.tally import check_origin  # noqa: PLC0415  (loads Arrow)

    note = None if policy is None else origin_note(batches, clear=clear)
    try:
        check_origin(batches, None if clear else policy)
    except PolicyMismatch:
        if policy is not None:
            raise
        raise InputError("The rows were disguised: give the policy that did it with --policy.") from None
    return note


@dataclass(frozen=True, slots=True)
class Reading:
    """What predicts, and how the columns that it looks at are read."""

    model: Any
    fields: tuple[Field, ...]
    disguised: bool

    @property
    def probabilities(self) -> bool:
        """Tell whether the model gives probabilities."""
        return getattr(self.model, "loss", "logistic") == "logistic"

    def labels(self, batch: pa.RecordBatch, *, text: bool) -> dict[str, Any]:
        """Return the labels of the columns that the model looks at."""
        from masquerade.frames.label_codes import encode  # noqa: PLC0415  (loads Arrow)
        from masquerade.learn.prediction_rows import labels_of  # noqa: PLC0415

        return {
            field.variable.name: labels_of(
                field.variable,
                encode(
                    batch[field.variable.name],
                    field,
                    text=text or (self.disguised and field.variable.mixed),
                ),
            )
            for field in self.fields
        }


def reading(model: Any, policy: Policy | None, *, clear: bool) -> Reading:
    """Return what predicts the rows: the model for clear ones, its view for disguised ones."""
    from masquerade.core.schema import Field  # noqa: PLC0415

    names = getattr(model, "used", ()) or tuple(feature.name for feature in model.features)
    if policy is None:
        own = {feature.name: feature for feature in model.features}
        return Reading(model, tuple(Field(own[name]) for name in names), disguised=False)
    check_categories(model, policy)
    if clear:
        fields = {field.variable.name: field for field in policy.fields}
        return Reading(model, tuple(fields[name] for name in names), disguised=False)
    if not isinstance(model, mq.learn.NaiveBayes):
        raise InputError(
            "Of disguised rows only naive Bayes predicts the target: other models look at true values. "
            "--accuracy tests any of them on disguised records."
        )
    view = mq.evaluate.disguised_view(model, policy)
    seen = {variable.name: variable for variable in view.features}
    if view.stratum is not None:
        seen.setdefault(view.stratum.name, view.stratum)
    return Reading(view, tuple(map(Field, seen.values())), disguised=True)


def check_categories(model: Any, policy: Policy) -> None:
    """Refuse a policy whose categories are not the model's."""
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )


def written(batches: Batches, used: Reading, out: str, person: str | None, *, overwrite: bool) -> int:
    """Write the predictions of all rows, batch by batch; return how many there are."""
    from masquerade.frames.file_writer import AtomicWriter  # noqa: PLC0415  (loads Arrow)

    names = [field.variable.name for field in used.fields]
    columns = [*([person] if person is not None and person not in names else []), *names]
    rows = 0
    with ExitStack() as stack:
        advance = stack.enter_context(progress("predicting"))
        writer = None
        for batch in predictions(batches.select(columns), used, person):
            if writer is None:
                inputs = [path for path in batches.paths if path != "-"]
                made = AtomicWriter(out, batch.schema, {}, overwrite=overwrite, inputs=inputs)
                writer = stack.enter_context(made)
            writer.write(batch)
            rows += len(batch)
            advance(batches.bytes_read, batches.total_bytes)
        if writer is None:
            raise InputError("There are no rows to predict.")
    return rows


def predictions(batches: Batches, used: Reading, person: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the predictions of the rows of every batch."""
    for batch in batches:
        try:
            labels = used.labels(batch, text=batches.text)
        except UnknownValue as error:
            raise error.shifted(batches.rows_before, batches.file) from None
        yield predicted(used, labels, None if person is None else (person, batch[person]))


def predicted(used: Reading, labels: dict[str, Any], person: tuple[str, Any] | None) -> pa.RecordBatch:
    """Return the prediction for every row, and the probability of every class."""
    import pyarrow as pa  # noqa: PLC0415

    target = used.model.target
    found = used.model.predict(labels)
    heads = column_names(target.name, target.categories)
    taken = [] if person is None else [person[0]]
    if set(taken) & set(heads):
        raise InputError(f"--id {taken[0]!r} is what a column of predictions is called; rename it.")
    arrays = [] if person is None else [person[1]]
    kinds = {type(label) for label in target.categories}
    plain = pa.bool_() if kinds == {bool} else pa.int64() if kinds == {int} else pa.string()
    values = [category_text(value) for value in found.tolist()] if plain == pa.string() else found
    arrays.append(pa.array(values, plain))
    if used.probabilities:
        arrays += [pa.array(column) for column in used.model.predict_proba(labels).T]
    return pa.record_batch(arrays, names=[*taken, *heads][: len(arrays)])


def column_names(target: str, categories: Sequence[Any]) -> list[str]:
    """Return the columns of predictions."""
    return [target, *(f"P({target}={category_text(label)})" for label in categories)]


def records(
    batches: Batches, model: Any, policy: Policy | None, *, clear: bool, accept_incomplete: bool
) -> Records:
    """Return the records that a model is tested on; without a policy they are clear, in its categories."""
    read: dict[str, Any] = {"schema": policy} if clear else {"policy": policy}
    if policy is None:
        read = {"schema": mq.Schema((*model.features, model.target))}
    found: Records = mq.tally(batches, **read, engine="memory", accept_incomplete=accept_incomplete)
    say_missing(found.missing)
    return found


def tested(model: Any, source: Tally, *, json: bool) -> str:
    """Return the accuracy as text or JSON."""
    with progress("testing"):
        found = mq.evaluate.accuracy(model, source)
    lower, upper = found.conf_int()
    if json:
        return as_json(
            {
                "accuracy": found.value,
                "stderr": found.stderr,
                "lower": lower,
                "upper": upper,
                "n": found.n,
                "warning": found.warning,
            }
        )
    first = found.summary().split("\n")[0]
    return f"{first}, 95% interval {lower:.4f} to {upper:.4f}\n"
