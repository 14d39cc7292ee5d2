"""`masquerade predict`: what a saved model says of rows, and how often it is right."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import masquerade as mq
from masquerade.cli.data_source import origin_note, say_missing
from masquerade.cli.options import AcceptIncomplete, Clear, Data, Overwrite, flag, option, required
from masquerade.cli.output import as_json, emit, progress, refuse, say, warnings_said
from masquerade.core.errors import InputError, PolicyMismatch, UnknownValue
from masquerade.core.util.formatting import category_text, counted

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
        str, required("The model, as `learn --out` saved it.", "--model", "-m", metavar="MODEL.json")
    ],
    policy: Annotated[
        str | None,
        option("The policy that DATA were disguised by. None: clear rows.", "FILE", "--policy", "-p"),
    ] = None,
    clear: Clear = False,
    accuracy: Annotated[
        bool, flag("Print how often the model is right, corrected for the disguise.", "--accuracy")
    ] = False,
    accept_incomplete: AcceptIncomplete = False,
    person: Annotated[
        str | None, option("Column that names the rows, written before the predictions.", "COLUMN", "--id")
    ] = None,
    out: Annotated[
        str | None,
        option("Where to: .csv, .parquet, .arrow. None: CSV on standard output.", "FILE", "--out", "-o"),
    ] = None,
    json: Annotated[bool, flag("Print the accuracy as JSON.", "--json")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict the target of every row, with probabilities; or test a model on records nobody may see.

    Example: masquerade predict disguised.csv --model model.json -p policy.yaml --out predictions.csv
    """
    twice = accuracy and out is not None and "-" in data
    unasked, no_rules = json and not accuracy, clear and policy is None
    refuse(
        (unasked, "--json prints the accuracy; give --accuracy, or write predictions with --out."),
        (accuracy and out == "-", "--accuracy prints to standard output; write the predictions into a file."),
        (twice, "Standard input is read once: ask for --accuracy or for predictions."),
        (no_rules, "--clear reads rows by a policy's variables: give --policy, or leave it out."),
    )
    loaded = mq.learn.load(model)
    if not hasattr(loaded, "predict"):
        raise InputError(f"{model}: a model of kind {loaded.to_dict()['kind']!r} predicts no target.")
    rules = None if policy is None else mq.Policy.load(policy)
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (loads Arrow)

    with warnings_said(), open_batches(data, []) as batches:
        unsure = _note_of(batches, rules, clear=clear)
        used = _reading(loaded, rules, clear=clear) if out is not None or not accuracy else None
        figure = None
        if accuracy:
            source = _records(batches, loaded, rules, clear=clear, accept_incomplete=accept_incomplete)
            figure = _tested(loaded, source, json=json)
        if used is not None:
            rows = _written(batches, used, out or "-", person, overwrite=overwrite)
    if used is not None and out not in {None, "-"}:
        say(f"{counted(rows, 'row')} predicted into {out}.")
    if figure is not None:
        emit(figure)
    if unsure is not None:
        say(unsure)


def _note_of(batches: Batches, policy: Policy | None, *, clear: bool) -> str | None:
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
class _Reading:
    """What predicts, and how the columns that it looks at are read."""

    model: Any
    fields: tuple[Field, ...]
    disguised: bool

    @property
    def probabilities(self) -> bool:
        return getattr(self.model, "loss", "logistic") == "logistic"

    def labels(self, batch: pa.RecordBatch, *, text: bool) -> dict[str, Any]:
        from masquerade.frames.label_codes import encode  # noqa: PLC0415  (loads Arrow)
        from masquerade.learn.classifiers.prediction_rows import labels_of  # noqa: PLC0415

        found = {}
        for field in self.fields:
            name, mixed = field.variable.name, self.disguised and field.variable.mixed
            found[name] = labels_of(field.variable, encode(batch[name], field, text=text or mixed))
        return found


def _reading(model: Any, policy: Policy | None, *, clear: bool) -> _Reading:
    """Return what predicts the rows: the model for clear ones, its view for disguised ones."""
    from masquerade.core.schema import Field  # noqa: PLC0415

    names = getattr(model, "used", ()) or tuple(feature.name for feature in model.features)
    if policy is None:
        own = {feature.name: feature for feature in model.features}
        return _Reading(model, tuple(Field(own[name]) for name in names), disguised=False)
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    if clear:
        fields = {field.variable.name: field for field in policy.fields}
        return _Reading(model, tuple(fields[name] for name in names), disguised=False)
    view = mq.evaluate.disguised_view(model, policy)
    seen = {variable.name: variable for variable in view.features if variable.name in names}
    if getattr(view, "stratum", None) is not None:
        seen.setdefault(view.stratum.name, view.stratum)
    return _Reading(view, tuple(map(Field, seen.values())), disguised=True)


def _written(batches: Batches, used: _Reading, out: str, person: str | None, *, overwrite: bool) -> int:
    """Write the predictions of all rows, batch by batch; return how many there are."""
    from masquerade.frames.file_writer import AtomicWriter  # noqa: PLC0415  (loads Arrow)

    names = [field.variable.name for field in used.fields]
    columns = [*([person] if person is not None and person not in names else []), *names]
    rows, writer, chosen = 0, None, batches.select(columns)
    with progress("predicting") as advance, ExitStack() as stack:
        for batch in chosen:
            try:
                labels = used.labels(batch, text=chosen.text)
            except UnknownValue as error:
                raise error.shifted(chosen.rows_before, chosen.file) from None
            found = _predicted(used, labels, None if person is None else (person, batch[person]))
            if writer is None:
                inputs = [path for path in batches.paths if path != "-"]
                made = AtomicWriter(out, found.schema, {}, overwrite=overwrite, inputs=inputs)
                writer = stack.enter_context(made)
            writer.write(found)
            rows += len(found)
            advance(batches.bytes_read, batches.total_bytes)
        if writer is None:
            raise InputError("There are no rows to predict.")
    return rows


def _predicted(used: _Reading, labels: dict[str, Any], person: tuple[str, Any] | None) -> pa.RecordBatch:
    """Return the prediction for every row, and the probability of every class."""
    import pyarrow as pa  # noqa: PLC0415

    target = used.model.target
    found = used.model.predict(labels)
    heads = [target.name, *(f"P({target.name}={category_text(label)})" for label in target.categories)]
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


def _records(
    batches: Batches, model: Any, policy: Policy | None, *, clear: bool, accept_incomplete: bool
) -> Records:
    """Return the records that a model is tested on; without a policy they are clear, in its categories."""
    read: dict[str, Any] = {"schema": policy} if clear else {"policy": policy}
    if policy is None:
        read = {"schema": mq.Schema((*model.features, model.target))}
    found: Records = mq.tally(batches, **read, engine="memory", accept_incomplete=accept_incomplete)
    say_missing(found.missing)
    return found


def _tested(model: Any, source: Tally, *, json: bool) -> str:
    with progress("testing"):
        found = mq.evaluate.accuracy(model, source)
    lower, upper = found.conf_int()
    if json:
        figures = {"accuracy": found.value, "stderr": found.stderr, "lower": lower, "upper": upper}
        return as_json(figures | {"n": found.n, "warning": found.warning})
    first = found.summary().split("\n")[0]
    return f"{first}, 95% interval {lower:.4f} to {upper:.4f}\n"
