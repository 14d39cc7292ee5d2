"""CSV, Parquet and Arrow files: read in a stream, written whole or not at all."""

from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.formats import sidecar_of

__all__ = ["AtomicWriter", "Batches", "open_batches", "sidecar_of"]
