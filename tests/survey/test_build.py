"""What a survey is built into: one page that stands alone, the same bytes everywhere, and what is printed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from fractions import Fraction

import numpy as np
import pytest
from tests.survey.vectors import POLICIES

from masquerade import channels
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.services.survey.example import write_example
from masquerade.survey import Survey, build
from masquerade.survey.mechanism import mechanism
from masquerade.survey.page import page_values
from masquerade.survey.paper import ranges
from masquerade.survey.qr import in_svg, in_terminal, qr_code
from masquerade.survey.script_text import compact, literal


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "work"
    write_example(folder, "https://survey.example.org", invited=True)
    survey = Survey.load(folder / "survey.yaml")
    return survey, build(survey)


def test_two_builds_are_the_same_bytes(built):
    survey, first = built
    assert build(survey).files == first.files
    again = Survey(survey.spec, Policy.from_dict(json.loads(first.files["policy.json"])))
    assert build(again).digest == first.digest


def test_the_page_is_small_and_asks_nobody_but_the_collector(built):
    survey, made = built
    page = made.files["survey.html"].decode()
    values = page_values(survey)
    own = ("words", "questions", "columns", "title", "contact", "consent", "mechanism", "vectors")
    texts = sum(len(literal(values[name]).encode()) for name in own)
    assert (
        len(page.encode()) - texts <= 30_000
    )  # with the code for tokens; without the survey's own texts and numbers
    addresses = set(re.findall(r"https?://[\w.:/-]+", page))
    assert addresses == {"https://survey.example.org", "http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|img|iframe|script)[^>]*(?:src|href)=", page)
    assert "Math.random" not in page


def test_script_and_style_are_fixed_by_their_hashes(built):
    page = built[1].files["survey.html"].decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src https://survey.example.org;" in policy


def test_manifest_letter_worker_and_digest_speak_of_the_same_page(built):
    survey, made = built
    digest = hashlib.sha256(made.files["survey.html"]).hexdigest()
    assert made.digest == digest
    manifest = json.loads(made.files["manifest.json"])
    assert manifest["policy"] == survey.policy.id
    for name, expected in manifest["sha256"].items():
        assert hashlib.sha256(made.files[name]).hexdigest() == expected
    assert set(manifest["sha256"]) == set(made.files) - {"manifest.json"}
    assert digest in made.files["service-worker.js"].decode()
    letter = made.files["letter.html"].decode()
    assert " ".join(digest[i : i + 8] for i in range(0, 64, 8)) in letter
    assert 'lang="de"' in letter
    assert "Some answers are sent as they are" in letter  # age is not disguised
    assert "<svg" in letter  # the address as a QR code


def test_texts_cannot_end_the_script():
    assert literal({"a": "</script><!--"}) == '{"a":"\\u003c/script>\\u003c!--"}'


def test_scripts_lose_blanks_and_nothing_else():
    script = 'const a = 1; // one\nlet b = a + +a,\n  c = "a  b"; /* x\n y */ f(/ a\\/b /g);\nreturn a\n'
    assert compact(script) == 'let a=1;let b=a+ +a,c="a  b";f(/ a\\/b /g);return a'


def test_sheets_lead_through_the_channel_exactly():
    for channel in (channels.binary("1/4"), channels.symmetric(5, "0.3"), channels.binary("0.1", "0.25")):
        for code in range(channel.truths):
            row = channel.row(code)
            total = int(channel.denominators[code])
            weights = [(str(report), int(share * total)) for report, share in row.items()]
            words = 6 ** next(k for k in range(1, 9) if 6**k >= total)
            found = ranges(weights, total, words)
            used = sum(last - first + 1 for _, first, last in found)
            for label, first, last in found:
                assert Fraction(last - first + 1, used) == row[int(label)]
            assert [first for _, first, _ in found[1:]] == [last + 1 for _, _, last in found[:-1]]


def test_sheets_show_spinner_dice_and_birthday(built):
    page = built[1].files["sheets.html"].decode()
    assert page.count("<svg") == 7  # two questions of two answers, one of three
    assert "1-1 – 5-3" in page  # 27 of 36 throws: three quarters
    assert "1 – 21" in page  # 21 of 28 days


def test_channels_that_are_too_large_for_a_page_are_refused():
    weights = 1 + np.arange(150)[:, None] * np.arange(150) % 7  # not symmetric: every weight is written
    channel = Channel(np.tile(np.arange(150, dtype=np.int32), (150, 1)), weights, 150)
    policy = Policy.build({"a": list(range(150))}, {"a": channel})
    with pytest.raises(InputError, match="a page takes at most"):
        mechanism(policy)


@pytest.mark.parametrize("name", POLICIES)
def test_every_kind_of_policy_becomes_a_page_mechanism(name):
    policy = Policy.from_dict(POLICIES[name])
    made = mechanism(policy)
    columns = [column for group in made["groups"][0] for column in group["columns"]]
    assert sorted(columns) == list(range(len(policy.observed)))


def test_qr_codes_are_those_that_a_reader_read():
    """Digests of codes that jsQR 1.4 decoded to these texts."""
    read = {
        "http://127.0.0.1:8765/": QR[0],
        "https://survey.example.org/#" + "x" * 24: QR[1],
        "t" * 213: QR[2],
    }
    for text, digest in read.items():
        modules = "\n".join("".join(map(str, row)) for row in qr_code(text))
        assert hashlib.sha256(modules.encode()).hexdigest()[:16] == digest
    assert len(in_terminal("a").splitlines()) == 15
    assert in_svg("a").startswith("<svg")
    with pytest.raises(InputError, match="too long"):
        qr_code("t" * 214)


QR = ("e4d7d3172c18cfd7", "c0fc98e2b5a182f3", "a0a2a6cb7512ad59")
