"""What is fuzzed: every class of messages, every decoder of HTTP bodies, every loader of files; their seeds.

A loader is given a file; whatever it returns is walked a little further where callers do so at once (the id
of a policy, the batches of a file). `corpus/` holds hostile inputs by target: what once did harm, or could.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from masquerade.anonymity.hierarchy import load_hierarchies
from masquerade.channels.policy import Policy
from masquerade.cli.survey import read_questionnaire
from masquerade.core.schema import Variable
from masquerade.core.util.json_text import parse_json, read_json
from masquerade.crypto import certificates
from masquerade.crypto.keys import SigningKey, load_identity
from masquerade.data.catalogue import RawFile
from masquerade.data.lookup import NotFetched, _unpack
from masquerade.disguising.memo import Memo
from masquerade.frames.baskets import read_baskets
from masquerade.frames.ddi import codebook
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode
from masquerade.interop.croissant_description import croissant
from masquerade.interop.dap import from_dap
from masquerade.interop.pram import from_pram
from masquerade.interop.release_folder import check_release, sha256_of
from masquerade.learn import model_file
from masquerade.learn.classifiers.label_tree import LabelNode, LabelTree
from masquerade.learn.clusters import Lattice, known_clusters
from masquerade.learn.networks.files.uai import from_uai
from masquerade.learn.networks.files.xmlbif import from_xmlbif
from masquerade.learn.networks.network_files import read_bif
from masquerade.protocols.k_anonymity.threshold.messages import Credential
from masquerade.protocols.wire import arrow_stream
from masquerade.services.common import problems, release_ledger
from masquerade.services.common import settings as node_settings
from masquerade.services.common.anchor import AnchorStep
from masquerade.services.common.client import json_object
from masquerade.services.common.receipts import read_receipt
from masquerade.services.parties import messages as party_messages
from masquerade.services.parties.linkage import Linkage
from masquerade.services.parties.settings import MinerSettings, PartySettings
from masquerade.services.threshold.client import read_row
from masquerade.services.threshold.enrolment_office import read_credential
from masquerade.services.threshold.settings import (
    CollectionSettings,
    CollectorSettings,
    OfficeSettings,
    RandomnessSettings,
    load_form,
)
from masquerade.sources.parties import joined
from masquerade.studio.notebook import lines_of
from masquerade.studio.project import Project
from masquerade.studio.project_files import read_version
from masquerade.survey.collector.collector import parse_report
from masquerade.survey.collector.example import body_of, write_example
from masquerade.survey.collector.settings import SurveySettings
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.packages.package import build_package
from masquerade.survey.packages.responses import Responses
from tests.fuzz import workbooks
from tests.fuzz.later_targets import FORM, later_files, later_texts, settings_seeds
from tests.fuzz.newest_targets import newest_files, newest_texts
from tests.fuzz.workbooks import asked
from tests.survey.limesurvey_file import limesurvey_file
from tests.vectors.message_vectors import Example, examples

CORPUS = Path(__file__).parent / "corpus"
OLD = Path(__file__).parents[1] / "compatibility" / "v0_1"
MOST_SEED = 8192  # bytes: mutations of long seeds are slow and tell no more


@dataclass(frozen=True)
class Target:
    """What takes bytes, the bytes to begin with, and how often it is chosen."""

    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    weight: int = 1
    plain: bool = False  # seeds are text: JSON, YAML, CSV
    only: frozenset[type[Exception]] = field(default_factory=frozenset)  # further errors that it may raise


def targets(folder: Path) -> dict[str, Target]:
    """Return all targets by name; files are written into the folder."""
    found = [*_messages(), *_bodies(), *_files(folder), *_foreign(folder), *_later_texts()]
    return {target.name: target for target in found}


def _seeds(name: str, *seeds: bytes) -> tuple[bytes, ...]:
    kept = sorted((CORPUS / name).glob("*")) if (CORPUS / name).is_dir() else []
    return tuple(seed[:MOST_SEED] for seed in (*seeds, *(path.read_bytes() for path in kept)))


def _messages() -> Iterator[Target]:
    for protocol, listed in examples().items():
        by_class: dict[str, list[Example]] = {}
        for example in listed:
            by_class.setdefault(example.name, []).append(example)
        for name, same in by_class.items():
            short = f"{protocol}.{name.rsplit('.', 1)[1]}"
            context = same[0].context
            seeds = [one.message.encode(one.context) for one in same if one.context == context]
            yield Target(short, partial(_decode, same[0]), _seeds(short, *seeds), weight=8)


def _decode(example: Example, data: bytes) -> None:
    example.refused(data)  # what decodes encodes to the same bytes


def _bodies() -> Iterator[Target]:
    spec = (
        b'{"session": "s", "protocol": "vertical-with-miner", "convener": "miner", "parties": ["a", "b"], '
        b'"learn": {"model": "network", "structure": {"x": [], "y": ["x"]}}, "linking": "intersection"}'
    )
    epoch = b'{"epoch": "' + b"0" * 32 + b'"'
    bodies = {
        "Begin": epoch + b', "spec": ' + spec + b"}",
        "Begun": b'{"policy": {"masquerade": 1}, "linked": false, "signature": "", "ended": false}',
        "Settled": b'{"records": 3, "alignment": "' + b"0" * 64 + b'", "signature": ""}',
        "Arrange": epoch + b', "policies": {"a": {}}, "signatures": {"a": ""}, "records": 0}',
        "Learn": epoch + b', "order": ["a"], "max_parents": 2, "structure": {"a": ["b"]}}',
        "Learnt": b'{"nodes": {"a": {"parents": []}}}',
        "Share": epoch + b', "model": {"masquerade_model": 1}}',
    }
    for name, body in bodies.items():
        kind = getattr(party_messages, name)
        decode = partial(_party_message, kind)
        yield Target(f"parties-{name}", decode, _seeds(f"parties-{name}", body), weight=8, plain=True)
    yield Target(
        "json-object", json_object, _seeds("json-object", b'{"spec": {"a": [1, 2.5, null]}}'), 8, plain=True
    )
    error = b'{"error": "refused", "message": "m", "refusals": [{"code": "c", "reason": "r"}]}'
    yield Target("http-problem", _problem, _seeds("http-problem", error), weight=8, plain=True)
    schema = pa.schema([arrow_stream.column("a", pa.uint8()), arrow_stream.column("b", pa.binary(4))])
    rows = pa.record_batch(
        [pa.array([3, 1], pa.uint8()), pa.array([b"abcd", b"efgh"], pa.binary(4))], schema=schema
    )
    unpack = partial(arrow_stream.unpack, most_bytes=1000, most_rows=10, schema=schema)
    yield Target("arrow-stream", unpack, _seeds("arrow-stream", arrow_stream.pack(rows)), weight=8)
    end = release_ledger.SignedMark.of(release_ledger.START, 1, SigningKey.from_seed(bytes(32)))
    receipt = b'{"end": "' + end.encode() + b'", "signature": ""}'
    yield Target("receipt", read_receipt, _seeds("receipt", receipt), weight=8, plain=True)
    name = AnchorStep(300, "ab" * 8, 1_790_000_000, "cd" * 4, {"state": 12, "burnt": 3}, "ef" * 8).name
    yield Target("anchor-name", _anchor_name, _seeds("anchor-name", name.encode()), weight=2, plain=True)
    linkage = bytes(24 * 3)
    yield Target("linkage", lambda data: Linkage.from_pieces([data]), _seeds("linkage", linkage), weight=2)


def _anchor_name(data: bytes) -> None:
    step = AnchorStep.parse(data.decode("utf-8", "replace"))
    if step is not None:  # what states a step is the name of that step
        assert AnchorStep.parse(step.name) == step


def _party_message(kind: type[Any], data: bytes) -> None:
    party_messages.encode(party_messages.decode(data, kind))


def _problem(data: bytes) -> None:
    str(problems.decode(422, data, party="p"))


def _files(folder: Path) -> Iterator[Target]:
    def file(
        name: str,
        load: Callable[[Path], object],
        ending: str,
        *seeds: bytes,
        weight: int = 4,
        plain: bool = True,
    ) -> Target:
        path = folder / f"{name}{ending}"

        def run(data: bytes) -> None:
            path.write_bytes(data)
            path.chmod(0o600)
            load(path)

        return Target(name, run, _seeds(name, *seeds), weight, plain)

    read = {
        path.relative_to(OLD).as_posix(): path.read_bytes()
        for path in sorted(OLD.rglob("*"))
        if path.is_file()
    }
    policies = [read[f"policies/{name}.json"] for name in ("survey", "groups", "kinds", "baskets-joint")]
    yield file("policy-json", _policy, ".json", *policies, weight=3)
    yield file(
        "policy-yaml", _policy, ".yaml", *[read[f"policies/{n}.yaml"] for n in ("survey", "groups")], weight=1
    )
    yield file("hierarchies-yaml", load_hierarchies, ".yaml", read["records/hierarchies.yaml"], weight=1)
    levels = b'{"hierarchies": 1, "columns": {"a": {"ranges": [5, 9], "start": 0}, "b": {"tree": {"x": 1}}}}'
    dates = b'{"hierarchies": 1, "columns": {"z": {"prefixes": [3, 2]}, "d": {"dates": ["month", "year"]}}}'
    yield file("hierarchies-json", load_hierarchies, ".json", levels, dates)
    normal = b'{"masquerade_memo": 2, "secret": "' + b"ab" * 32 + b'", "releases": {"p": 1.5, "q": null}}'
    yield file("memo", Memo.open, ".json", read["records/memo.json"], normal)
    for name in ("itemsets", "linear", "naive_bayes", "network", "pruned_tree", "rules", "structure", "tree"):
        compact = json.dumps(json.loads(read[f"models/{name}.json"])).encode()  # within the most of a seed
        yield file(f"model-{name}", model_file.load, ".json", compact, weight=1)
    for name, model in _more_models().items():
        yield file(f"model-{name}", model_file.load, ".json", json.dumps(model).encode(), weight=1)
    small = (
        b"network n { }\nvariable a { type discrete [ 2 ] { y, n }; }\nprobability ( a ) { table 0.5, 0.5; }"
    )
    child = (
        b"\nvariable b { type discrete [ 2 ] { y, n }; }\nprobability ( b | a ) { (y) 1, 0; default 1, 0; }"
    )
    yield file("bif", read_bif, ".bif", read["models/network.bif"], small + child, weight=2)
    yield file(
        "csv",
        _batches,
        ".csv",
        b"a,b\nyes,1\nno,2\n",
        b'"a","b"\r\n"y,es",3\r\n',
        b'a,b\n1,"2\n3,4\n',
        weight=4,
    )
    yield file(
        "csv-gz", _batches, ".csv.gz", gzip.compress(b"a,b\nyes,1\nno,2\n", mtime=0), weight=2, plain=False
    )
    table = pa.table(
        {"a": ["yes", "no"], "b": pa.array([1, 2], pa.int64()), "c": pa.array(["u", "v"]).dictionary_encode()}
    )
    shared = pa.table({"a": ["a longer text", "a longer one"] * 9})
    encoded = [
        _parquet(shared, column_encoding={"a": encoding}, use_dictionary=False, data_page_version=version)
        for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
        for version in ("1.0", "2.0")
    ]
    long = _parquet(pa.table({"a": ["x" * 2000, "yes"] * 9}), compression="zstd")
    lists = _parquet(pa.table({"a": [[1, 2], [3]] * 9}), compression="none", store_schema=False)
    yield file("parquet", _batches, ".parquet", _parquet(table), long, lists, *encoded, weight=1, plain=False)
    views = pa.table({"a": pa.array(["yes", "a longer text than a view"], pa.string_view())})
    yield file("arrow", _batches, ".arrow", _arrow(table), _arrow(views), weight=2, plain=False)
    yield file("xlsx", _batches, ".xlsx", workbooks.workbook(), workbooks.records(), weight=1, plain=False)
    sheet = (
        b'<row><c t="inlineStr"><is><t>a</t></is></c></row><row r="2"><c r="A2" t="str"><v>yes</v></c>'
        b'<c r="B2" s="1"><v>45000.5</v></c><c t="b"><v>1</v></c><c t="d"><v>2024-05-06</v></c></row>'
    )
    yield _sheet_part(folder, b'<worksheet xmlns="m"><sheetData>' + sheet + b"</sheetData></worksheet>")
    yield _sidecar(folder)
    yield file("baskets", read_baskets, ".dat", b"1 2 3\n2 4\n\n5\n", weight=4)
    plan = b'{"kind": "masquerade joined records", "version": 1, "session": "00", "recipient": "m", '
    yield _plan(folder, plan + b'"agreed": {}, "rows": 1, "parts": 1, "policy": {"masquerade": 1}}')
    yield file("row", read_row, ".json", b'{"age": "30-39", "zip": "123"}', weight=6)
    credential = Credential(bytes(16), bytes(32)).encode().hex().encode()
    yield file("credential", read_credential, ".credential", b"00" * 40, credential, weight=4)
    yield file("ledger", _ledger, ".jsonl", _ledger_line(), weight=4)
    yield file("identity", load_identity, ".key", b"ab" * 32 + b"\n")
    yield file("certificate", certificates.fingerprint, ".pem", *_pems(folder), weight=2)
    party = (
        b"name: a\nlisten: {port: 8443}\nstate: state\nidentity: i.pem\ndata: {files: [a.csv], policy: p,"
        b""
        b" key: id}\npeers: {b: {url: 'https://b:1', identity: '" + b"ab" * 32 + b"'}}\nconsents: []\n"
    )
    for name, model in {
        "party": PartySettings, "miner": MinerSettings, "collector": CollectorSettings,
        "randomness": RandomnessSettings, "collection": CollectionSettings, "office": OfficeSettings,
        "survey": SurveySettings,
    }.items():  # fmt: skip
        load = partial(node_settings.load, model=model, environment={})
        yield file(f"settings-{name}", load, ".yaml", party, settings_seeds()[name], weight=1)
    form = b"masquerade: 1\nvariables: {age: {categories: [young, old]}, ill: {categories: ['yes', 'no']}}\n"
    yield file("form", load_form, ".yaml", form, FORM, weight=1)
    survey = (
        b"masquerade_survey: 1\ntitle: {en: T, de: U}\nlanguages: [en, de]\npolicy: survey-policy.yaml\n"
        b"collector: 'https://s.example'\ncontact: c\nconsent: d\norder: fixed\nquestions:\n"
        b"- {variable: age, text: {en: A, de: B}, answers: {young: x, old: y}}\n"
        b"- {variable: ill, text: I, show_if: {age: [old]}, not_asked: 'no'}\n"
    )
    SURVEYED.save(folder / "survey-policy.yaml")
    yield file("survey", Survey.load, ".yaml", survey, weight=2)
    yield _survey_report(folder)
    form = (
        b'{"title": {"default": "T", "de": "U"}, "pages": [{"elements": [{"type": "radiogroup", "name": "a", '
        b'"title": "A?", "choices": ["y", {"value": 2, "text": {"de": "zwei"}}]}, {"type": "panel", '
        b'"elements": [{"type": "rating", "name": "b", "rateMax": 3, '
        b'"visibleIf": "{a} = \'y\' or {a} anyof [2]"}]}]}]}'
    )
    yield file("surveyjs", _questionnaire, ".json", form, weight=2)
    structures = [limesurvey_file(localized=one, most=5).encode() for one in (True, False)]
    yield file("limesurvey", _questionnaire, ".lss", *structures, weight=2)
    yield _tool_responses(folder)
    yield file("xlsform", _questionnaire, ".xlsx", workbooks.workbook(), weight=1, plain=False)
    yield _workbook_parts(folder)
    seeds = _seeds("xlsform-cells", *workbooks.cell_seeds())
    yield Target("xlsform-cells", workbooks.read_cells, seeds, weight=2, plain=True)
    yield from _studio(folder)
    yield file("json-file", read_json, ".json", b'{"a": [1, 2.5, "x", {"b": null}]}', weight=8)
    yield _package()
    yield from later_files(folder, file, _batches)
    yield from newest_files(folder, file, _batches)


def _later_texts() -> Iterator[Target]:
    def text(name: str, read: Callable[[str], object], *seeds: bytes) -> Target:
        def run(data: bytes) -> None:
            read(data.decode("utf-8", "replace"))

        return Target(name, run, _seeds(name, *seeds), 4, plain=True)

    yield from later_texts(text)
    yield from newest_texts(text)


def _studio(folder: Path) -> Iterator[Target]:
    """Yield the files of a studio's project, each in place of the right one."""
    place = folder / "project"
    argv = b'["estimate", "a.csv", "--policy", "policy.yaml", "--where", "a=b", "--level", "0.9", "--json"]'
    seeds = {
        "project.json": b'{"masquerade_studio": 1, "data": "/a/b.csv", "people": 7, "records": {"data": "t", '
        b'"policy": null, "engine": "postgres", "url": "postgresql://me@host:5432/d"}}',
        "steps.json": b'[{"command": ' + argv + b', "result": "00112233aabbccdd", "said": ["note"]}]',
        "counts.json": b'{"/a/b.csv": 12}',
        "draft.json": b'{"command": ["policy", "init", "a.csv", "--json"], "printed": {"people": 7}}',
        "history/000000.json": b'{"settings": {"masquerade_studio": 1}, '
        b'"policy": "masquerade: 1\\nvariables: {}"}',
        "history/index.json": b'{"at": 0, "words": ["a new project"]}',
    }
    for name, seed in seeds.items():

        def run(data: bytes, name: str = name) -> None:
            if not (place / "steps.json").exists():
                Project(place)
                for other, right in seeds.items():
                    (place / other).write_bytes(right)
            (place / name).write_bytes(data)
            try:
                project = Project(place)
                lines_of(project.steps)
                project.archive()
                read_version(read_json(place / "history/000000.json"), "history")
            finally:
                (place / name).write_bytes(seeds[name])

        called = f"studio-{name.partition('.')[0].replace('/', '-')}"
        yield Target(called, run, _seeds(called, seed), weight=1, plain=True)


