"""Servers that do not learn the question refuse what `Controlled` refuses; lying keys are found out."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from tests.statistical.checks import ALPHA
from tests.unit.protocols.mpc.programs import Watched

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.crypto.dpf import fresh_roots, point_keys
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.protocols.mpc.engine import run_each
from masquerade.protocols.mpc.private_queries import (
    CHECKS,
    AnswerShare,
    ControlServer,
    OverlapRules,
    QueryClient,
    QuestionKey,
    Questions,
    control_guarantee,
)
from masquerade.sources.control.answer_history import Knowledge
from masquerade.sources.control.cell_space import CellSpace

SCHEMA = mq.Schema({"a": [0, 1], "b": ["x", "y", "z"], "c": [0, 1], "d": [0, 1]})
SERVERS = ("first", "second")


def table(seed=None, most=12):
    return np.random.default_rng(seed).integers(0, most, SCHEMA.shape(SCHEMA.names))


class Service:
    """Two servers with one table, a client, and what passed between the servers."""

    def __init__(self, counts, rules, most_variables=None):
        self.questions, self.watched = Questions(SCHEMA, most_variables), Watched(SERVERS)
        self.client = QueryClient(self.questions)
        self.servers = {
            name: ControlServer(engine, self.questions, counts, rules, self.client.session)
            for name, engine in self.watched.engines.items()
        }

    def carried(self, messages):
        programs = {
            name: self.watched._seen(server.answer_query(message))
            for (name, server), message in zip(self.servers.items(), messages, strict=True)
        }
        return run_each(programs, self.watched.dealer, self.watched.cost)

    def ask(self, where):
        return self.client.read(list(self.carried(self.client.ask(where)).values()))


def questions(generator, count):
    """Yield cells of up to three variables, at random."""
    for _ in range(count):
        names = generator.choice(SCHEMA.names, generator.integers(1, 4), replace=False)
        yield {
            str(name): SCHEMA[str(name)].categories[generator.integers(len(SCHEMA[str(name)]))]
            for name in names
        }


def test_every_question_is_the_count_of_its_cell():
    counts = table()
    service = Service(counts, OverlapRules(10**6))
    frame = mq.tally(_frame(counts), schema=SCHEMA)
    for where in questions(np.random.default_rng(), 12):
        assert service.ask(where) == frame.answer([mq.Query(where=where)])[0].values
    assert len(service.servers["first"].history) == 12


def _frame(counts):
    rows = np.repeat(np.indices(counts.shape).reshape(counts.ndim, -1), counts.ravel(), axis=1)
    labels = [np.array(SCHEMA[name].categories, dtype=object) for name in SCHEMA]
    return pd.DataFrame({name: some[codes] for name, some, codes in zip(SCHEMA, labels, rows, strict=True)})


def test_what_is_refused_is_what_controlled_refuses():
    """Controlled also answers what follows from earlier answers: only there the servers may refuse."""
    generator = np.random.default_rng()
    seen = {True: 0, False: 0}
    for _ in range(3):
        counts, most = table(), int(generator.integers(8, 20))
        rules = mq.Rules(
            most_variables=9, data_dependent=mq.DataDependentRules(1, most_overlap=most, show_empty=True)
        )
        control = mq.Controlled(mq.tally(_frame(counts), schema=SCHEMA), rules)
        service, known = Service(counts, OverlapRules(most)), Knowledge(CellSpace(SCHEMA))
        for where in questions(generator, 14):
            query = mq.Query(where=where)
            found, refused = service.ask(where), bool(control.check([query]))
            follows = known.copy()
            follows.learn(query)
            if follows.span.rank == known.span.rank and query not in known.queries and found is None:
                continue  # both know it, and only one says it again
            assert (found is None) == refused, (where, most)
            seen[refused] += 1
            if not refused:
                (answer,) = control.answer([query])
                assert answer.values == found
                known = follows
    assert min(seen.values()) > 0


def test_a_cell_of_few_people_is_refused_and_a_question_may_be_repeated():
    counts = np.zeros(SCHEMA.shape(SCHEMA.names), dtype=int)
    counts[0, 0, 0, 0], counts[1, 1, 1, 1], counts[1, 2, 1, 1] = 20, 3, 30
    service = Service(counts, OverlapRules(5, least_people=4))
    assert service.ask({"a": 1}) == 33
    assert service.ask({"b": "y"}) is None  # three people
    assert service.ask({"a": 1}) == 33  # the same once more
    assert service.ask({"c": 1}) is None  # 33 in common with a = 1
    assert service.ask({"b": "x"}) == 20
    assert service.ask({"c": 0, "b": "x"}) is None
    assert service.ask({"d": 0, "a": 1}) is None  # nobody


@pytest.mark.parametrize("refused", [False, True])
def test_what_servers_see_is_uniform_for_two_questions_with_the_same_verdict(refused):
    """Keys and everything that passes between servers, for a question of one variable and one of three."""
    counts = table(1)
    rules = OverlapRules(10**6, least_people=10**5 if refused else 0)
    sizes = []
    for where in ({"a": 0}, {"a": 1, "b": "z", "d": 1}):
        service = Service(counts, rules)
        keys = []
        for _ in range(2):
            messages = service.client.ask(where)
            keys += [QuestionKey.decode(message) for message in messages]
            found = service.client.read(list(service.carried(messages).values()))
            assert (found is None) == refused
        shown = service.watched.shown
        sizes.append([words.size for words in shown])
        masked = [words for words in shown if words.size >= 40 and words.size != CHECKS + 1]  # no zeros
        assert len(masked) > 8
        for server in (0, 1):
            of_one = np.concatenate([words.astype("<u8").view(np.uint8) for words in masked[server::2]])
            assert chisquare(np.bincount(of_one, minlength=256)).pvalue > ALPHA / 8
        assert len({key.root for key in keys}) == 4
    assert sizes[0] == sizes[1]


def lying(service, make):
    """Return keys that somebody made otherwise."""
    bits = service.questions.bits
    roots = fresh_roots(1)
    keys = make(bits, roots)
    return [
        QuestionKey(
            service.client.session,
            0,
            server,
            roots[server].astype("<u8").tobytes(),
            keys[server].encode_shared(),
        ).encode()
        for server in (0, 1)
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda bits, roots: point_keys([5], [2], bits, roots),  # twice a cell
        lambda bits, roots: point_keys([5], [2**63 + 1], bits, roots),  # and a parity besides
        lambda bits, roots: point_keys([0], [1], bits, roots),  # everybody: no question
        lambda bits, roots: point_keys([127], [1], bits, roots),  # beyond all questions
        lambda bits, roots: point_keys([5], [0], bits, roots),  # nothing
        lambda bits, roots: [  # all cells at once, with made-up corrections
            replace(keys, leaves=keys.leaves + np.uint64(9)) for keys in point_keys([5], [1], bits, roots)
        ],
        lambda bits, roots: [  # other corrections for each server
            point_keys([5], [1], bits, roots)[0],
            point_keys([6], [1], bits, roots)[1],
        ],
    ],
    ids=["weight", "parity", "everybody", "beyond", "nothing", "leaves", "apart"],
)
def test_keys_that_select_no_question_are_found_out(make):
    service = Service(table(), OverlapRules(10**6))
    messages = lying(service, make)
    with pytest.raises(RoundAborted, match="select no query"):
        service.carried(messages)
    with pytest.raises(KeySpent):  # and nothing is answered ever after
        service.carried(service.client.ask({"a": 1}))


def test_keys_of_another_question_server_session_or_length_are_refused():
    service = Service(table(), OverlapRules(10**6))
    first, second = service.client.ask({"a": 1})
    key = QuestionKey.decode(first)
    for wrong, error in (
        (second, KeySpent),
        (replace(key, number=1).encode(), KeySpent),
        (replace(key, session=os.urandom(16)).encode(), KeySpent),
        (replace(key, root=key.root[:-1]).encode(), DecodingError),
        (replace(key, corrections=key.corrections[:-1]).encode(), DecodingError),
        (first[:-1], DecodingError),
    ):
        fresh = Service(table(), OverlapRules(10**6))
        server = fresh.servers["first"]
        server._session = key.session
        with pytest.raises(error):
            next(server.answer_query(wrong))
        with pytest.raises(KeySpent):
            next(server.answer_query(first))
    replies = list(service.carried((first, second)).values())
    with pytest.raises(KeySpent):  # once more
        service.carried((first, second))
    share = AnswerShare.decode(replies[0])
    for wrong in (replies[:1], [replies[0], replace(share, number=4).encode()]):
        with pytest.raises(InputError):
            service.client.read(wrong)
    with pytest.raises(RoundAborted, match="is false"):
        service.client.read([replace(share, allowed=(share.allowed + 1) % 2**64).encode(), replies[1]])


def test_a_server_that_lost_its_history_answers_nothing_with_the_other():
    service = Service(table(), OverlapRules(3))
    service.ask({"a": 1})
    service.servers["second"].history.clear()
    with pytest.raises(MasqueradeError):
        service.ask({"b": "x"})


def test_what_cannot_be_is_refused_and_the_guarantee_says_what_is_trusted():
    asked = Questions(SCHEMA, 2)
    for wrong in ({}, {"a": 1, "b": "x", "c": 1}, {"aa": 1}):
        with pytest.raises(InputError):
            asked.place(wrong)
    engine = Watched(SERVERS).engines["first"]
    for counts in (table()[0], table() - 20, table() + 0.5):
        with pytest.raises(InputError):
            ControlServer(engine, asked, counts, OverlapRules(3), bytes(16))
    with pytest.raises(InputError):
        OverlapRules(-1)
    with pytest.raises(InputError, match="fewer variables"):
        Questions(mq.Schema({f"v{i}": [0, 1] for i in range(14)}))
    told = control_guarantee("client", SERVERS, "helper", SCHEMA.names, OverlapRules(3, 5))
    assert {item.role: item.gamma for item in told.disclosures} == {
        "client": None,
        "first": None,
        "second": None,
        "helper": 1,
    }
    text = told.summary()
    for words in ("fewer than 5 people", "more than 3", "2^-64", "two names", "addition and subtraction"):
        assert words in text
