"""Messages in somebody's name that this person did not sign: none of them changes a count."""

import threading

import pytest
from tests.services.counting.world import LONG, World, until

import masquerade as mq
from masquerade.core.errors import MasqueradeError, QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey
from masquerade.services.common.jobs import Call
from masquerade.services.common.people_server import ANYBODY
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.settings import load
from masquerade.services.counting import messages
from masquerade.services.counting.example import example_records, write_count
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    LETTER_ID,
    NOT_TAKEN,
    TAKEN,
    DeviceReply,
    DeviceRequest,
    Letter,
)
from masquerade.services.counting.miner import NOT_SIGNED, MinerService
from masquerade.services.counting.settings import CountMinerSettings

PEOPLE = 12
FIRST, SECOND = "P00001", "P00002"
QUESTION = [mq.Query(by=("smoker", "illness"))]
STRANGER = SigningKey()
NAMES = tuple(f"P{i + 1:05d}" for i in range(PEOPLE))


class Miner:
    """A miner in this process, with people whose keys the test has; a round is held in a thread."""

    def __init__(self, folder, *, name="example", keys=None):
        files = write_count(
            folder,
            protocol="frequency",
            records=example_records(PEOPLE),
            patience=LONG,
            minimum=10,
            name=name,
        )
        self.service = MinerService(load(files["miner"], CountMinerSettings, environment={}))
        self.keys = keys or {name: SigningKey() for name in NAMES}
        self.terms = self.service.description.terms({name: key.public for name, key in self.keys.items()})
        self.said = []

    def enrol(self):
        self.say("enrol", self.terms.encode(), peer=self.service.settings.office)
        return self

    def say(self, place, body, peer=None):
        """Hand over a message, as somebody without credentials or as a peer."""
        who = ANYBODY if peer is None else self.service.settings.peers[peer].peer(peer)
        return self.service.handle(Call(who, place, body))

    def begin_round(self):
        """Ask a question of everybody; return the letter once it is out."""
        asked = [{"columns": ["smoker", "illness"], "conditions": []}]

        def hold():
            try:
                self.said.append(self.service.operations["ask"]({"questions": asked}))
            except MasqueradeError as error:
                self.said.append(error)

        self.asking = threading.Thread(target=hold, daemon=True)
        self.asking.start()
        until(lambda: len(self.due) == PEOPLE, "letters to everybody")
        return Letter.decode(self.say(ASK_LETTER, self.request(ASK_LETTER, FIRST).encode()))

    def request(self, what, name):
        return DeviceRequest.make(what, name, self.terms.digest, self.keys[name])

    def reply(self, name, letter, content):
        return DeviceReply.make(name, letter, content, self.terms.digest, self.keys[name])

    @property
    def due(self):
        """Return whose letters are out."""
        return dict(self.service.queue._letters)

    def end(self):
        """End the round, if one is held, with nobody's answer, and let go of the files."""
        for name in self.due:
            self.say("replies", self.reply(name, self.service.queue._id, b"").encode())
        if hasattr(self, "asking"):
            self.asking.join(LONG)
        self.service.close()


@pytest.fixture
def miner(tmp_path):
    made = Miner(tmp_path / "count").enrol()
    yield made
    made.end()


def forged_request(what, name, key=STRANGER, terms=b"\0" * 32):
    return DeviceRequest.make(what, name, terms, key).encode()


def test_a_count_that_takes_a_name_for_a_signature_is_ended_by_a_stranger(miner, monkeypatch):
    """The attack: names are guessed or known, the letter is given to whoever asks, the first reply counts."""
    monkeypatch.setattr(messages, "_is_signed", lambda terms, person, *_: person in terms.members)
    miner.begin_round()
    letter = Letter.decode(miner.say(ASK_LETTER, forged_request(ASK_LETTER, FIRST)))
    for name in NAMES:
        forged = DeviceReply.make(name, letter.id, b"", miner.terms.digest, STRANGER)
        assert miner.say("replies", forged.encode()) == TAKEN
    miner.asking.join(LONG)
    (ended,) = miner.said
    assert isinstance(ended, RoundAborted)
    assert set(ended.culprits) == set(NAMES)  # all are named as gone, and have done nothing
    true = miner.reply(FIRST, letter.id, b"what the person says")
    assert miner.say("replies", true.encode()) == NOT_TAKEN


def other_count(miner, tmp_path):
    return Miner(tmp_path / "other", name="other", keys=miner.keys)