def _more_models() -> dict[str, Any]:
    """Return models of kinds that came later than the oldest files."""
    age = Variable("age", (20, 40, 60))
    centres = known_clusters(["age"], Lattice.of([age.categories]), np.array([[0.0], [2.0]]), [3, 4], 7)
    nodes = (LabelNode("age", (1, 2, 3), None), *(LabelNode(None, (), code) for code in (0, 1, 0)))
    tree = LabelTree(Variable("a", ("y", "n")), (age,), nodes, 7)
    return {"k_means": centres.to_dict(), "label_tree": tree.to_dict()}


SMALL = Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {"a": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}}},
    }
)


SURVEYED = Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "age": {"categories": ["young", "old"]},
            "ill": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
        },
    }
)


def _foreign(folder: Path) -> Iterator[Target]:
    """Yield what reads files of other tools, and the check of a release."""

    def text(name: str, read: Callable[[str], object], *seeds: bytes, weight: int = 2) -> Target:
        def run(data: bytes) -> None:
            read(data.decode("utf-8", "surrogateescape"))

        return Target(f"interop-{name}", run, _seeds(f"interop-{name}", *seeds), weight, plain=True)

    head = b'<?xml version="1.0"?><!DOCTYPE BIF [<!ELEMENT BIF (NETWORK)*>]><BIF VERSION="0.3"><NETWORK>'
    node = b"<VARIABLE><NAME>%b</NAME><OUTCOME>y</OUTCOME><OUTCOME>n</OUTCOME></VARIABLE>"
    nodes = node % b"a" + node % b"b"
    tables = (
        b"<DEFINITION><FOR>a</FOR><TABLE>.5 .5</TABLE><PROPERTY>stderr = 0.1 inf</PROPERTY></DEFINITION>"
        b"<DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>1 0 .3 .7</TABLE></DEFINITION></NETWORK></BIF>"
    )
    entity = b'<!DOCTYPE BIF [<!ENTITY e "ee">]><BIF><NETWORK>&e;</NETWORK></BIF>'
    yield text("xmlbif", from_xmlbif, head + nodes + tables, entity)
    yield text("uai", from_uai, b"BAYES\n2\n2 3\n2\n1 0\n2 0 1\n2\n.5 .5\n6\n1 0 0 .2 .3 .5 # c\n")
    table = b'"","a","b"\n"a",0.9,0.1\n"b",2e-1,0.8\n'
    dput = b'structure(c(0.9, 0.2, 0.1, 0.8), dim = c(2L, 2L), dimnames = list(c("a", "b"), c("a", "b")))'
    yield text("pram", lambda given: from_pram({"v": given}), table, dput)
    start = b'{"masquerade_dap": 1, "policy": "' + SMALL.id.encode() + b'", "vdaf": "Prio3Histogram", '
    first, second = b"01" + b"00" * 31, b"02" + b"00" * 31
    shares = b'"report_count": 3, "draft": 18, "shares": ["' + first + b'", "' + second + b'"]}'
    counts = start + b'"report_count": 3, "counts": [1, 2]}'
    yield text("dap", lambda given: from_dap(parse_json(given), SMALL), counts, start + shares)
    yield from _release_files(folder)


