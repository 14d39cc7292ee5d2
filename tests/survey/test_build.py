"""What a survey is built into: one page that stands alone, the same bytes everywhere, and what is printed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from tests.survey.vectors import POLICIES

from masquerade import channels
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey import Survey, build
from masquerade.survey.collector.example import write_example
from masquerade.survey.page.consequences import surest, surest_of, surest_of_all
from masquerade.survey.page.mechanism import mechanism
from masquerade.survey.page.page import page_of, page_values
from masquerade.survey.page.paper import ranges
from masquerade.survey.page.qr import in_svg, in_terminal
from masquerade.survey.page.script_text import compact, literal


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
    for panel in (False, True):  # by invitation, and with all that a panel needs beside
        whole = Survey(survey.spec.model_copy(update={"panel": panel}), survey.policy)
        values = page_values(whole)
        told = ("words", "questions", "columns", "title", "contact", "consent", "firstLabel")
        texts = sum(len(literal(values[name]).encode()) for name in told)
        assert len(page_of(whole).encode()) - texts <= 30_000  # the policy's numbers and its vectors count
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


def test_scripts_lose_blanks_and_long_names_and_nothing_else():
    script = 'const a = 1; // one\nlet b = a + +a,\n  c = "a  b"; /* x\n y */ f(/ a\\/b /g);\nreturn a\n'
    assert compact(script) == 'let a=1;let b=a+ +a,c="a  b";f(/ a\\/b /g);return a'
    long = """function outer({ first, second: other }, [, third] = [], ...rest) {
      const { length } = rest, inner = (one) => ({ first, one, other: one.first });
      return `${inner({ first: third }).first} and ${`first ${length}`}`;
    }"""
    assert compact(long) == (
        "function h({first:b,second:g},[,f]=[],...e){let{length:d}=e,c=(a)=>({first:b,one:a,other:a.first});"
        "return`${c({first:f}).first} and ${`first ${d}`}`;}"
    )


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


def test_the_address_is_a_qr_code_in_terminal_and_letter():
    lines = in_terminal("http://127.0.0.1:8765/").splitlines()
    assert len(lines) == 17
    assert all(line.startswith("\033[97;40m") for line in lines)
    assert in_svg("a").startswith("<svg")


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_is_made_surer_than_the_page_says(name):
    """Of every answer and pair of answers by every report, from even odds; and somebody is made so sure."""
    policy = Policy.from_dict(POLICIES[name])
    found = surest_of(policy)
    for variable in policy.schema:
        group = next(group for group in policy.groups if variable in group.names)
        if not group.disguised:
            assert found[variable] is None
            continue
        k, m = found[variable].values()
        response = group.response
        sizes = [] if response is None else sorted(set(response.block_classes.tolist()))
        own = [response.channel_of(size) for size in sizes] or [
            next(g for g in policy.groups_of(label) if variable in g.names).matrix_channel
            for label in policy.strata or (None,)
        ]
        sure = max(
            Fraction(row[report], row[report] + other.get(report, 0))
            for channel in own
            for row, other in permutations([channel.row(code) for code in range(channel.truths)], 2)
            for report in row
        )
        assert Fraction(k - 1, m) < sure <= Fraction(k, m)


def test_together_what_is_drawn_apart_tells_more_and_the_page_says_so(built):
    survey, made = built
    assert surest_of(survey.policy)["pills"] == {"k": 75, "m": 100}
    # γ of 3, 3 and 14/3 multiply to 42
    assert surest_of_all(survey.policy) == {"k": 98, "m": 100}
    assert "can be at most 98 of 100 sure" in made.files["letter.html"].decode()
    assert surest(float("inf")) == {"k": 100, "m": 100}
