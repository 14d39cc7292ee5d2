"""Reports have frozen bytes: three good ones that open, and what becomes of them when a byte is changed."""

import json
from pathlib import Path

import pytest
from tests.vectors.examples.threshold import KEY, POINTS

from masquerade.crypto.class_secrets import key_of, secret_of, share_of, tag_of
from masquerade.crypto.oprf import output_of
from masquerade.crypto.symmetric import _seal_from_parts
from masquerade.protocols.k_anonymity.threshold.class_opening import Verdict, open_reports
from masquerade.protocols.k_anonymity.threshold.messages import Notice, ReportLayout, ThresholdTerms

FILE = Path(__file__).parents[4] / "vectors" / "reports.json"
FROZEN = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
K, QUASI, ELEMENT = 3, b"07030", bytes(range(32))
FIELDS = ("magic", "epoch", "k", "notice", "tag", "x", "y", "quasi", "sealed")
SPOILT = {
    "magic": Verdict.MALFORMED,
    "epoch": Verdict.OTHER_EPOCH,
    "k": Verdict.OTHER_K,
    "notice": Verdict.OTHER_NOTICE,
    "tag": Verdict.BELOW_K,
    "x": Verdict.BAD_SHARE,
    "y": Verdict.BAD_SHARE,
    "quasi": Verdict.OTHER_QUASI,
    "sealed": Verdict.BAD_SEAL,
}


def layout_of(shown):
    terms = ThresholdTerms("spring", K, 8, 10, shown=shown)
    return ReportLayout.of(Notice.sign(terms, POINTS[0], KEY))


def made(layout, number):
    """Return a report with nothing left to chance."""
    secret = secret_of(output_of(layout.terms.input_of(QUASI), ELEMENT))
    plain = layout.plain(ELEMENT, QUASI, b"ill %d" % number)
    sealed = _seal_from_parts(key_of(secret), plain, layout.bound_to(tag_of(secret)), bytes([number]) * 12)
    x = 1000 + number
    return layout.report(tag_of(secret), x, share_of(secret, K, x), QUASI, sealed)


@pytest.mark.parametrize("shown", [False, True])
def test_the_bytes_are_the_frozen_ones_and_open(shown):
    layout, frozen = layout_of(shown), FROZEN["shown" if shown else "hidden"]
    assert [made(layout, number).hex() for number in range(5)] == frozen
    opening = open_reports(layout, bytes.fromhex("".join(frozen)))
    assert sorted(opening.rows()) == [(QUASI, b"ill %d" % number) for number in range(5)]


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_byte_is_noticed_and_harms_nobody_else(field):
    layout, frozen = layout_of(shown=True), [bytes.fromhex(one) for one in FROZEN["shown"]]
    assert layout.dtype.names == FIELDS
    at = layout.dtype.fields[field][1]
    for place in range(layout.dtype.fields[field][0].itemsize):
        changed = bytearray(frozen[0])
        changed[at + place] ^= 1
        opening = open_reports(layout, b"".join([bytes(changed), *frozen[1:]]))
        assert opening.verdicts.tolist() == [SPOILT[field], *[Verdict.OPENED] * 4]


if (
    __name__ == "__main__"
):  # python -m tests.unit.protocols.k_anonymity.threshold.test_report_layout writes them anew
    listed = {
        name: [made(layout_of(name == "shown"), number).hex() for number in range(5)]
        for name in ("hidden", "shown")
    }
    FILE.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