# how a reply in the first person's name is forged while their letter is out; `letter` is its true id
FORGED = {
    "signed by nobody": lambda _, letter, __: DeviceReply(FIRST, letter, b"", bytes(64)),
    "signed by a stranger": lambda m, letter, _: DeviceReply.make(
        FIRST, letter, b"", m.terms.digest, STRANGER
    ),
    "signed by another person of the count": lambda m, letter, _: DeviceReply.make(
        FIRST, letter, b"", m.terms.digest, m.keys[SECOND]
    ),
    "another person's reply under this name": lambda m, letter, _: DeviceReply(
        FIRST, letter, b"", m.reply(SECOND, letter, b"").signature
    ),
    "signed for another letter": lambda m, letter, _: DeviceReply(
        FIRST, letter, b"", m.reply(FIRST, bytes(LETTER_ID), b"").signature
    ),
    "signed for another content": lambda m, letter, _: DeviceReply(
        FIRST, letter, b"more", m.reply(FIRST, letter, b"").signature
    ),
    "signed for another count": lambda m, letter, other: DeviceReply(
        FIRST, letter, b"", DeviceReply.make(FIRST, letter, b"", other.terms.digest, m.keys[FIRST]).signature
    ),
    "the signature of a request": lambda m, letter, _: DeviceReply(
        FIRST, letter, b"", m.request(ASK_LETTER, FIRST).signature
    ),
    "somebody who is not enrolled": lambda m, letter, _: DeviceReply.make(
        "P00099", letter, b"", m.terms.digest, STRANGER
    ),
    "the miner's own key": lambda m, letter, _: DeviceReply.make(
        "P00099", letter, b"", m.terms.digest, m.service.identity
    ),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_reply_is_refused_and_withdraws_nothing(how, miner, tmp_path):
    other = other_count(miner, tmp_path)
    try:
        letter = miner.begin_round()
        before = miner.due
        forged = FORGED[how](miner, letter.id, other)
        with pytest.raises(NotAdmitted) as refused:
            miner.say("replies", forged.encode())
        assert str(refused.value) == NOT_SIGNED
        assert miner.due == before
        assert not miner.said
        # the person's own reply still counts
        assert miner.say("replies", miner.reply(FIRST, letter.id, b"").encode()) == TAKEN
        assert set(miner.due) == set(NAMES) - {FIRST}
    finally:
        other.service.close()


@pytest.mark.parametrize("body", [b"", b"noise", b'{"person": "P00001"}', bytes(100_000)])
def test_what_is_no_message_is_refused_and_withdraws_nothing(body, miner):
    miner.begin_round()
    before = miner.due
    for place in (ASK_TERMS, ASK_LETTER, "replies"):
        with pytest.raises(DecodingError):
            miner.say(place, body)
    assert miner.due == before


def test_a_true_reply_is_taken_once_and_in_no_later_round(miner):
    """Who sends a person's own reply again, at once or in the next round, changes nothing."""
    letter = miner.begin_round()
    true = miner.reply(FIRST, letter.id, b"").encode()
    assert miner.say("replies", true) == TAKEN
    assert miner.say("replies", true) == NOT_TAKEN
    for name in NAMES[1:]:
        miner.say("replies", miner.reply(name, letter.id, b"").encode())
    miner.asking.join(LONG)
    queue = miner.service.queue
    handed = threading.Thread(
        target=lambda: list(queue.replies(dict.fromkeys(NAMES, letter.content), LONG)), daemon=True
    )
    handed.start()  # the same message once more, as a miner does that was started again
    until(lambda: len(miner.due) == PEOPLE, "letters to everybody")
    assert miner.say("replies", true) == NOT_TAKEN
    assert len(miner.due) == PEOPLE
    for name in NAMES:
        miner.say("replies", miner.reply(name, queue._id, b"").encode())
    handed.join(LONG)


@pytest.mark.parametrize("what", [ASK_TERMS, ASK_LETTER])
def test_who_is_enrolled_is_told_to_those_who_are(what, miner):
    """Terms have everybody's name; a stranger learns neither them nor whether a name is among them."""
    place = {ASK_TERMS: ASK_LETTER, ASK_LETTER: ASK_TERMS}[what]
    assert miner.say(what, miner.request(what, FIRST).encode())
    said = set()
    for body in (
        forged_request(what, FIRST),
        forged_request(what, FIRST, terms=miner.terms.digest),
        forged_request(what, "P00099", terms=miner.terms.digest),
        forged_request(what, FIRST, key=miner.keys[SECOND], terms=miner.terms.digest),
        forged_request(what, "P00099", key=miner.service.identity, terms=miner.terms.digest),
        DeviceRequest(what, SECOND, miner.request(what, FIRST).signature).encode(),
        miner.request(place, FIRST).encode(),  # what was signed for the other place
        DeviceRequest(what, FIRST, miner.request(place, FIRST).signature).encode(),
    ):
        with pytest.raises(NotAdmitted) as refused:
            miner.say(what, body)
        said.add(str(refused.value))
    assert said == {NOT_SIGNED}


def test_nothing_is_told_or_taken_before_people_are_enrolled(tmp_path):
    miner = Miner(tmp_path / "count")
    try:
        for place, body in (
            (ASK_TERMS, miner.request(ASK_TERMS, FIRST).encode()),
            (ASK_LETTER, miner.request(ASK_LETTER, FIRST).encode()),
            ("replies", miner.reply(FIRST, bytes(LETTER_ID), b"").encode()),
        ):
            with pytest.raises(QueryRefused, match="has not decided yet who is counted"):
                miner.say(place, body)
        for peer in (None, "office"):
            changed = miner.terms.encode() if peer is None else miner.terms.encode()[:-1]
            with pytest.raises((NotAdmitted, DecodingError)):
                miner.say("enrol", changed, peer=peer)
        assert miner.service.terms is None
    finally:
        miner.service.close()


class Hammer:
    """Strangers and an insider who send forged messages in everybody's name, over and over, at a real miner.

    `sweeps` are whole ones over all people, each with the letter that was out when it began.
    """

    def __init__(self, world):
        self.world, self.sweeps, self.refused, self.wrong = world, 0, 0, []
        self.sent, self.stopping = [], threading.Event()
        self.insider = world.device(world.names[0])
        self.digest = bytes.fromhex(self.insider.admission.terms)
        self.threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(2)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def watch(self, device):
        """Remember what a person's device truly sends, to send it again."""
        exchange = device.http.exchange

        def watched(place, body, **more):
            if place == "replies":
                self.sent.append(body)
            return exchange(place, body, **more)

        device.http.exchange = watched

    def hold(self, device):
        """Let a device answer each letter only when a sweep has begun and ended while it was out."""
        answer = device._answer

        def late(*given):
            seen = self.sweeps
            until(lambda: self.sweeps >= seen + 4 or self.stopping.is_set(), "two sweeps of each thread")
            answer(*given)

        device._answer = late

    def _run(self, number):
        with self.insider.admission.client(patience=LONG) as http:
            while not self.stopping.is_set():
                self._sweep(http, number)
                self.sweeps += 1

    def _sweep(self, http, number):
        me, key = self.world.names[0], self.insider.person.identity
        request = DeviceRequest.make(ASK_LETTER, me, self.digest, key)  # an insider knows the letter's id
        try:
            letter = Letter.decode(http.exchange(ASK_LETTER, request.encode(), once=False)).id
        except QueryRefused:
            letter = bytes(LETTER_ID)
        for name in self.world.names:
            forged = [("replies", DeviceReply.make(name, letter, b"", self.digest, STRANGER).encode())]
            if name != me:
                forged += [("replies", DeviceReply.make(name, letter, b"noise", self.digest, key).encode())]
            forged += [(ASK_LETTER, forged_request(ASK_LETTER, name, terms=self.digest))]
            forged += [(ASK_TERMS, forged_request(ASK_TERMS, name, terms=self.digest))]
            for place, body in forged:
                self._try(http, place, body)
        for body in self.sent[number::2][-PEOPLE:]:
            if http.exchange("replies", body) not in (TAKEN, NOT_TAKEN):
                self.wrong.append("a reply that was sent again")

    def _try(self, http, place, body):
        try:
            http.exchange(place, body)
            self.wrong.append(place)
        except NotAdmitted:
            self.refused += 1

    def end(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(LONG)
        self.insider.person.close()


@pytest.mark.parametrize(
    "protocol",
    ["frequency", *(pytest.param(protocol, marks=pytest.mark.slow) for protocol in ("aggregation", "mix"))],
)
def test_strangers_who_hammer_a_count_change_nothing(protocol, tmp_path):
    """Before, during and after the true replies, in everybody's name, two at a time: the count is right."""
    world = World(tmp_path, protocol, PEOPLE, minimum=10, patience=LONG)
    hammer = None
    try:
        world.serve(*[role for role in world.files if role == "miner" or role.startswith("leader")])
        world.enrol()
        hammer = Hammer(world)
        hammer.start()
        until(lambda: hammer.sweeps >= 2, "sweeps before anybody has answered")

        def change(name, device):
            hammer.watch(device)
            if name == world.names[-1]:
                hammer.hold(device)

        world.start_threads(change)
        if protocol == "mix":
            until(lambda: world.status()["sent"] == PEOPLE, "everybody's record")
            status = world.close()
            assert (status["records"], status["refused"]) == (PEOPLE, [])
            assert mq.learn.naive_bayes(world.source(), "illness").to_dict() == (
                mq.learn.naive_bayes(world.clear(), "illness").to_dict()
            )
        else:
            [table] = world.source().answer(QUESTION)
            [clear] = world.clear().answer(QUESTION)
            assert table.n == PEOPLE
            assert (table.values == clear.values).all()
            status = world.status()
            assert (status["rounds"], status["cheats"], status["left"]) == (1, [], [])
        seen = hammer.sweeps
        until(lambda: hammer.sweeps >= seen + 4, "sweeps after the end")
        after = world.status()
        assert after == status
    finally:
        if hammer is not None:
            hammer.end()
        world.end()
    assert hammer.wrong == []
    assert hammer.refused >= 4 * PEOPLE * 4