def _release_files(folder: Path) -> Iterator[Target]:
    """Yield the files of a release that its check reads, each in place of the right one."""
    place = folder / "release"
    place.mkdir(exist_ok=True)
    SMALL.save(place / "policy.yaml")
    files = {
        "data.csv": "a\nyes\nno\n",
        "data.csv.masquerade.json": f'{{"policy": "{SMALL.id}"}}',
        "README.md": "r",
        "audit.html": "a",
        "audit.json": "{}",
        "codebook.xml": codebook(SMALL, cases=2),
    }
    for name, content in files.items():
        (place / name).write_text(content, encoding="utf-8")
    data = place / "data.csv"
    described = croissant(SMALL, data=data.name, sha256=sha256_of(data), size=data.stat().st_size)
    (place / "croissant.json").write_text(json.dumps(described), encoding="utf-8")
    present = [path for path in sorted(place.iterdir()) if path.name != "SHA256SUMS"]
    sums = "".join(f"{sha256_of(path)}  {path.name}\n" for path in present)
    (place / "SHA256SUMS").write_text(sums, encoding="utf-8")
    for name in (
        "SHA256SUMS",
        "croissant.json",
        "codebook.xml",
    ):  # policies and records have targets of their own
        right = (place / name).read_bytes()

        def run(data: bytes, name: str = name, right: bytes = right) -> None:
            (place / name).write_bytes(data)
            try:
                problems = check_release(place)
            finally:
                (place / name).write_bytes(right)
            "".join(problems).encode()
            assert not problems or data != right

        called = f"interop-release-{name.partition('.')[0].lower()}"
        yield Target(called, run, _seeds(called, right), weight=1, plain=True)


