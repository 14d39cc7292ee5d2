"""Messages of a count, and policies as devices have them."""

from dataclasses import replace

import masquerade as mq
from masquerade.protocols.people.report_form import ReportForm
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    MESSAGE,
    OVER,
    WAIT,
    Boards,
    CountTerms,
    DeviceReply,
    DeviceRequest,
    Letter,
)
from tests.vectors.examples.mix import PUBLIC
from tests.vectors.message_vectors import Example

SCHEMA = mq.Schema({"smoker": ["yes", "no"], "town": ["ä", "b", "c"]})
POLICY = mq.Policy.build(SCHEMA, {"smoker": mq.channels.binary("1/4")})
FORM = ReportForm.of(POLICY)
CLEAR = ReportForm.of(mq.Policy.clear(SCHEMA))
TERMS = CountTerms(
    "mix",
    "spring",
    FORM.encode(),
    3,
    "0.1",
    "0.05",
    "malicious",
    PUBLIC["miner"],
    {"leader 1": PUBLIC["leader 1"], "leader 2": PUBLIC["leader 2"]},
    {"ann": PUBLIC["ann"], "zoë": PUBLIC["zoë"]},
)
TWICE = replace(TERMS, members={"ann": PUBLIC["ann"], "ben": PUBLIC["ann"]}).encode()
EXAMPLES = [
    Example(FORM, bad={"a stratum that it has not": replace(FORM, by="town").encode()}),
    Example(CLEAR, bad={"a report that it has not": replace(CLEAR, observed=CLEAR.observed[:1]).encode()}),
    Example(TERMS, bad={"two people with one identity": TWICE}),
    Example(Letter(WAIT, 250)),
    Example(Letter(MESSAGE, 0, b"what is due", bytes(range(16)))),
    Example(Letter(OVER)),
    Example(DeviceRequest(ASK_TERMS, "ann", bytes(range(64)))),
    Example(DeviceRequest(ASK_LETTER, "zoë", bytes(64))),
    Example(DeviceReply("ann", bytes(range(16)), b"what is said", bytes(range(64)))),
    Example(DeviceReply("zoë", bytes(16), b"", bytes(64))),
    Example(Boards((b"one", b""))),
]
