"""Messages between people and the services of a collection, and the record that a client keeps."""

from masquerade.services.threshold.messages import ClientRecord, OpenTags, RequestBatch, ShownNotice
from tests.vectors.examples.threshold import DIGEST, KEY, NOTICE, REQUEST
from tests.vectors.message_vectors import Example

EXAMPLES = [
    Example(RequestBatch((REQUEST.encode(), b""))),
    Example(RequestBatch(())),
    Example(ShownNotice.sign(NOTICE.encode(), KEY)),
    Example(OpenTags.sign(DIGEST, frozenset({bytes(16), bytes(range(16))}), KEY)),
    Example(ClientRecord(NOTICE.encode(), DIGEST, kept=bytes(range(32)))),
    Example(ClientRecord(NOTICE.encode(), DIGEST, report=bytes(200), delivered=True)),
]
