"""Targets of later readers: limits, dealt blocks, terms and records of devices, settings of counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from masquerade.audit.canary_key import Canaries
from masquerade.channels.policy import Policy
from masquerade.channels.privacy_level import DEFAULT_LIMIT, parse_limit
from masquerade.cli.settings_files import settings_types
from masquerade.protocols.people.owner_budget import OwnerBudget
from masquerade.services.common import settings as node_settings
from masquerade.services.counting.example import write_count
from masquerade.services.counting.person_file import Admission, read_record
from masquerade.services.parties.example import MINER, two_hospitals_and_a_registry, write_deployment
from masquerade.services.threshold.client import read_rows
from masquerade.services.threshold.example import draw_example_rows, write_collection
from masquerade.services.threshold.settings import load_form
from masquerade.sources.cell_key import PerturbationTable
from masquerade.stats.regression.formula import variables_in
from masquerade.survey import Survey
from masquerade.survey.collector.example import write_example
from masquerade.survey.device.participation import FORMAT, Participation, Record, read_row
from masquerade.survey.device.publication import terms_text
from masquerade.survey.device.terms import DeviceTerms

YES_NO = ["yes", "no"]
CHANNEL = {"kind": "binary", "p": "1/4"}
FORM = (
    b"masquerade: 1\nquasi: {age: [young, middle, old]}\nsensitive: {ill: [sick, well]}\n"
    b"hierarchies: {age: [{any: [young, middle, old]}]}\n"
)
LIMIT = {"breach": "5%:50%"}
# every entry of a policy that 0.1 did not have
POLICIES: tuple[dict[str, Any], ...] = (
    {
        "masquerade": 1,
        "limit": LIMIT,
        "clear": "accepted",
        "variables": {
            "sex": {"categories": ["f", "m"]},
            "ill": {"categories": [*YES_NO, "refused"], "missing": "refused", "channel": CHANNEL},
        },
        "strata": {"by": "sex", "channels": {"f": {"ill": {"kind": "for_gamma", "gamma": 3}}}},
    },
    {
        "masquerade": 1,
        "limit": {"epsilon": "2.9", "delta": 0},
        "variables": {name: {"categories": YES_NO} for name in "abcd"},
        "blocks": [{"variables": [["a", "b"], "c", "d"], "k": 2, "gamma": 18}],
    },
    {
        "masquerade": 1,
        "limit": {"gamma": 19},
        "variables": {
            "a": {"categories": YES_NO},
            "b": {"categories": [1, 2, "no answer"], "missing": ["no answer"], "na": ["k.A."]},
            "c": {"bins": [0, 10, 20], "missing": "missing"},
        },
        "blocks": [
            {
                "variables": ["a", "b", "c"],
                "gamma": "57/3",
                "design": [{"variables": ["a", "b"], "weight": 2}, {"variables": ["b", "c"]}],
            }
        ],
    },
    {
        "masquerade": 1,
        "limit": {"gamma": 5},
        "variables": {
            "drug": {
                "categories": [*YES_NO, "refused"],
                "missing": "refused",
                "clear_missing": "accepted",
                "channel": {"kind": "for_gamma", "gamma": 5},
            }
        },
    },
)
# readers of files that other targets run, by the function that reads
READERS = {
    "sources.cell_key.PerturbationTable.load": "ptable",
    "anonymity.hierarchy.load_hierarchies": "hierarchies-yaml",
    "audit.canaries.read_canaries": "canary-key",
    "audit.canary_key.Canaries.load": "canary-key",
    "channels.policy.policy.Policy.load": "policy-json",
    "channels.policy.text.read": "policy-yaml",
    "cli.ledger_privacy.read_releases": "ledger",
    "cli.settings_files.load_settings": "settings-session",
    "cli.settings_files.read_settings": "settings-session",
    "cli.survey.read_questionnaire": "xlsform",
    "core.util.json_text.read_text": "json-file",
    "core.util.json_text.read_json": "json-file",
    "core.util.private_file.read_private": "identity",
    "crypto.keys.load_identity": "identity",
    "disguising.memo.Memo.open": "memo",
    "disguising.memo.Memo.load": "memo",
    "disguising.memo.Memo.load_or_create": "memo",
    "frames.baskets.read_baskets": "baskets",
    "frames.file_reader.open_batches": "csv",
    "frames.metadata.read_sidecar": "sidecar",
    "frames.table_formats.delta.read_delta": "delta-log",
    "frames.table_formats.iceberg.read_iceberg": "iceberg-metadata",
    "interop.dap.from_dap": "interop-dap",
    "interop.dap.read_dap": "interop-dap",
    "interop.pram.read_pram": "interop-pram",
    "learn.model_file.load": "model-network",
    "learn.networks.files.uai.read_uai": "interop-uai",
    "learn.networks.files.xmlbif.read_xmlbif": "interop-xmlbif",
    "learn.networks.network_files.read_bif": "bif",
    "services.common.release_ledger.parse": "ledger",
    "services.common.release_ledger.inspect": "ledger",
    "services.common.release_ledger.ReleaseLedger.open": "ledger",
    "services.common.settings.load": "settings-party",
    "services.common.settings_file.read": "settings-party",
    "services.counting.person_file.read_record": "person-row",
    "services.parties.reconcile.Offer.read": "offer",
    "services.parties.settings.load_before_consent": "settings-party",
    "services.threshold.client.read_row": "row",
    "services.threshold.client.read_rows": "rows",
    "services.threshold.client.read_submissions": "rows",
    "services.threshold.enrolment_office.read_credential": "credential",
    "services.threshold.messages.ClientRecord.load": "collect.ClientRecord",
    "services.threshold.settings.load_form": "form",
    "services.threshold.settings.load_levels": "form",
    "survey.device.participation.Record.load": "device-record",
    "survey.device.participation.read_row": "device-row",
    "survey.device.terms.DeviceTerms.load": "device-terms",
    "survey.forms.limesurvey.read": "limesurvey",
    "survey.packages.responses.Responses.load": "tool-responses",
    "cli.survey_tools.read_tool_responses": "tool-responses",
    "survey.forms.survey_file.Survey.load": "survey",
    "survey.forms.survey_file.Survey.from_values": "survey",
    "survey.forms.surveyjs.read": "surveyjs",
    "survey.forms.xlsform.read": "xlsform",
}
# SQLite files are opened by SQLite; names and data sets of the package are not files of others
NOT_FUZZED = {
    "cli.enrolment.read_names": "a list of names, one per line, which the office itself writes",
    "data.load.load": "data sets by name, whose files are checked against a digest (target data-package)",
    "protocols.wire.durable_store.Claims.open": "a database, see tests/unit/protocols/wire",
    "protocols.wire.durable_store.Claims.peek": "a database, see tests/unit/protocols/wire",
    "protocols.wire.durable_store.DurableStore.peek": "a database, see tests/unit/protocols/wire",
    "protocols.wire.durable_store.Notes.peek": "a database, see tests/unit/protocols/wire",
    "services.common.release_ledger.peek_receipts": "a database; a receipt is a target",
    "services.common.state.State.open": "a database, see tests/unit/services/common/test_state.py",
    "services.common.state.peek": "a database, see tests/unit/services/common/test_state.py",
    "services.common.state.peek_claims": "a database, see tests/unit/services/common/test_state.py",
    "services.common.state.peek_problem": "a database, see tests/unit/services/common/test_state.py",
}


def later_files(folder: Path, file: Callable[..., Any], batches: Callable[[Path], object]) -> Iterator[Any]:
    """Yield the targets that read a file.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    file : callable
        Makes a target of a name, a loader, an extension and seeds.
    batches : callable
        Reads a file of records in batches.
    """
    policies = [json.dumps(values).encode() for values in POLICIES]
    yield file("policy-later", _policy, ".json", *policies, weight=4)
    records = b'{"a": "yes", "b": 1}\n{"b": null, "a": "no"}\n\n{"a": "no", "b": 2.5}\n'
    yield file("json-lines", batches, ".jsonl", records)
    survey = _survey(folder)
    terms = terms_text(survey)
    yield file("device-terms", _terms, ".json", terms.encode(), weight=4)
    yield file("device-record", Record.load, ".record", _record(terms), weight=4)
    yield file("device-spent", partial(_spent, terms), ".spent", b"19/1\n", b"899/101\n", b"inf\n")
    yield file("device-row", read_row, ".json", b'{"age": "30-39", "ill": null}')
    yield file("person-row", read_record, ".json", b'{"age": "30-39", "ill": null}')
    codes = {"masquerade_canaries": 1, "policy": "ab" * 32, "column": "id", "names": ["c1", "c2"]}
    yield file("canary-key", Canaries.load, ".json", json.dumps(codes | {"codes": {"a": [0, 1]}}).encode())
    yield file("rows", partial(_rows, _form(folder)), ".csv", b"person,age,ill\nP1,young,sick\nP2,old,well\n")
    table = b"i,j,p\n0,0,1\n1,0,0.5\n1,2,0.5\n2,1,0.5\n2,3,0.5\n"
    yield file("ptable", PerturbationTable.load, ".csv", table, table.replace(b",", b";").replace(b".", b","))
    for name in ("count", "count-miner", "count-leader", "count-randomness", "count-office", "session"):
        load = partial(node_settings.load, model=settings_types()[name], environment={})
        yield file(f"settings-{name}", load, ".yaml", settings_seeds()[name], weight=2)


def later_texts(target: Callable[..., Any]) -> Iterator[Any]:
    """Yield the targets that read a text; `target` makes a target of a reader and seeds."""
    admission = Admission("count", "https://miner.example.org", ("ab" * 32,), "-----BEGIN", "cd" * 32)
    yield target("admission", lambda text: Admission.from_json(text, "file"), admission.to_json().encode())
    yield target("limit", _limit, b"5%:50%", b"gamma=19", b"epsilon=2.9", b"0.05:1/2")
    formulas = (
        b"age + I(x^2):C(k) + ns(z, df=3)",
        b"(a + b)^2 - 1",
        b"np.log(x) + poly(y, 2)",
        b"bs(`a b`, df=4)",
    )
    yield target("formula", variables_in, *formulas)


def _policy(path: Path) -> None:
    policy = Policy.load(path)
    again = Policy.from_dict(policy.to_dict())
    assert (again.id, again.limit) == (policy.id, policy.limit)
    if policy.limit is not None:  # whatever a file states, a policy that loads keeps its limit
        assert policy.record_gamma <= policy.limit.gamma


def _terms(path: Path) -> None:
    """Read terms as a device does: γ is computed, and what would be sent is described, before any draw."""
    terms = DeviceTerms.load(path)
    terms.summary()
    assert terms.record_gamma >= 1


def _record(terms: str) -> bytes:
    parsed = DeviceTerms.parse(terms)
    values = {
        "policy": parsed.policy,
        "collector": parsed.collector,
        "code": "ab" * 16,
        "reports": [0, 1],
        "state": "drawn",
        "invitation": None,
        "token_input": None,
        "blind": None,
        "token": None,
        "masquerade_gather_record": FORMAT,
    }
    return json.dumps(values).encode()


def _survey(folder: Path) -> Survey:
    place = folder / "terms-survey"
    if not place.exists():
        write_example(place, "https://survey.example.org", policy=Policy.from_dict(POLICIES[1]))
    return Survey.load(place / "survey.yaml")


def _form(folder: Path) -> Any:
    path = folder / "rows-form.yaml"
    path.write_bytes(FORM)
    return load_form(path)


def _rows(form: Any, path: Path) -> None:
    read_rows(path, form)


@cache
def settings_seeds() -> dict[str, bytes]:
    """Return a file of every type of settings, as the examples of the commands have them."""
    with TemporaryDirectory() as base:
        folder = Path(base)
        policy = {"masquerade": 1, "variables": {"a": {"categories": YES_NO, "channel": CHANNEL}}}
        counted = write_count(folder / "c", protocol="mix", records=[{"a": "yes"}] * 12, policy=policy)
        clear = {"masquerade": 1, "variables": {"a": {"categories": YES_NO}}}
        suppressed = write_count(
            folder / "t", protocol="suppression", records=[{"a": "yes"}] * 12, policy=clear, k=3
        )
        parties = write_deployment(folder / "p", two_hospitals_and_a_registry("vertical-with-miner", 30))
        collected = write_collection(folder / "k", k=2, rows=draw_example_rows(4))
        write_example(folder / "s", "https://survey.example.org", invited=True)
        files = {
            "count": counted["count"],
            "count-miner": counted["miner"],
            "count-leader": counted["leader1"],
            "count-randomness": suppressed["randomness"],
            "count-office": counted["office"],
            "party": parties["registry"],
            "miner": parties[MINER],
            "session": folder / "p" / "session.yaml",
            "randomness": collected["randomness"],
            "collector": collected["collector"],
            "office": collected["office"],
            "collection": collected["collection"],
            "survey": folder / "s" / "collector.yaml",
        }
        return {name: path.read_bytes() for name, path in files.items()}


def _limit(text: str) -> None:
    limit = parse_limit(text)
    assert limit.gamma > 1
    assert str(limit)


def _spent(terms: str, path: Path) -> None:
    """Read the note of an earlier draw as a device does: it never lowers what the next report reveals."""
    parsed = DeviceTerms.parse(terms)
    spent = Participation(parsed, path.parent / "absent.record")._gammas_spent()
    assert spent
    budget = OwnerBudget(spent, DEFAULT_LIMIT)
    assert budget.total("next", parsed.record_gamma) >= parsed.record_gamma
