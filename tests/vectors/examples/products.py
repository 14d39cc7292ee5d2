"""Messages of scalar products: with a helper, and by encryption between two."""

from masquerade.protocols.vertical.columns import ColumnPart, Columns
from masquerade.protocols.vertical.paillier_products import (
    Ciphertexts,
    EncryptionRequest,
    PaillierModulus,
    Plaintexts,
    SessionOpening,
)
from masquerade.protocols.vertical.scalar_products import (
    ColumnRequest,
    Correlation,
    CorrelationRequest,
    MaskedColumns,
    OpenNumbers,
    ProductRequest,
    SumRequest,
)
from tests.vectors.examples.parties import DIGEST, SESSION
from tests.vectors.examples.pooling import WORDS
from tests.vectors.message_vectors import Example

OWN = Columns("x", (ColumnPart("x", ("a",)),))
PRODUCT = Columns("x", (ColumnPart("x", ("a",)), ColumnPart("y", ("b", "ü"))))


def renamed(*names):
    """Return a request with other spellings of the name of its columns."""
    data = ColumnRequest(SESSION, OWN).encode()
    written = len(OWN.id).to_bytes(4, "big") + OWN.id
    assert data.count(written) == 1
    return {
        f"the name {name[:20]!r}": data.replace(written, len(name).to_bytes(4, "big") + name)
        for name in names
    }


WRONG = (
    b'["x", [["x",["a"]]]]',
    b'["x",[["x",[]]]]',
    b'["x",[]]',
    b'[1,[["x",["a"]]]]',
    b'["x",[["x",[1]]]]',
    b'["\\u0078",[["x",["a"]]]]',
    b"{}",
    b"[" * 5000,
    b"\xff",
)
EXAMPLES = [
    Example(ColumnRequest(SESSION, PRODUCT)),
    Example(ColumnRequest(SESSION, OWN), bad=renamed(*WRONG)),
    Example(MaskedColumns(SESSION, OWN, WORDS)),
    Example(CorrelationRequest(SESSION, 1, PRODUCT, OWN)),
    Example(Correlation(SESSION, b"sealed")),
    Example(ProductRequest(SESSION, 0, (OWN, PRODUCT), OWN, (b"1",))),
    Example(SumRequest(SESSION, ("a", "b"))),
    Example(OpenNumbers(SESSION, WORDS)),
    Example(SessionOpening(SESSION, DIGEST)),
    Example(PaillierModulus(SESSION, b"n", b"roots")),
    Example(EncryptionRequest(SESSION, ("a",))),
    Example(Ciphertexts(SESSION, b"c")),
    Example(Plaintexts(SESSION, b"")),
]
