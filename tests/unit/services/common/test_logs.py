"""Log lines: JSON, one a line, and nothing in them that could be a record."""

from __future__ import annotations

import json
import string
import threading

from hypothesis import given
from hypothesis import strategies as st

from masquerade.services.common.logs import NUMBERS, WORDS, Logger

HIDDEN = "Zyzzyva, aged 43"


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_says_when_how_grave_who_and_what(capsys):
    log = Logger("party")
    log.info("request", status=200, ms=1.5, peer="miner", place="/v1/round/{n}", replayed=False, session=None)
    log.warning("retry", number=2)
    log.warning("stopped", error="FileError")
    first, *rest = lines(capsys)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "name": "party",
        "event": "request",
        "facts": {
            "status": 200,
            "ms": 1.5,
            "peer": "miner",
            "place": "/v1/round/{n}",
            "replayed": False,
            "session": None,
        },
    }
    assert [line["level"] for line in rest] == ["warning", "warning"]


def test_what_is_not_on_the_list_is_withheld(capsys):
    Logger("party").info(
        "request",
        status="200",  # a number's name holds no text
        peer=7,  # nor a word's name a number
        session=HIDDEN,  # nor text that is more than a word
        place="a\nb",
        bytes=b"43",
        rows=[43],
        ms=float("nan"),
        age=43,
        name_of_person=HIDDEN,
        sent=3,
    )
    (line,) = lines(capsys)
    assert line["facts"] == {"sent": 3}
    assert set(line["withheld"]) == {
        *("status", "peer", "session", "place", "bytes", "rows", "ms", "age", "name_of_person")
    }
    assert "43" not in json.dumps({k: v for k, v in line.items() if k != "time"})
    assert "Zyzzyva" not in json.dumps(line)


def test_an_event_is_a_phrase_not_a_message(capsys):
    Logger("party").info(f"read {HIDDEN}")
    assert lines(capsys)[0]["event"] == "withheld"


record_values = st.one_of(
    st.text(),
    st.integers(),
    st.floats(),
    st.binary(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.text()),
)
columns = st.text(alphabet=string.ascii_lowercase + "_ ", min_size=1, max_size=20).filter(
    lambda name: name not in NUMBERS | WORDS
)


@given(record=st.dictionaries(columns, record_values, max_size=4))
def test_no_record_gets_into_a_line(record):
    line = Logger("party").record("info", "request", record)
    assert line["facts"] == {}
    assert set(line) <= {"time", "level", "name", "event", "facts", "withheld"}
    json.dumps(line)


@given(word=st.text(min_size=1), name=st.sampled_from(sorted(WORDS)))
def test_a_word_is_one_word(word, name):
    kept = Logger("party").record("info", "request", {name: word})["facts"]
    assert not kept or (word.isascii() and word.isprintable() and " " not in word and len(word) <= 200)


def test_lines_of_several_threads_do_not_mix(capsys):
    log = Logger("party")
    threads = [
        threading.Thread(target=lambda: [log.info("tick", number=i) for i in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(capsys)) == 200
