"""The roles of the mix: records come out, and whoever cheats is named before anything is opened."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.mixnet.parties import Mix

import masquerade as mq
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto.elgamal import POINT, decode_rows, encode_rows, encrypt, rerandomize
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mixnet.messages import (
    ENDORSEMENT,
    OPENING,
    SHARE,
    SHUFFLE,
    SUBMISSION,
    MixBoard,
    MixTerms,
    SignedMixMessage,
    pack_record,
    record_width,
)
from masquerade.protocols.mixnet.roles import Collected, Leader, Respondent, collect
from masquerade.protocols.people.history import CLEAR, History
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.sources.people.mixed import MixedRecords
from masquerade.testing import check_tally

G = secp256k1.generator


def payload(data):
    return SignedMixMessage.decode(data).payload


@pytest.mark.parametrize(("leaders", "width"), [(1, 1), (3, 1), (2, 3)])
def test_the_miner_collects_the_records_of_all(leaders, width):
    mix = Mix(5, leaders=leaders, width=width)
    records = [b"", b"same", b"same", b"x" * 30 * width, bytes(range(17))]
    found = collect(
        mix.miner,
        mix.leaders,
        lambda keys: [
            person.submit(keys, record) for person, record in zip(mix.people, records, strict=True)
        ],
    )
    assert Counter(found.records) == Counter(records)
    assert found.unreadable == 0
    assert found.records == tuple(sorted(found.records))  # no order left to link by


def test_who_sends_no_record_is_counted_and_harms_nobody():
    mix = Mix(4)
    sent = mix.submissions()
    size = 2 * POINT
    noise = encode_rows([(encrypt(G, mix.miner.key.point, r := secp256k1.random_secret()),)])
    from masquerade.crypto.proofs import Knows, prove  # noqa: PLC0415
    from masquerade.protocols.mixnet.messages import transcript_for  # noqa: PLC0415
    from masquerade.protocols.mixnet.roles import known_randomness  # noqa: PLC0415

    where = transcript_for(mix.terms, "r1", SUBMISSION, roster=mix.miner.key.id)
    where.absorb("row", noise)
    proof = prove(known_randomness(decode_rows(noise[:size], 1)[0]), [Knows((r,))], where)
    sent[1] = mix.signed("r1", SUBMISSION, noise + proof)
    batch = mix.miner.batch(sent)
    board, endorsed = mix.mixed(batch)
    found = mix.miner.collect(batch, board, [leader.open(endorsed) for leader in mix.leaders])
    assert (len(found.records), found.unreadable) == (3, 1)


def mixed_again(mix, ledgers, session, *, lost=(), agreed=(), sent=None, limit=DEFAULT_LIMIT):
    """Return the records of another session of the same people, in which the miner loses some messages."""
    again = Mix(len(mix.people), session=session, identities=mix.identities)
    people = [
        Respondent(one.name, mix.identities[one.name], again.terms, ledger=ledger, agreed=agreed, limit=limit)
        for one, ledger in zip(again.people, ledgers, strict=True)
    ]
    give = sent or (lambda person, keys: person.submit(keys, f"record of {person.name}".encode()))
    found = collect(
        again.miner,
        again.leaders,
        lambda keys: [give(person, keys) for person in people if person.name not in lost],
    )
    return Counter(found.records)


def test_attack_3_two_mixes_of_which_one_lost_a_message():
    """Two mixes differ by the record of whoever is missing in one: a clear record goes through one alone."""
    mix = Mix(4)
    forgetful = [MemoryLedger() for _ in mix.people]
    first = mixed_again(mix, forgetful, "spring")
    second = mixed_again(mix, [MemoryLedger() for _ in mix.people], "summer", lost={"r2"})
    assert first - second == Counter([b"record of r2"])  # the attack, on devices without a memory
    kept = forgetful
    with pytest.raises(QueryRefused, match="counted in another session"):
        mixed_again(mix, kept, "summer", lost={"r2"})
    # who lost nothing by agreeing says of which session
    with pytest.raises(QueryRefused, match="counted in another session"):
        mixed_again(mix, kept, "summer", agreed=("winter",))
    assert mixed_again(mix, kept, "summer", agreed=("spring",)) == first
    assert kept[0].values(CLEAR)[0][:32] != kept[0].values(CLEAR)[1][:32]
    # neither is it counted by another protocol afterwards
    assert History(kept[0]).against_other_sums().code == "already_spent"


def test_disguised_records_go_through_several_mixes_as_the_same_reports():
    mix, policy = Mix(4), mq.Policy.build({"ill": ["yes", "no"]}, {"ill": mq.channels.binary("0.25")})
    ledgers = [MemoryLedger() for _ in mix.people]

    def sent(person, keys):
        return person.report(keys, {"ill": int(person.name[1:]) % 2}, policy)

    first = mixed_again(mix, ledgers, "spring", sent=sent)
    assert sum(first.values()) == 4
    assert mixed_again(mix, ledgers, "summer", sent=sent) == first
    assert not any(ledger.values(CLEAR) for ledger in ledgers)
    clear = mq.Policy.clear(policy.schema)
    again = {"sent": lambda one, keys: one.report(keys, {"ill": 1}, clear)}
    mixed_again(mix, ledgers, "autumn", **again)
    with pytest.raises(QueryRefused, match="counted in another session"):
        mixed_again(mix, ledgers, "winter", **again)


def test_a_second_mix_without_one_person_is_refused_beyond_the_limit():
    """γ of some 10^15 hides nothing: what two mixes differ by is the answer of whoever is missing in one."""
    mix, policy = Mix(4), mq.Policy.build({"ill": ["yes", "no"]}, {"ill": mq.channels.binary("1e-15")})

    def sent(person, keys):
        return person.report(keys, {"ill": int(person.name == "r2")}, policy)

    accepting = {"sent": sent, "limit": PrivacyLimit.parse({"gamma": "1e16"})}
    ledgers = [MemoryLedger() for _ in mix.people]
    first = mixed_again(mix, ledgers, "spring", **accepting)
    second = mixed_again(mix, ledgers, "summer", lost={"r2"}, **accepting)
    assert first - second == Counter([pack_record({"ill": 1}, policy)])  # wrong once in 10^14 runs
    ledgers = [MemoryLedger() for _ in mix.people]
    assert mixed_again(mix, ledgers, "spring", sent=sent) == first
    with pytest.raises(QueryRefused, match="counted in another session"):
        mixed_again(mix, ledgers, "summer", lost={"r2"}, sent=sent)


def test_a_leader_that_is_started_again_has_another_share_and_opens_nothing():
    mix = Mix(4)
    batch = mix.miner.batch(mix.submissions())
    again = Leader("leader 0", mix.identities["leader 0"], mix.terms)
    with pytest.raises(RoundAborted, match="a different share of this party"):
        again.take_key(mix.keys)
    with pytest.raises(InputError, match="key shares of all holders must come first"):
        again.shuffle(batch, MixBoard(()).encode())
    _, endorsed = mix.mixed(batch)
    mix.leaders[0].open(endorsed)
    assert not any(mix.leaders[0]._secret._held)  # a share that has opened is overwritten
    with pytest.raises(KeySpent):
        mix.leaders[0]._secret.reveal()


# submissions


def test_copies_of_another_ciphertext_are_refused_and_named():
    mix = Mix(5)
    sent = mix.submissions()
    stolen = payload(sent[0])
    (row,) = decode_rows(stolen[: 2 * POINT], 1)
    again = encode_rows(
        [tuple(rerandomize(pair, mix.miner.key.point, secp256k1.random_secret()) for pair in row)]
    )
    sent[3] = mix.signed("r3", SUBMISSION, stolen)
    sent[4] = mix.signed("r4", SUBMISSION, again + stolen[2 * POINT :])
    batch = mix.miner.batch(sent)
    assert mix.miner.refused == ("r3", "r4")
    assert len(MixBoard.decode(batch).parts) == 3
    forced = MixBoard(tuple(sent)).encode()  # a miner that lets copies pass meets the leaders
    with pytest.raises(RoundAborted) as caught:
        mix.leaders[0].shuffle(forced, MixBoard(()).encode())
    assert caught.value.culprits == ("r3", "r4")


def test_two_senders_who_share_a_ciphertext_are_both_refused():
    mix = Mix(5)
    secret = secp256k1.random_secret()
    from masquerade.crypto.elgamal import embed_piece  # noqa: PLC0415
    from masquerade.crypto.proofs import Knows, prove  # noqa: PLC0415
    from masquerade.protocols.mixnet.messages import transcript_for  # noqa: PLC0415
    from masquerade.protocols.mixnet.roles import known_randomness  # noqa: PLC0415

    sent = mix.submissions()
    row = (encrypt(embed_piece(b"shared"), mix.miner.key.point, secret),)
    for place in (1, 2):
        where = transcript_for(mix.terms, f"r{place}", SUBMISSION, roster=mix.miner.key.id)
        where.absorb("row", encode_rows([row]))
        proof = prove(known_randomness(row), [Knows((secret,))], where)
        sent[place] = mix.signed(f"r{place}", SUBMISSION, encode_rows([row]) + proof)
    mix.miner.batch(sent)
    assert mix.miner.refused == ("r1", "r2")


def test_a_submission_is_for_its_session_and_its_keys():
    mix, other = Mix(4), Mix(4, session="another")
    with pytest.raises(RoundAborted) as caught:
        mix.people[0].submit(other.keys, b"x")
    assert caught.value.culprits == ("miner",)  # those shares were not signed for this session
    sent = mix.submissions()
    sent[2] = SignedMixMessage("submission", "r2", payload(sent[2]), bytes(64)).encode()
    mix.miner.batch(sent)
    assert mix.miner.refused == ()  # unsigned: nobody's, so nobody is blamed
    with pytest.raises(RoundAborted, match="not signed"):
        mix.leaders[0].shuffle(MixBoard(tuple(sent)).encode(), MixBoard(()).encode())


def test_a_record_is_sent_once(tmp_path):
    mix = Mix(4)
    path = tmp_path / "r0.db"
    Respondent("r0", mix.identities["r0"], mix.terms, ledger=FileLedger(path)).submit(mix.keys, b"x")
    with pytest.raises(KeySpent):
        Respondent("r0", mix.identities["r0"], mix.terms, ledger=FileLedger(path)).submit(mix.keys, b"x")


@pytest.mark.parametrize("bit", range(0, 8 * 131, 37))
def test_a_submission_with_a_changed_bit_is_refused(bit):
    mix = MIX
    said = bytearray(payload(SENT[1]))
    said[bit // 8 % len(said)] ^= 1 << bit % 8
    mix.miner.batch([SENT[0], mix.signed("r1", SUBMISSION, bytes(said)), *SENT[2:]])
    assert mix.miner.refused == ("r1",)


def test_a_small_batch_is_not_mixed_even_if_the_miner_wants_it():
    mix = Mix(5, minimum=4)
    sent = mix.submissions()
    with pytest.raises(RoundAborted, match="3 records are too few"):
        mix.miner.batch(sent[:3])
    with pytest.raises(RoundAborted, match="3 records are too few"):
        mix.leaders[0].shuffle(MixBoard(tuple(sent[:3])).encode(), MixBoard(()).encode())
    padded = MixBoard((*sent[:3], sent[2])).encode()
    with pytest.raises(RoundAborted, match="one row per sender") as caught:
        mix.leaders[0].shuffle(padded, MixBoard(()).encode())
    assert caught.value.culprits == ("miner",)


# keys


def test_a_rogue_share_is_refused_by_everybody():
    mix = Mix(4)
    shares = {SignedMixMessage.decode(share).sender: share for share in mix.shares}
    others = secp256k1.sum_points(
        secp256k1.decode(payload(shares[n])[:POINT]) for n in shares if n != "miner"
    )
    mine = secp256k1.multiply_generator(secp256k1.random_secret())
    rogue = (mine - others).encode() + payload(shares["miner"])[POINT:]
    shares["miner"] = mix.signed("miner", SHARE, rogue)
    board = MixBoard(tuple(shares[name] for name in mix.terms.holders)).encode()
    for reader in (lambda: mix.leaders[0].take_key(board), lambda: mix.people[0].submit(board, b"x")):
        with pytest.raises(RoundAborted, match="no valid proof") as caught:
            reader()
        assert caught.value.culprits == ("miner",)


def test_keys_are_complete_and_do_not_change():
    mix = Mix(4)
    with pytest.raises(RoundAborted, match="leader 1") as caught:
        mix.miner.key_board(mix.shares[:2])
    assert caught.value.culprits == ("leader 1",)
    shares = list(mix.shares)
    shares[0] = Leader("leader 0", mix.identities["leader 0"], mix.terms).share()
    order = MixBoard(
        tuple(
            {SignedMixMessage.decode(s).sender: s for s in [*mix.shares, shares[0]]}[n]
            for n in mix.terms.holders
        )
    )
    with pytest.raises(RoundAborted, match="a different share of this party"):
        mix.leaders[0].take_key(order.encode())
    with pytest.raises(RoundAborted, match="was changed"):
        mix.leaders[1].take_key(order.encode())
    with pytest.raises(InputError, match="key shares of all holders must come first"):
        _ = Leader("leader 0", mix.identities["leader 0"], mix.terms).key


# shuffles


def respoilt(mix, data, spoil):
    """Return a leader's shuffle with its rows changed, signed anew."""
    signed = SignedMixMessage.decode(data)
    n = len(mix.people)
    out = [list(row) for row in decode_rows(signed.payload[: n * 2 * POINT], 1)]
    changed = encode_rows([tuple(row) for row in spoil(out)])
    return mix.signed(signed.sender, SHUFFLE, changed + signed.payload[n * 2 * POINT :])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: [[type(out[0][0])(out[0][0].a, out[0][0].b + G)], *out[1:]],
        lambda out: [out[1], *out[1:]],
        lambda out: out[1:],
        lambda out: [[encrypt(G, G, secp256k1.random_secret())], *out[1:]],
    ],
    ids=["tagged", "duplicated", "dropped", "replaced"],
)
def test_a_leader_that_tampers_is_named_and_nothing_is_opened(spoil):
    mix = Mix(4)
    batch = mix.miner.batch(mix.submissions())
    first = mix.leaders[0].shuffle(batch, MixBoard(()).encode())
    bad = respoilt(mix, first, spoil)
    with pytest.raises(RoundAborted, match="leader 0") as caught:
        mix.leaders[1].shuffle(batch, MixBoard((bad,)).encode())
    assert (caught.value.spent, caught.value.culprits) == (False, ("leader 0",))
    second = mix.leaders[1].shuffle(batch, MixBoard((first,)).encode())
    worse = MixBoard((first, respoilt(mix, second, spoil))).encode()
    with pytest.raises(RoundAborted) as caught:
        mix.leaders[0].endorse(batch, worse)
    assert caught.value.culprits == ("leader 1",)
    with pytest.raises(InputError, match="before their endorsements"):
        mix.leaders[0].open(MixBoard(()).encode())


