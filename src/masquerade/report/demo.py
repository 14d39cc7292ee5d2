"""The main job on built-in data, from a population to a report: `run_demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError
from masquerade.frames.file_writer import AtomicWriter
from masquerade.report.html import demo_html
from masquerade.report.study import Study, run_study
from masquerade.report.text import demo_text

REPORT, POLICY, RECORDS = "report.html", "policy.yaml", "disguised.parquet"


@dataclass(frozen=True, slots=True, eq=False)
class DemoResult:
    """What the demo found, in words, and where its files are."""

    text: str
    report: Path
    policy: Path
    records: Path
    study: Study


def run_demo(out: Path, n: int = 20_000) -> DemoResult:
    """Disguise n simulated people, estimate from the disguised records, and write three files into `out`.

    The population is always the same; the disguise is drawn from the operating system, so that results
    differ a little from run to run. The files (report, policy, disguised records) are written only once
    everything has been computed, each whole or not at all; earlier ones of the same names are replaced.
    """
    out = Path(out)
    study = run_study(n)
    page = demo_html(study, {"policy": POLICY, "records": RECORDS})
    report, policy, records = out / REPORT, out / POLICY, out / RECORDS
    text = demo_text(
        study,
        [
            f"Report with pictures: {report}",
            f"Policy: {policy}",
            f"Disguised records: {records}",
        ],
    )
    make_directory(out)
    study.policy.save(policy)
    write_records(study.disguised, records, study.policy)
    write_whole(report, page)
    return DemoResult(text, report, policy, records, study)


def make_directory(out: Path) -> None:
    """Make the directory that the files go to, if there is none."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out}: no directory can be made here ({error.strerror}).") from None


def write_records(disguised: pd.DataFrame, target: Path, policy: Policy) -> None:
    """Write disguised records as Parquet; the policy's id travels with them."""
    batch = pa.RecordBatch.from_pandas(disguised, preserve_index=False)
    schema = batch.schema.remove_metadata()
    with AtomicWriter(target, schema, {"policy": policy.id}, overwrite=True) as writer:
        writer.write(batch)
