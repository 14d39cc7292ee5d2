"""Errors there and back: the same type and sentence, nothing that was not meant for others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from masquerade.core.errors import (
    EngineError,
    FileError,
    InputError,
    MasqueradeError,
    NotConverged,
    PolicyMismatch,
    QueryRefused,
    Refusal,
    RoundAborted,
    SchemaError,
    UnknownValue,
)
from masquerade.crypto.errors import DecodingError, KeySpent, ProofRejected, SealBroken
from masquerade.services.common import problems
from masquerade.services.common.problems import (
    Busy,
    KeyReused,
    NotAdmitted,
    NotFound,
    ServiceFailed,
    TooLarge,
    WrongVersion,
)


def over(error):
    status, content = problems.encode(error)
    return status, problems.decode(status, content, party="north")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DecodingError("d"), 400),
        (InputError("i"), 422),
        (SchemaError("s"), 422),
        (PolicyMismatch("p"), 422),
        (ProofRejected("p"), 422),
        (SealBroken("b"), 422),
        (NotConverged("n"), 422),
        (NotAdmitted("a"), 403),
        (NotFound("f"), 404),
        (KeySpent("k"), 409),
        (KeyReused("r"), 409),
        (MasqueradeError("m"), 409),
        (TooLarge("t"), 413),
        (WrongVersion("v"), 426),
        (Busy("b"), 503),
        (problems.TimedOut("o"), 504),
    ],
)
def test_an_error_arrives_as_what_it_was(error, status):
    got_status, got = over(error)
    assert (got_status, type(got), str(got)) == (status, type(error), str(error))


def test_what_a_round_lost_arrives():
    status, got = over(RoundAborted("it broke", spent=False, culprits=("a", "b")))
    assert (status, type(got), str(got), got.spent, got.culprits) == (
        409,
        RoundAborted,
        "it broke",
        False,
        ("a", "b"),
    )
    assert over(RoundAborted("it broke", spent=True))[1].spent is True


def test_refusals_arrive():
    _, got = over(QueryRefused([Refusal("already_spent", "one"), Refusal("too_many_cells", "two")]))
    assert isinstance(got, QueryRefused)
    assert [(each.code, each.reason) for each in got.refusals] == [
        ("already_spent", "one"),
        ("too_many_cells", "two"),
    ]
    assert str(got) == "one; two"


def test_an_error_without_a_kind_of_its_own_arrives_as_the_one_above_it():
    _, got = over(UnknownValue("smoker", 3))
    assert type(got) is SchemaError
    assert str(got) == str(UnknownValue("smoker", 3))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("secret"),
        KeyError("secret"),
        FileError("/home/secret"),
        EngineError("secret"),
        MemoryError("secret"),
    ],
)
def test_what_is_not_for_others_stays(error):
    status, content = problems.encode(error)
    assert status == 500
    assert b"secret" not in content


def test_a_message_cannot_command_a_terminal():
    _, got = over(InputError("one\x1b[2Jtwo\nthree\u202efour"))
    assert str(got) == r"one\x1b[2Jtwo three\u202efour"
    hostile = json.dumps({"error": "input", "message": "a\x1b]0;b\x07" + "c" * 5000}).encode()
    assert "\x1b" not in str(problems.decode(422, hostile, party="north"))
    assert len(str(problems.decode(422, hostile, party="north"))) <= problems.LONGEST_TEXT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"<html>",
        b"[]",
        b"{}",
        b'{"error": "input"}',
        b'{"error": ["input"], "message": "m"}',
        b'{"error": "__import__", "message": "m"}',
        b'{"error": "input", "message": 3}',
        b"[" * 100_000,
        b'{"error": "input", "message": "' + b"x" * problems.LARGEST + b'"}',
    ],
)
def test_garbage_is_an_error_of_its_own(content):
    got = problems.decode(502, content, party="north")
    assert type(got) is ServiceFailed
    assert str(got) == "Party 'north' answered with status 502 and nothing that can be read."


def test_what_a_round_does_not_say_counts_as_spent():
    got = problems.decode(409, b'{"error": "round_aborted", "message": "m", "culprits": 5}', party="north")
    assert (got.spent, got.culprits) == (True, ())
    refused = problems.decode(
        409, b'{"error": "query_refused", "message": "m", "refusals": [3, {}]}', party="north"
    )
    assert [each.code for each in refused.refusals] == ["refused"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(sorted(problems.TYPES)),
    st.text() | JSON,
    st.fixed_dictionaries({}, optional={"spent": JSON, "culprits": JSON, "refusals": JSON}),
)
def test_whatever_is_said_becomes_an_error(code, message, more):
    content = json.dumps({"error": code, "message": message, **more}).encode()
    got = problems.decode(409, content, party="north")
    assert isinstance(got, MasqueradeError)
    assert str(got).replace(" ", "").isprintable()
