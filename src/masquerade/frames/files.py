"""CSV, Parquet and Arrow files: read in a stream, written whole or not at all."""

from masquerade.frames.formats import sidecar_of
from masquerade.frames.reading import Batches, open_batches
from masquerade.frames.writing import AtomicWriter

__all__ = ["AtomicWriter", "Batches", "open_batches", "sidecar_of"]
