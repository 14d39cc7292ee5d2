"""`masquerade predict`: predictions of a saved model, and tests of it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import masquerade as mq
from masquerade.cli.data_source import origin_note, say_missing
from masquerade.cli.options import AcceptIncomplete, Clear, Data, Overwrite, flag, option, required_option
from masquerade.cli.output import as_json, emit, progress, refuse, report_warnings, say
from masquerade.core.errors import InputError, PolicyMismatch, UnknownValue
from masquerade.core.util.formatting import category_text, counted
from masquerade.learn.option_types import category_called

if TYPE_CHECKING:
    import pyarrow as pa

    from masquerade.channels.policy import Policy
    from masquerade.core.schema import Field
    from masquerade.frames.file_reader import Batches
    from masquerade.sources.records import Records


def command(
    data: Data,
    *,
    model: Annotated[
        str, required_option("The model, as `learn --out` saved it.", "--model", "-m", metavar="MODEL.json")
    ],
    policy: Annotated[
        str | None,
        option("The policy that disguised DATA; by default rows are clear.", "FILE", "--policy", "-p"),
    ] = None,
    clear: Clear = False,
    test: Annotated[
        bool,
        flag(
            "Test the model: accuracy, sensitivity, specificity, predictive values, AUC, calibration and "
            "thresholds, corrected for the disguise, next to the trivial classifier.",
            "--test",
        ),
    ] = False,
    positive: Annotated[
        str | None,
        option("The positive class of --test; by default the rarer of two.", "CATEGORY", "--positive"),
    ] = None,
    accept_incomplete: AcceptIncomplete = False,
    person: Annotated[
        str | None,
        option("Column that names the rows; it is written before the predictions.", "COLUMN", "--id"),
    ] = None,
    out: Annotated[
        str | None,
        option(
            "Output file: .csv, .parquet, .arrow; by default CSV on standard output.", "FILE", "--out", "-o"
        ),
    ] = None,
    json: Annotated[bool, flag("Print the test as JSON.", "--json")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict the target of every row, with probabilities; or test a model on records nobody may see.

    Example: masquerade predict disguised.csv --model model.json -p policy.yaml --out predictions.csv
    """
    twice = test and out is not None and "-" in data
    no_rules = clear and policy is None
    refuse(
        (json and not test, "--json prints the test; give --test, or write predictions with --out."),
        (positive is not None and not test, "--positive is for a test; give --test, too."),
        (test and out == "-", "--test prints to standard output; write the predictions into a file."),
        (twice, "Standard input can be read only once: ask for --test or for predictions."),
        (no_rules, "--clear reads rows by the variables of a policy: give --policy, or omit --clear."),
    )
    loaded = mq.learn.load(model)
    if not hasattr(loaded, "predict"):
        raise InputError(f"{model}: a model of type {loaded.to_dict()['kind']!r} predicts no target.")
    rules = None if policy is None else mq.Policy.load(policy)
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (loads Arrow)

    with report_warnings(), open_batches(data, []) as batches:
        note = _note_of(batches, rules, clear=clear)
        used = _choose_predictor(loaded, rules, clear=clear) if out is not None or not test else None
        tested = None
        if test:
            source = _records(batches, loaded, rules, clear=clear, accept_incomplete=accept_incomplete)
            tested = _test_model(loaded, source, positive, json=json)
        if used is not None:
            rows = _write_predictions(batches, used, out or "-", person, overwrite=overwrite)
    if used is not None and out not in {None, "-"}:
        say(f"{counted(rows, 'row')} predicted into {out}.")
    if tested is not None:
        emit(tested)
    if note is not None:
        say(note)


def _note_of(batches: Batches, policy: Policy | None, *, clear: bool) -> str | None:
    """Raise an error if rows were disguised under a different policy; return a note if theirs is unknown."""
    from masquerade.sources.tally import check_origin  # noqa: PLC0415  (loads Arrow)

    note = None if policy is None else origin_note(batches, clear=clear)
    try:
        check_origin(batches, None if clear else policy)
    except PolicyMismatch:
        if policy is not None:
            raise
        raise InputError("The rows are disguised: give their policy with --policy.") from None
    return note


@dataclass(frozen=True, slots=True)
class _Predictor:
    """A model that predicts, and the fields of the columns that it uses."""

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


