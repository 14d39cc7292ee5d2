"""A convener that does more than was consented to: every way that was tried fails closed."""

import os

import numpy as np
import pandas as pd
import pytest
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    OWNERS,
    TABLE_1,
    LearningGoal,
    deployed,
    people,
    split_columns,
    split_rows,
)

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.keys import create_identity
from masquerade.disguising.memo import Memo
from masquerade.disguising.report_draws import disguise_codes
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.services.common.settings import Limits
from masquerade.services.parties import messages as say
from masquerade.services.parties.local_data import read_local_data
from masquerade.services.parties.node import Node
from masquerade.services.parties.participant import SessionParticipant
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import DataSettings, MinerSettings

ONE_TABLE = LearningGoal(model="tables", tables=(("A",),))
FOUR = ("north", "south", "west", "registry")


class Speaking:
    """A convener's own way to a role of every party."""

    def __init__(self, deployment, role):
        self._deployment, self._role = deployment, role

    def exchange(self, party, message):
        return self._deployment.say(MINER, party, self._role, message)


def begin(deployment, epoch, parties=None):
    """Start the session at the parties, and return their replies."""
    offer = say.encode(say.Begin(spec=deployment.spec, epoch=epoch.hex()))
    names = parties or deployment.spec.parties
    return {party: say.decode(deployment.say(MINER, party, "begin", offer), say.Begun) for party in names}


@pytest.fixture
def pool(tmp_path):
    with deployed(tmp_path, split_rows(people(120), CLEAR, FOUR, ONE_TABLE, seed=5)) as found:
        yield found


def test_a_pool_of_fewer_parties_than_agreed_is_refused(pool):
    begin(pool, os.urandom(16))
    with pytest.raises(RoundAborted, match="differ from the agreed parties"):
        MaskedSum(FOUR[:3], Speaking(pool, "pooling"), CLEAR)
    assert pool.ledger("north") == []


def test_tables_that_the_session_does_not_need_are_refused(pool):
    begin(pool, os.urandom(16))
    adding = MaskedSum(FOUR, Speaking(pool, "pooling"), CLEAR)
    assert int(adding.totals([mq.Query(by="A")]).sum()) == 120
    with pytest.raises(RoundAborted, match="model does not need this"):
        adding.totals([mq.Query(by=("A", "T"))])
    with pytest.raises(RoundAborted, match="model does not need this"):
        adding.totals([mq.Query(by="A", where={"S": 1})])
    assert {item.variables for item in pool.ledger("north")} == {("A",)}


def test_a_session_that_has_ended_is_not_begun_again(pool):
    pool.done()
    before = pool.ledger("north")
    with pytest.raises(QueryRefused, match="it has ended here"):
        begin(pool, os.urandom(16))
    assert pool.ledger("north") == before


def test_within_a_session_records_stay_the_same(pool):
    begin(pool, os.urandom(16))
    file = pool.files["north"].parent / "records.parquet"
    records = pd.read_parquet(file)
    records.iloc[:-1].to_parquet(file, index=False)  # one person fewer: two sums would differ by that person
    with pytest.raises(RoundAborted, match="not those that session 'example' began with"):
        begin(pool, os.urandom(16), ["north"])


def test_too_few_common_records_are_refused(tmp_path):
    plan = split_columns(people(30), TABLE_1, OWNERS, "vertical-with-miner", ONE_TABLE, seed=2, missing=0.5)
    with deployed(tmp_path, plan) as deployment:
        status = deployment.run()
    assert status["state"] == "interrupted"
    assert "this node's file requires 20" in status["reason"]