def test_a_leader_shuffles_signs_and_opens_once_and_only_its_own_chain():
    mix = Mix(4)
    sent = mix.submissions()
    batch = mix.miner.batch(sent)
    board, endorsed = mix.mixed(batch)
    leader = mix.leaders[0]
    with pytest.raises(KeySpent, match="shuffled"):
        leader.shuffle(batch, MixBoard(()).encode())
    with pytest.raises(KeySpent, match="endorsed"):
        leader.endorse(batch, board)
    leader.open(endorsed)
    with pytest.raises(KeySpent, match="opened"):
        leader.open(endorsed)


def test_a_leader_whose_shuffle_was_left_out_or_exchanged_does_not_sign():
    mix = Mix(4)
    batch = mix.miner.batch(mix.submissions())
    board = mix.shuffled(batch)
    parts = MixBoard.decode(board).parts
    twin = Leader("leader 0", mix.identities["leader 0"], mix.terms)
    twin._secret = mix.leaders[0]._secret
    twin.take_key(mix.keys)
    other = twin.shuffle(batch, MixBoard(()).encode())
    with pytest.raises(RoundAborted, match="differs from the board that this party shuffled") as caught:
        mix.leaders[0].endorse(batch, MixBoard((other, parts[1])).encode())
    assert caught.value.culprits == ("miner",)
    with pytest.raises(RoundAborted, match="from each of leader 0, leader 1"):
        mix.leaders[0].endorse(batch, MixBoard(parts[:1]).encode())
    smaller = mix.miner.batch(MixBoard.decode(batch).parts[:3])
    with pytest.raises(RoundAborted, match="differs from the board that this party shuffled"):
        mix.leaders[0].endorse(smaller, board)