def _choose_predictor(model: Any, policy: Policy | None, *, clear: bool) -> _Predictor:
    """Return the predictor: the model itself for clear rows, its `disguised_view` for disguised rows."""
    from masquerade.channels.policy.missing_reports import report_field  # noqa: PLC0415  (loads numpy)

    names = getattr(model, "used", ()) or tuple(feature.name for feature in model.features)
    if policy is None:
        features = {feature.name: feature for feature in model.features}
        return _Predictor(model, tuple(report_field(features[name]) for name in names), disguised=False)
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    if clear:
        fields = {field.variable.name: field for field in policy.fields}
        return _Predictor(model, tuple(fields[name] for name in names), disguised=False)
    view = mq.evaluate.disguised_view(model, policy)
    seen = {variable.name: variable for variable in view.features if variable.name in names}
    if getattr(view, "stratum", None) is not None:
        seen.setdefault(view.stratum.name, view.stratum)
    return _Predictor(view, tuple(map(report_field, seen.values())), disguised=True)


def _write_predictions(
    batches: Batches, used: _Predictor, out: str, person: str | None, *, overwrite: bool
) -> int:
    """Write the predictions of all rows, batch by batch; return the number of rows."""
    from masquerade.frames.file_writer import AtomicWriter  # noqa: PLC0415  (loads Arrow)
    from masquerade.frames.label_codes import missing_texts_of  # noqa: PLC0415

    names = [field.variable.name for field in used.fields]
    columns = [*([person] if person is not None and person not in names else []), *names]
    rows, writer, chosen = 0, None, batches.select(columns).tell_missing(missing_texts_of(used.fields))
    with progress("predicting") as advance, ExitStack() as stack:
        for batch in chosen:
            try:
                labels = used.labels(batch, text=chosen.text)
            except UnknownValue as error:
                raise error.shift_rows(chosen.rows_before, chosen.file) from None
            found = _predict_batch(used, labels, None if person is None else (person, batch[person]))
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


def _predict_batch(
    used: _Predictor, labels: dict[str, Any], person: tuple[str, Any] | None
) -> pa.RecordBatch:
    """Return the prediction of every row, and the probability of every class."""
    import pyarrow as pa  # noqa: PLC0415

    target = used.model.target
    found = used.model.predict(labels)
    heads = [target.name, *(f"P({target.name}={category_text(label)})" for label in target.categories)]
    id_names = [] if person is None else [person[0]]
    if set(id_names) & set(heads):
        raise InputError(f"--id {id_names[0]!r} is the name of a column of predictions; rename it.")
    arrays = [] if person is None else [person[1]]
    kinds = {type(label) for label in target.categories}
    plain = pa.bool_() if kinds == {bool} else pa.int64() if kinds == {int} else pa.string()
    values = [category_text(value) for value in found.tolist()] if plain == pa.string() else found
    arrays.append(pa.array(values, plain))
    if used.probabilities:
        arrays += [pa.array(column) for column in used.model.predict_proba(labels).T]
    return pa.record_batch(arrays, names=[*id_names, *heads][: len(arrays)])


def _records(
    batches: Batches, model: Any, policy: Policy | None, *, clear: bool, accept_incomplete: bool
) -> Records:
    """Return the records to test a model on; without a policy they are clear, with the model's categories."""
    read: dict[str, Any] = {"schema": policy} if clear else {"policy": policy}
    if policy is None:
        read = {"schema": mq.Schema((*model.features, model.target))}
    found: Records = mq.tally(batches, **read, engine="memory", accept_incomplete=accept_incomplete)
    say_missing(found.missing)
    return found


def _test_model(model: Any, source: Records, positive: str | None, *, json: bool) -> str:
    """Return the test of a model as text; only its accuracy if the model uses too many variables."""
    from masquerade.sources.group_counts import TooManyTruths  # noqa: PLC0415  (loads numpy)

    label = None if positive is None else category_called(model.target, positive, "--positive")
    try:
        with progress("testing"):
            result = mq.evaluate.performance(model, source, positive=label)
    except TooManyTruths as error:
        say(f"note: only the accuracy can be tested. {error}")
        return _test_accuracy(model, source, json=json)
    return as_json(result.to_dict()) if json else f"{result.summary()}\n"


def _test_accuracy(model: Any, source: Records, *, json: bool) -> str:
    """Return the accuracy of a model, and the accuracy of the trivial classifier."""
    with progress("testing"):
        measure = mq.evaluate.accuracy(model, source)
    (table,) = source.answer([mq.Query(by=(model.target.name,))])
    common = int(table.values.argmax())
    trivial = float(table.values[common]) / table.total
    lower, upper = measure.conf_int()
    if json:
        row = {"measure": "accuracy", "estimate": measure.value, "stderr": measure.stderr}
        row |= {"lower": lower, "upper": upper, "trivial": trivial}
        notes = [] if measure.warning is None else [measure.warning]
        return as_json({"result": "Performance", "n": measure.n, "rows": [row], "notes": notes})
    always = category_text(model.target.categories[common])
    first = measure.summary().split("\n")[0]
    return f"{first}, 95% interval {lower:.4f} to {upper:.4f}; predicting {always} for all: {trivial:.4f}\n"
