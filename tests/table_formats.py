"""Delta and Iceberg tables for tests, written by deltalake and by PyIceberg into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.transforms import IdentityTransform


class FolderCatalog(MetastoreCatalog, NoopCatalog):
    """A catalog of one table, which it keeps as an object. Metadata are written as catalogs write them."""

    def __init__(self) -> None:
        super().__init__("folder")
        self.table: Table | None = None

    def create_table(self, identifier: Any, schema: Any, location: str | None = None, **more: Any) -> Table:
        staged = self._create_staged_table(identifier, schema, location, **more)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self.table = Table(identifier, staged.metadata, staged.metadata_location, staged.io, self)
        return self.table

    def load_table(self, identifier: Any) -> Table:
        del identifier
        assert self.table is not None
        return self.table

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        staged = self._update_and_stage_table(self.table, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self.table = Table(table.name(), staged.metadata, staged.metadata_location, staged.io, self)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)


def write_delta(table: pa.Table, folder: Path, **options: Any) -> Path:
    """Write a version of a Delta table, the first by default."""
    deltalake.write_deltalake(str(folder), table, **options)
    return folder


def create_iceberg(table: pa.Table, folder: Path, by: str | None = None, **more: Any) -> Table:
    """Write an Iceberg table with these records, partitioned by the values of a column."""
    created = FolderCatalog().create_table(("office", "people"), table.schema, str(folder), **more)
    if by is not None:
        source = created.schema().find_field(by).field_id
        spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), by))
        created = FolderCatalog().create_table(
            ("office", "again"), created.schema(), str(folder), partition_spec=spec, **more
        )
    created.append(table)
    name_current(created)
    return created


def name_current(table: Table) -> None:
    """Write the file by which a folder names its current metadata, as Hadoop's tables do."""
    location = Path(table.metadata_location.removeprefix("file://"))
    (location.parent / "version-hint.text").write_text(location.name)
