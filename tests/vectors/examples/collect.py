"""Messages between people and the services of a collection, and the record that a client keeps."""

from masquerade.services.threshold.messages import Batch, ClientRecord, OpenTags, ShownNotice
from tests.vectors.examples.threshold import DIGEST, KEY, NOTICE, REQUEST
from tests.vectors.message_vectors import Example

EXAMPLES = [
    Example(Batch((REQUEST.encode(), b""))),
    Example(Batch(())),
    Example(ShownNotice.signed(NOTICE.encode(), KEY)),
    Example(OpenTags.signed(DIGEST, frozenset({bytes(16), bytes(range(16))}), KEY)),
    Example(ClientRecord(NOTICE.encode(), DIGEST, kept=bytes(range(32)))),
    Example(ClientRecord(NOTICE.encode(), DIGEST, report=bytes(200), delivered=True)),
]
