"""Messages of a count, and policies as devices have them."""

from dataclasses import fields, replace

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.people.report_form import ReportForm
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    MESSAGE,
    OVER,
    WAIT,
    CountTerms,
    DeviceReply,
    DeviceRequest,
    Letter,
    MixBoards,
    NoisyCountTerms,
    SuppressionCountTerms,
)
from masquerade.services.counting.suppression_messages import (
    DISTANCES,
    TABLE,
    PeopleParts,
    RelayBatch,
    RelayedReports,
    SealedBatch,
    SuppressionStep,
)
from tests.vectors.examples.mix import PUBLIC
from tests.vectors.message_vectors import Example

SCHEMA = mq.Schema({"smoker": ["yes", "no"], "town": ["ä", "b", "c"]})
POLICY = mq.Policy.build(SCHEMA, {"smoker": mq.channels.binary("1/4")})
FORM = ReportForm.of(POLICY)
CLEAR = ReportForm.of(mq.Policy.clear(SCHEMA))
DEALT = ReportForm.of(
    mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {one.name: {"categories": list(one.categories)} for one in SCHEMA.variables},
            "blocks": [{"variables": list(SCHEMA), "k": 1, "gamma": 19}],
        }
    )
)
WITHOUT = replace(DEALT.dealt[0], channels=DEALT.dealt[0].channels[:1])
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
SUMMED = replace(TERMS, protocol="aggregation", form=CLEAR.encode(), leaders={})
NOISY = NoisyCountTerms(*(getattr(SUMMED, one.name) for one in fields(SUMMED)), "1.0", "1e-06", 45)
SUPPRESSED = SuppressionCountTerms(
    *(
        getattr(replace(TERMS, protocol="suppression", form=CLEAR.encode()), one.name)
        for one in fields(TERMS)
    ),
    2,
    bytes([9]) + bytes(31),
    bytes([10]) + bytes(31),
    SigningKey.from_seed(bytes([7]) * 32).public,
)
TWICE = replace(TERMS, members={"ann": PUBLIC["ann"], "ben": PUBLIC["ann"]}).encode()
EXAMPLES = [
    Example(FORM, bad={"a stratum that it has not": replace(FORM, by="town").encode()}),
    Example(CLEAR, bad={"a report that it has not": replace(CLEAR, observed=CLEAR.observed[:1]).encode()}),
    Example(DEALT, bad={"a block without a channel": replace(DEALT, dealt=(WITHOUT,)).encode()}),
    Example(TERMS, bad={"two people with one identity": TWICE}),
    Example(NOISY, bad={"noise of a mix": replace(NOISY, protocol="mix").encode()}),
    Example(
        SUPPRESSED,
        bad={
            "values that are disguised": replace(SUPPRESSED, form=FORM.encode()).encode(),
            "one key holder": replace(SUPPRESSED, leaders=dict([*SUPPRESSED.leaders.items()][:1])).encode(),
            "a miner that evaluates": replace(SUPPRESSED, randomness=SUPPRESSED.miner).encode(),
            "a different protocol": replace(SUPPRESSED, protocol="mix").encode(),
        },
    ),
    Example(SuppressionStep(DISTANCES, (b"keys", b"batch", b"mixings", b"endorsements", b"openings"))),
    Example(SuppressionStep(TABLE, (b"release",))),
    Example(SealedBatch((b"one", b"two"))),
    Example(RelayedReports("ann", bytes(range(32)), b"sealed", bytes(range(64)))),
    Example(RelayBatch(b"board", (b"reports",))),
    Example(PeopleParts((b"one", b""))),
    Example(Letter(WAIT, 250)),
    Example(Letter(MESSAGE, 0, b"what is due", bytes(range(16)))),
    Example(Letter(OVER)),
    Example(DeviceRequest(ASK_TERMS, "ann", bytes(range(64)))),
    Example(DeviceRequest(ASK_LETTER, "zoë", bytes(64))),
    Example(DeviceReply("ann", bytes(range(16)), b"what is said", bytes(range(64)))),
    Example(DeviceReply("zoë", bytes(16), b"", bytes(64))),
    Example(MixBoards((b"one", b""))),
]