def _questionnaire(path: Path) -> None:
    asked(read_questionnaire(path))


def _tool_responses(folder: Path) -> Target:
    """Return the layout of a package's responses, in place of the right one."""
    work, package = folder / "packaged-survey", folder / "package"
    if not work.exists():
        write_example(work, "https://s.example")
    build_package(Survey.load(work / "survey.yaml"), "odk").write(package, overwrite=True)
    path = package / "responses.json"
    right = path.read_bytes()

    def run(data: bytes) -> None:
        path.write_bytes(data)
        Responses.load(package)

    return Target("tool-responses", run, _seeds("tool-responses", right), weight=2, plain=True)


def _workbook_parts(folder: Path) -> Target:
    path = folder / "xlsform-parts.xlsx"

    def run(data: bytes) -> None:
        workbooks.pack(path, data)
        _questionnaire(path)

    seeds = workbooks.packed_seeds()
    return Target("xlsform-parts", run, _seeds("xlsform-parts", *seeds), weight=1, plain=True)


def _survey_report(folder: Path) -> Target:
    place = folder / "collected-survey"
    if not place.exists():
        write_example(place, "https://survey.example.org")
    survey = Survey.load(place / "survey.yaml")
    versions = {survey.policy.id: survey.policy}
    seed = body_of(survey, (0, 1, 1, 2), name="ab" * 16).rstrip()

    def run(data: bytes) -> None:
        parse_report(json_object(data), versions, own_chance=True)

    return Target("survey-report", run, _seeds("survey-report", seed), weight=8, plain=True)