def test_nothing_is_opened_before_all_leaders_signed_the_same():
    mix = Mix(4)
    batch = mix.miner.batch(mix.submissions())
    board = mix.shuffled(batch)
    signed = [leader.endorse(batch, board) for leader in mix.leaders]
    other = mix.signed("leader 1", ENDORSEMENT, bytes(32))
    forged = SignedMixMessage("endorsement", "leader 1", payload(signed[1]), bytes(64)).encode()
    for parts, words in [
        (signed[:1], "one endorsement from each"),
        ([signed[0], other], "signed different shuffles"),
        ([signed[0], forged], "not signed by its sender"),
    ]:
        with pytest.raises(RoundAborted, match=words):
            mix.leaders[0].open(MixBoard(tuple(parts)).encode())
    with pytest.raises(RoundAborted, match="No endorsement came from leader 1"):
        mix.miner.endorsement_board(signed[:1])
    assert not mix.leaders[0]._opened


# openings


def test_a_leader_that_decrypts_falsely_is_named():
    mix = Mix(4)
    batch = mix.miner.batch(mix.submissions())
    board, endorsed = mix.mixed(batch)
    openings = [leader.open(endorsed) for leader in mix.leaders]
    said = payload(openings[1])
    for bad in (G.encode() + said[POINT:], said[:-1], said[: POINT + 3], said[:-1] + bytes([said[-1] ^ 1])):
        with pytest.raises(RoundAborted, match="leader 1") as caught:
            mix.miner.collect(batch, board, [openings[0], mix.signed("leader 1", OPENING, bad)])
        assert (caught.value.spent, caught.value.culprits) == (True, ("leader 1",))
    with pytest.raises(RoundAborted, match="No opening came from leader 1"):
        mix.miner.collect(batch, board, openings[:1])
    assert len(mix.miner.collect(batch, board, openings).records) == 4


