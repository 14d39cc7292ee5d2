"""What a survey is built into: one page that stands alone, the same bytes everywhere, and what is printed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from tests.survey.programs import node
from tests.survey.vectors import POLICIES
from tests.survey.world import example

from masquerade import channels
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey import Survey, build
from masquerade.survey.collector.example import write_example
from masquerade.survey.forms.own_chance import own_weights
from masquerade.survey.page.consequences import percent_after, percent_of_answers
from masquerade.survey.page.mechanism import mechanism
from masquerade.survey.page.page import page_of, page_values
from masquerade.survey.page.paper import ranges, sheets
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
        told = (
            "words", "questions", "columns", "title", "contact", "consent", "firstLabel", "bound", "views",
            "agree", "information", "closing",
        )  # fmt: skip
        texts = sum(len(literal(values[name]).encode()) for name in told)
        assert len(page_of(whole).encode()) - texts <= 37_000  # the policy's numbers and its vectors count
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
    assert letter.index("These answers are not disguised") < letter.index("How old are you?")
    assert letter.index("How old are you?") < letter.index("right in at most 50 of 100 cases")
    assert "<svg" in letter  # the address as a QR code


def test_texts_cannot_end_the_script():
    assert literal({"a": "</script><!--"}) == '{"a":"\\u003c/script>\\u003c!--"}'


def test_a_variable_named_as_the_prototype_keeps_its_conditions():
    """Before, a question with a condition on such a variable was asked of everybody."""
    values = {"shown": {"__proto__": [0], "b": ['"__proto__":', '{"__proto__":']}, 'x"__proto__': 1}
    naive = json.dumps(values)

    def read(text):
        script = f"console.log(JSON.stringify({text}))"
        done = subprocess.run([node(), "-e", script], capture_output=True, check=True)  # noqa: S603
        return json.loads(done.stdout)

    assert "__proto__" not in read(naive)["shown"]
    assert read(literal(values)) == values


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


def test_sheets_show_spinner_dice_and_birthday(tmp_path):
    survey = example(tmp_path / "work", own_chance=False)
    alone = survey.policy.to_dict() | {"joint": None, "limit": None}
    mask = {"channel": {"kind": "binary", "p": 0.25}}
    alone["variables"]["pills"] |= mask
    alone["variables"]["told"] |= mask
    alone["variables"]["nights"] |= {"channel": {"kind": "symmetric", "p": 0.3}}
    policy = Policy.from_dict({key: value for key, value in alone.items() if value is not None})
    page = sheets(Survey(survey.spec, policy))
    assert page.count("<svg") == 7  # two questions of two answers, one of three
    assert "1-1 – 5-3" in page  # 27 of 36 throws: three quarters
    assert "1 – 21" in page  # 21 of 28 days
    assert "A (3 of 4)" in page


def test_questions_that_are_disguised_together_have_one_sheet(built):
    """18 of 30 for the own number and 1 of 30 for each: the truth has 19 of 30, as the channel says."""
    page = built[1].files["sheets.html"].decode()
    assert page.count("<svg") == 1
    assert "12 combinations" in page
    assert "A (18 of 30)" in page
    assert "M (1 of 30)" in page
    assert "1-1 – 3-6" in page  # 18 of the 30 throws that count


@pytest.mark.parametrize("gamma", ["19", "5/2", "3"])
@pytest.mark.parametrize("size", [2, 4, 12])
def test_one_sheet_for_all_combinations_is_the_channel(gamma, size):
    channel = channels.for_gamma(size, gamma)
    own, each = own_weights(channel)
    total = own + size * each
    for code in range(size):
        found = {report: Fraction(own * (report == code) + each, total) for report in range(size)}
        assert found == channel.row(code)
    assert own_weights(channels.binary("0.1", "0.25")) is None


def test_channels_that_are_too_large_for_a_page_are_refused():
    weights = 1 + np.arange(150)[:, None] * np.arange(150) % 7  # not symmetric: every weight is written
    channel = Channel(np.tile(np.arange(150, dtype=np.int32), (150, 1)), weights, 150)
    policy = Policy.build({"a": list(range(150))}, {"a": channel})
    with pytest.raises(InputError, match="a page can have at most"):
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
def test_nobody_believes_more_than_the_page_says(name):
    """Of every answer and pair of answers by every report, from 5%; and somebody comes to believe so much."""
    policy = Policy.from_dict(POLICIES[name])
    found = percent_of_answers(policy)
    assert set(found) == set(policy.disguised)
    for variable in policy.disguised:
        group = next(group for group in policy.groups if variable in group.names)
        response = group.response
        sizes = [] if response is None else sorted(set(response.block_classes.tolist()))
        own = [response.channel_of(size) for size in sizes] or [
            next(g for g in policy.groups_of(label) if variable in g.names).matrix_channel
            for label in policy.strata or (None,)
        ]
        largest = max(
            Fraction(row[report] * 5, row[report] * 5 + other.get(report, 0) * 95)
            for channel in own
            for row, other in permutations([channel.row(code) for code in range(channel.truths)], 2)
            for report in row
        )
        assert Fraction(int(found[variable]) - 1, 100) < largest <= Fraction(int(found[variable]), 100)


def test_beliefs_are_rounded_up_and_never_to_certainty():
    assert [percent_after(Fraction(gamma)) for gamma in (1, 3, 19, 42, 10**5)] == [
        "5",
        "14",
        "50",
        "69",
        "99.99",
    ]
    assert percent_after(Fraction(10**6)) is percent_after(float("inf")) is None


def test_what_is_drawn_apart_multiplies_and_the_page_says_so(built):
    survey, made = built
    assert survey.record_gamma == 19
    assert percent_of_answers(survey.policy) == {"pills": "50", "told": "50", "nights": "50"}
    assert "right in at most 50 of 100 cases" in " ".join(made.files["letter.html"].decode().split())
    mask = {"channel": {"kind": "for_gamma", "gamma": 3}}
    apart = {name: {"categories": list(v.categories)} | (mask if name != "age" else {})
             for name, v in survey.policy.schema.items()}  # fmt: skip
    weaker = Survey(survey.spec, Policy.from_dict({"masquerade": 1, "variables": apart}))
    assert weaker.record_gamma == 27
    assert {level for *_, level in page_values(weaker)["views"]["de"]} == {"weak", "true"}
    assert page_values(weaker)["bound"]["de"][0].endswith("stimmt sie in höchstens 59 von 100 Fällen.")