def test_nobody_is_shown_another_policy_than_its_party_signed(tmp_path):
    goal = LearningGoal(
        model="network", structure={"A": (), "T": ("A",), "E": ("T", "L"), "L": ("S",), "S": ()}
    )
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-without-miner", goal, seed=2, linking="keyed")
    epoch = os.urandom(16)
    with deployed(tmp_path, plan) as deployment:
        told = begin(deployment, epoch)
        policies = {party: it.policy for party, it in told.items()}
        signatures = {party: it.signature for party, it in told.items()}
        swapped = policies | {"north": policies["registry"], "registry": policies["north"]}
        for shown, signed in (
            (swapped, signatures),
            (policies, signatures | {"north": "00" * 64}),
            (policies, {}),
        ):
            message = say.Arrange(epoch=epoch.hex(), policies=shown, signatures=signed)
            with pytest.raises(RoundAborted, match="is not signed by it"):
                deployment.say(MINER, "south", "arrange", say.encode(message))
        settled = {
            party: say.decode(
                deployment.say(MINER, party, "settle", say.encode(say.InEpoch(epoch=epoch.hex()))),
                say.Settled,
            )
            for party in OWNERS
        }
        right = say.Arrange(
            epoch=epoch.hex(),
            policies=policies,
            signatures=signatures,
            alignment=settled["south"].alignment,
            aligned={party: it.signature for party, it in settled.items()},
        )
        deployment.say(MINER, "south", "arrange", say.encode(right))


def holding_of(folder, keys):
    """Return a party's records of `n` people, disguised by table 1."""
    folder.mkdir()
    frame = people(len(keys), seed=4)[["A", "T", "E"]].assign(person=keys)
    frame.to_parquet(folder / "records.parquet", index=False)
    mq.Policy.build(
        mq.Schema([TABLE_1.schema[name] for name in ("A", "T", "E")]), {"A": TABLE_1.group("A").channel}
    ).save(folder / "policy.yaml")
    (folder / "linking.key").write_bytes(bytes(32))
    data = DataSettings(
        files=(folder / "records.parquet",),
        policy=folder / "policy.yaml",
        key="person",
        linking_key=folder / "linking.key",
    )
    return read_local_data(data, ("A", "T", "E"), apart=False)


def test_a_respelt_key_is_not_disguised_anew(tmp_path):
    memo = Memo.load_or_create(tmp_path / "memo.json")
    drawn = []
    for folder, spelling in (("a", "Person {}"), ("b", " person  {} ")):
        holding = holding_of(tmp_path / folder, [spelling.format(i) for i in range(200)])
        drawn.append(
            disguise_codes(
                holding.single_block.codes, holding.policy, holding.draws(memo, holding.single_block)
            )
        )
    assert np.array_equal(drawn[0]["A"], drawn[1]["A"])  # 200 fresh draws would agree with probability 1e-50


def test_keyed_pseudonyms_of_two_sessions_have_nothing_in_common(tmp_path):
    holding = holding_of(tmp_path / "a", [f"p{i}" for i in range(30)])
    create_identity(tmp_path / "identity")
    (tmp_path / "token").write_text("a token of its operator")
    files = {name: tmp_path / name for name in ("identity", "state")} | {"operator_token": tmp_path / "token"}
    node = Node(MinerSettings(masquerade=1, name="north", limits=Limits(rows=100), **files))
    found = []
    for session in ("first", "second"):
        spec = SessionSpec(
            session=session,
            protocol="vertical-with-miner",
            parties=("north", "south"),
            convener=MINER,
            linking="keyed",
            learn=ONE_TABLE,
        )
        part = SessionParticipant(node.party, spec, bytes(16), holding)
        found.append({bytes(tag) for tag in part.compute_linkage().tags})
    node.close()
    assert len(found[0]) == 30
    assert found[0].isdisjoint(found[1])


def test_the_ledger_has_a_line_for_every_different_exact_answer(tmp_path):
    goal = LearningGoal(model="tables", tables=(("A", "T"),))
    with deployed(tmp_path, split_rows(people(90), CLEAR, FOUR[:3], goal, seed=5)) as deployment:
        begin(deployment, os.urandom(16))
        adding = MaskedSum(FOUR[:3], Speaking(deployment, "pooling"), CLEAR)
        for query in (mq.Query(by=("A", "T")), mq.Query(by="A", where={"T": 1}), mq.Query(by=("A", "T"))):
            adding.totals([query])
        about = [item for item in deployment.ledger("north") if set(item.variables) == {"A", "T"}]
    assert len(about) == 3  # each round has fresh masks, so each is recorded