def test_the_miner_alone_sees_nothing():
    mix = Mix(4)
    batch = mix.miner.batch(mix.submissions())
    rows = mix.miner._rows_of(batch)
    masks = mix.miner._partial(rows)
    points = [row[0].b - mask for row, mask in zip(rows, masks, strict=True)]
    from masquerade.protocols.mixnet.roles import readable  # noqa: PLC0415

    assert readable(points, 1) == Collected((), 4)


# terms, noise, records


def test_terms_say_what_is_wrong_with_them():
    terms = MIX.terms
    for changes, words in [
        ({"session": ""}, "session name"),
        ({"leaders": {}}, "at least one leader"),
        ({"leaders": {"miner": SigningKey().public}}, "cannot be a leader"),
        ({"leaders": {"leader 0": terms.miner}}, "share an identity"),
        ({"minimum": 2}, "at least 3"),
        ({"width": 0}, "pieces"),
        ({"respondents": {"": SigningKey().public}}, "name must have"),
    ]:
        given_terms = {
            "session": "s", "miner": terms.miner, "leaders": terms.leaders, "respondents": terms.respondents,
        } | changes  # fmt: skip
        with pytest.raises(InputError, match=words):
            MixTerms(**given_terms)
    with pytest.raises(InputError, match="do not name"):
        Leader("leader 0", SigningKey(), terms)
    with pytest.raises(InputError, match="not enrolled"):
        Respondent("r0", SigningKey(), terms)


