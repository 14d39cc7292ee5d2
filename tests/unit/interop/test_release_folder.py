"""A release folder: what is in it, that foreign tools open it, that every change of it is seen."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter

import mlcroissant
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.unit.interop.conftest import POLICY

import masquerade as mq
from masquerade.core.errors import FileError, InputError
from masquerade.disguising.columns import marks, policy_metadata
from masquerade.frames.ddi import NAMESPACE
from masquerade.frames.metadata import with_metadata
from masquerade.interop import check_release, write_release
from masquerade.learn.networks.files.xml_text import parse_xml

# the order in which DDI Codebook 2.5 has the elements that we write, by what they stand in
DDI_ORDER = {
    "codeBook": ("docDscr", "stdyDscr", "fileDscr", "dataDscr", "otherMat"),
    "stdyDscr": ("citation", "studyAuthorization", "stdyInfo", "studyDevelopment", "method", "dataAccs"),
    "citation": ("titlStmt", "rspStmt", "prodStmt", "distStmt", "serStmt", "verStmt", "biblCit"),
    "titlStmt": ("titl", "subTitl", "altTitl", "parTitl", "IDNo"),
    "prodStmt": ("producer", "copyright", "prodDate", "prodPlac", "software", "fundAg", "grantNo"),
    "stdyInfo": ("studyBudget", "subject", "abstract", "sumDscr", "qualityStatement", "notes"),
    "sumDscr": ("timePrd", "collDate", "nation", "geogCover", "anlyUnit", "universe", "dataKind"),
    "method": ("dataColl", "notes", "anlyInfo", "stdyClas", "dataProcessing", "codingInstructions"),
    "fileDscr": ("fileTxt", "locMap", "notes"),
    "fileTxt": ("fileName", "fileCont", "fileStrc", "dimensns", "fileType", "format"),
    "dimensns": ("caseQnty", "varQnty", "logRecL", "recPrCas", "recNumTot"),
    "dataDscr": ("varGrp", "nCubeGrp", "var", "nCube", "notes"),
    "var": ("location", "labl", "qstn", "valrng", "sumStat", "txt", "catgryGrp", "catgry", "codInstr",
            "concept", "derivation", "varFormat", "notes"),
    "catgry": ("catValu", "labl", "txt", "catStat"),
    "derivation": ("drvdesc", "drvcmd"),
    "qstn": ("preQTxt", "qstnLit", "postQTxt"),
}  # fmt: skip
DDI_ATTRIBUTES = {
    "codeBook": {"version", "ID"},
    "fileDscr": {"ID"},
    "var": {"ID", "name", "intrvl", "files", "dcml"},
    "labl": {"level"},
    "IDNo": {"agency"},
    "notes": {"type"},
    "derivation": {"var"},
    "varFormat": {"type"},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib, below mlcroissant
def test_croissant_is_valid_and_its_records_load(release):
    opened = mlcroissant.Dataset(jsonld=str(release / "croissant.json"))
    assert not opened.metadata.ctx.issues.errors
    rows = list(opened.records("records"))
    written = pd.read_parquet(release / "data.parquet")
    assert Counter((row["records/smoker"].decode(), row["records/age"]) for row in rows) == Counter(
        zip(written["smoker"], written["age"], strict=True)
    )
    values = json.loads((release / "croissant.json").read_text())
    assert values["conformsTo"].endswith("/1.1")
    assert (values["mq:policy"], values["mq:gamma"]) == (POLICY.id, "9")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_croissant_refuses_changed_data(release, tmp_path):
    copy = shutil.copytree(release, tmp_path / "copy")
    pd.DataFrame({"smoker": ["yes"], "age": [1], "region": ["north"]}).to_parquet(copy / "data.parquet")
    with pytest.raises(Exception, match=r"Download\(data.parquet\)"):
        list(mlcroissant.Dataset(jsonld=str(copy / "croissant.json")).records("records"))


def test_the_codebook_has_its_elements_in_the_order_of_the_standard(release):
    root = parse_xml((release / "codebook.xml").read_text())
    assert root.attrib.pop("xmlns") == NAMESPACE
    known = {"codeBook", *(name for names in DDI_ORDER.values() for name in names)}
    ids = []
    for element in root.iter():
        name = element.tag
        assert name in known
        own = {key for key in element.attrib if not key.startswith("xml:")}
        assert own <= DDI_ATTRIBUTES.get(name, set()), name
        ids += [element.get("ID")] if element.get("ID") else []
        children = [child.tag for child in element]
        if children:
            places = [DDI_ORDER[name].index(child) for child in children]
            assert places == sorted(places), name
    assert len(ids) == len(set(ids))
    for derived in root.iter("derivation"):
        assert set(derived.get("var", "").split()) <= set(ids)


def test_data_tell_the_same_as_the_file_released(release, disguised):
    query = [mq.Query(by=("smoker", "age"))]
    own = mq.tally(release / "data.parquet", release / "policy.yaml").answer(query)[0]
    before = mq.tally(disguised, POLICY).answer(query)[0]
    assert own.values == pytest.approx(before.values)
    assert "name" not in pd.read_parquet(release / "data.parquet")  # kept in clear, not in the policy


def test_hashes_are_those_of_everybodys_tool(release):
    subprocess.run(["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"], cwd=release, check=True)  # noqa: S607
    assert check_release(release) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda folder: (folder / "README.md").write_text("x"), "README.md: was changed"),
        (lambda folder: (folder / "audit.html").unlink(), "audit.html: is missing"),
        (lambda folder: (folder / "more.csv").write_text("x"), "more.csv: is not in SHA256SUMS"),
        (lambda folder: (folder / "SHA256SUMS").write_text("what\n"), "line 1 is not a sha256"),
        (
            lambda folder: mq.Policy.clear(POLICY.schema).save(folder / "policy.yaml"),
            "was not disguised under the policy",
        ),
        (lambda folder: (folder / "croissant.json").write_text("{}"), "croissant.json: is about another"),
        (lambda folder: (folder / "codebook.xml").write_text("<a/>"), "codebook.xml: is about another"),
    ],
)
def test_every_change_is_seen(release, tmp_path, change, told):
    copy = shutil.copytree(release, tmp_path / "copy")
    change(copy)
    assert any(told in problem for problem in check_release(copy))


def test_what_nothing_shows_to_be_disguised_is_not_released(people, disguised, tmp_path):
    people.to_csv(tmp_path / "clear.csv", index=False)
    with pytest.raises(InputError, match="does not say under which policy"):
        write_release(tmp_path / "clear.csv", POLICY, tmp_path / "out")
    other = mq.Policy.build(POLICY.schema, {"smoker": mq.channels.binary("1/3")})
    with pytest.raises(InputError, match="was disguised under policy"):
        write_release(disguised, other, tmp_path / "out")
    with pytest.raises(InputError, match="disguises nothing"):
        write_release(disguised, mq.Policy.clear(POLICY.schema), tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_what_the_audit_contradicts_is_not_released(people, tmp_path):
    drawn = mq.disguise(people[["smoker", "age", "region"]].head(200), POLICY)
    rows = pa.Table.from_pandas(pd.concat([drawn, drawn]), preserve_index=False)
    marked = with_metadata(
        rows, marks(POLICY, {}) | policy_metadata(POLICY)
    )  # a file that was appended to itself
    parquet.write_table(marked, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="audit contradicts"):
        write_release(tmp_path / "twice.parquet", POLICY, tmp_path / "out", attacker=False)
    assert not (tmp_path / "out").exists()


def test_folders_and_formats_that_cannot_be(release, disguised, tmp_path):
    with pytest.raises(FileError, match="exists already"):
        write_release(disguised, POLICY, release)
    with pytest.raises(FileError, match="no directory"):
        write_release(disguised, POLICY, tmp_path / "a" / "b")
    with pytest.raises(InputError, match="parquet or csv"):
        write_release(disguised, POLICY, tmp_path / "c", form="docx")
    with pytest.raises(InputError, match="smokr"):
        write_release(disguised, POLICY, tmp_path / "c", tables=[["smokr"]])
    with pytest.raises(FileError, match="not a folder"):
        check_release(tmp_path / "nowhere")