def _policy(path: Path) -> None:
    policy = Policy.load(path)
    Policy.from_dict(policy.to_dict())
    assert policy.id


FIELDS = Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {"a": {"categories": ["yes", "no"]}, "b": {"bins": [0, 1, 5], "missing": "?"}},
    }
).fields


def _batches(path: Path) -> None:
    with open_batches(path) as batches:
        for batch in batches:
            for entry in FIELDS:
                if entry.variable.name in batch.schema.names:
                    encode(batch.column(entry.variable.name), entry, text=batches.text)


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _sidecar(folder: Path) -> Target:
    path = folder / "with-sidecar.csv"
    path.write_bytes(b"a,b\nyes,1\n")

    def run(data: bytes) -> None:
        (folder / "with-sidecar.csv.masquerade.json").write_bytes(data)
        _batches(path)

    return Target(
        "sidecar", run, _seeds("sidecar", b'{"policy": "ab12", "incomplete": "some"}'), 4, plain=True
    )


def _sheet_part(folder: Path, seed: bytes) -> Target:
    """Return the sheet of a workbook, packed after it was changed."""
    path = folder / "sheet-part.xlsx"

    def run(data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(workbooks.workbook())) as whole, zipfile.ZipFile(path, "w") as packed:
            for name in whole.namelist():
                packed.writestr(name, data if name == "xl/worksheets/sheet1.xml" else whole.read(name))
        _batches(path)

    return Target("xlsx-sheet", run, _seeds("xlsx-sheet", seed), 1, plain=True)


def _plan(folder: Path, seed: bytes) -> Target:
    place = folder / "joined"
    place.mkdir(exist_ok=True)

    def run(data: bytes) -> None:
        (place / "session.json").write_bytes(data)
        joined._read_plan(place)

    return Target("joined-plan", run, _seeds("joined-plan", seed), 4, plain=True)


def _ledger(path: Path) -> None:
    release_ledger.parse(path, path.read_bytes())


def _ledger_line() -> bytes:
    what = ("s", "p", "miner", "reports", ("a",), 10, "ab" * 32, None)
    return release_ledger.entry_of(release_ledger.Release(*what), release_ledger.START).line()


def _pems(folder: Path) -> tuple[bytes, ...]:
    made = folder / "authority"
    if not made.exists():
        certificates.init(made)
    return tuple(path.read_bytes() for path in sorted(made.glob("*.pem")))


def _package() -> Target:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("iris.data", "5.1,3.5\n" * 9)
    raw = RawFile("iris.data", "uci", 72, "0" * 64, ())

    def run(data: bytes) -> None:
        _unpack(data, raw, "https://example.org/iris.zip")

    return Target(
        "data-package", run, _seeds("data-package", packed.getvalue()), 2, only=frozenset({NotFetched})
    )