@settings(max_examples=120, derandomize=True, deadline=None)
@given(noise=st.binary(max_size=200), keep=st.integers(0, 200), which=st.integers(0, 1))
def test_noise_is_refused_by_the_one_error(noise, keep, which):
    data = (SENT[0], MixBoard(tuple(SENT)).encode())[which][:keep] + noise
    for parse in (SignedMixMessage.decode, MixBoard.decode):
        try:
            found = parse(data)
        except DecodingError:
            continue
        assert found.encode() == data


@settings(max_examples=40, derandomize=True, deadline=None)
@given(noise=st.binary(max_size=300), keep=st.integers(0, 300))
def test_roles_raise_only_what_they_document(noise, keep):
    data = BATCH[:keep] + noise
    for read in (
        lambda: MIX.people[0].submit(data, b"x"),
        lambda: MIX.leaders[0].take_key(data),
        lambda: MIX.leaders[0].shuffle(data, MixBoard(()).encode()),
        lambda: MIX.leaders[0].shuffle(BATCH, data),
    ):
        with pytest.raises((DecodingError, RoundAborted)):
            read()


POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}},
            "town": {"categories": list(range(300))},
        },
    }
)


def test_what_comes_out_is_a_source_of_counts():
    mix = Mix(8, width=record_width(POLICY))
    rng = np.random.default_rng(3)
    codes = pd.DataFrame({"smoker": rng.integers(0, 2, 8), "town": rng.integers(250, 300, 8)})
    records = [pack_record(row, POLICY) for row in codes.to_dict("records")]
    records[7] = b"\x05\x00\x00"  # a report that does not exist
    found = collect(
        mix.miner,
        mix.leaders,
        lambda keys: [
            person.submit(keys, record) for person, record in zip(mix.people, records, strict=True)
        ],
    )
    source = MixedRecords(found, POLICY, mix.terms)
    assert (source.n, source.unreadable) == (7, 1)
    labels = codes[:7].assign(smoker=np.array(["yes", "no"])[codes["smoker"][:7]])
    wanted = mq.tally(labels, POLICY)
    for query in (mq.Query(by="smoker"), mq.Query(by="town", where={"smoker": "yes"})):
        (one,), (other,) = source.answer([query]), wanted.answer([query])
        np.testing.assert_allclose(one.values, other.values)
        np.testing.assert_allclose(one.stderr(), other.stderr())
    check_tally(source, labels, POLICY, queries=[mq.Query(by="smoker"), mq.Query(where={"smoker": "yes"})])
    assert source.guarantee.colluders == 1
    assert {item.gamma for item in source.guarantee.disclosures} == {4, None}
    assert source.guarantee.excluded_coalitions == (("miner", "all leaders"),)
    with pytest.raises(InputError, match="'town'"):
        pack_record({"smoker": 1, "town": 300}, POLICY)


MIX = Mix(4)
SENT = MIX.submissions()
BATCH = MIX.miner.batch(SENT)
