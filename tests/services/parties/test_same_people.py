"""A convener that chooses the people of results: differences of results must not single out a person."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    OWNERS,
    SESSION,
    TABLE_1,
    Deployment,
    LearningGoal,
    deployed,
    joined,
    people,
    split_columns,
    split_rows,
)
from tests.services.parties.test_hostile_conveners import ONE_TABLE, Speaking, begin

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.protocols.linkage.pseudonyms import split_pseudonyms
from masquerade.protocols.linkage.psi import Joiner, PseudonymRequest, Pseudonyms, Receipt
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.vertical.disguised_cells import CellRequest
from masquerade.protocols.vertical.scalar_products import HelpedProducts
from masquerade.protocols.wire.session import ask
from masquerade.services.parties import messages as say
from masquerade.services.parties.session import JointSchema
from masquerade.services.parties.settings import consent_values
from masquerade.sources.parties.products import RevealedVerticalCounts

HELD = 120
TWO_TABLES = LearningGoal(model="tables", tables=(("A",), ("T", "S")))


class Choosing(Joiner):
    """A joiner that calls common what it likes: all but `fewer`, or of each party everything it has."""

    fewer, everything = 0, False

    def intersect(self):
        asked = PseudonymRequest(self.session)
        replies = {
            party: ask(self._transport, party, asked, Pseudonyms, spent=True) for party in self.parties
        }
        listed = {
            party: {row.tobytes() for row in split_pseudonyms(reply.values)}
            for party, reply in replies.items()
        }
        common = sorted(set.intersection(*listed.values()))[self.fewer :]
        for party in self.parties:
            told = sorted(listed[party]) if self.everything else common
            ask(self._transport, party, Pseudonyms(self.session, b"".join(told)), Receipt, spent=True)
        return len(common)


def linked(deployment, *, fewer=0, everything=False, spec=None, arrange=True):
    """Take parties of a session as far as an epoch is arranged, as a convener that chooses."""
    spec, epoch = spec or deployment.spec, os.urandom(16)

    def tell(member, role, message):
        return deployment.say(MINER, member, role, say.encode(message), session=spec.session)

    offer = say.Begin(spec=spec, epoch=epoch.hex())
    begun = {member: say.decode(tell(member, "begin", offer), say.Begun) for member in spec.members}
    known = deployment.settings(MINER).peers
    joiner = Choosing(
        spec.parties,
        Saying(deployment, "linking", spec.session),
        name=MINER,
        session=epoch,
        peers={party: bytes.fromhex(known[party].identity) for party in spec.parties},
    )
    joiner.fewer, joiner.everything = fewer, everything
    joiner.link()
    settled = {
        party: say.decode(tell(party, "settle", say.InEpoch(epoch=epoch.hex())), say.Settled)
        for party in spec.parties
    }
    policies = {party: begun[party].policy for party in spec.parties}
    for member in spec.members if arrange else ():
        own = settled.get(member, settled[spec.parties[0]])
        tell(
            member,
            "arrange",
            say.Arrange(
                epoch=epoch.hex(),
                policies=policies,
                signatures={party: begun[party].signature for party in spec.parties},
                records=own.records,
                alignment=own.alignment,
                aligned={party: it.signature for party, it in settled.items()},
            ),
        )
    return epoch, JointSchema.from_dict(policies), settled[spec.parties[0]]


class Saying(Speaking):
    """A way to a role of every party in a session of some name."""

    def __init__(self, deployment, role, session):
        super().__init__(deployment, role)
        self._session = session

    def exchange(self, party, message):
        return self._deployment.say(MINER, party, self._role, message, session=self._session)


def counted(deployment, **options):
    """Return an exact table of A in a new epoch, and the number of records."""
    return table_of(deployment, options.get("spec") or deployment.spec, linked(deployment, **options))


def table_of(deployment, spec, arranged):
    """Return an exact table of A in an epoch that was arranged, and the number of records."""
    _, arrangement, settled = arranged
    source = RevealedVerticalCounts(
        HelpedProducts(
            arrangement.owners,
            spec.helper,
            Saying(deployment, "products", spec.session),
            arrangement.schema,
            settled.records,
            alignment=bytes.fromhex(settled.alignment),
        )
    )
    (table,) = source.answer([mq.Query(by="A")])
    return table.values, settled.records


def with_second_session(deployment, **more):
    """Make every node consent to another session of the same text, and return it."""
    second = deployment.spec.model_copy(update={"session": "second"})
    for file in deployment.files.values():
        values = yaml.safe_load(file.read_text())
        given = values.get("consents", [])
        values["consents"] = [*given, *({**one, **consent_values(second), **more} for one in given)]
        file.write_text(yaml.safe_dump(values))
    return second


def exact_plan():
    return split_columns(people(HELD), CLEAR, OWNERS, "revealed-vertical-counts", TWO_TABLES, seed=2)


def test_within_a_session_exact_results_are_about_the_same_people(tmp_path):
    with deployed(tmp_path, exact_plan()) as deployment:
        before, records = counted(deployment)
        assert int(np.sum(before)) == records
        for fewer in (25, 1):  # by way of a third set that differs by many from both, one person would show
            with pytest.raises(RoundAborted, match="The people of session"):
                counted(deployment, fewer=fewer)
        again, same = counted(deployment)
        assert same == records
        np.testing.assert_array_equal(again, before)


def test_two_sessions_with_exact_results_are_about_the_same_people(tmp_path):
    deployment = Deployment(tmp_path / "deployment", exact_plan())
    second = with_second_session(deployment)
    deployment.start()
    try:
        counted(deployment)
        left = deployment.ledger("north")
        with pytest.raises(QueryRefused, match="The people are not the same as in session 'example'"):
            counted(deployment, fewer=1, spec=second)
        kinds = {item.kind for item in deployment.ledger("north")[len(left) :]}
        assert kinds == {"keys under secret masks", "pseudonyms of records, which tell who is common"}
        counted(deployment, spec=second)
    finally:
        deployment.stop()


def test_of_sessions_side_by_side_the_first_to_answer_decides(tmp_path):
    deployment = Deployment(tmp_path / "deployment", exact_plan())
    second = with_second_session(deployment)
    deployment.start()
    try:
        arranged = linked(deployment, fewer=1, spec=second)  # nothing has left yet, in either
        assert counted(deployment)[1] == arranged[2].records + 1
        with pytest.raises(RoundAborted, match="The people are not the same as in session 'example'"):
            table_of(deployment, second, arranged)
    finally:
        deployment.stop()


def test_a_party_may_agree_to_results_about_other_people(tmp_path):
    deployment = Deployment(tmp_path / "deployment", exact_plan())
    second = with_second_session(deployment, other_people=True)
    deployment.start()
    try:
        _, first = counted(deployment)
        assert counted(deployment, fewer=1, spec=second)[1] == first - 1
    finally:
        deployment.stop()


def test_without_a_miner_own_parameters_are_about_the_same_people(tmp_path):
    structure = {"A": (), "T": ("A",), "E": ("T", "L"), "L": ("S",), "S": ()}
    goal = LearningGoal(model="network", structure=structure)
    plan = split_columns(people(HELD), TABLE_1, OWNERS, "vertical-without-miner", goal, seed=2)
    with deployed(tmp_path, plan) as deployment:
        epoch, _, _ = linked(deployment)
        message = say.encode(say.Learn(epoch=epoch.hex(), structure=structure))
        deployment.say(MINER, "north", "learn", message)
        for fewer in (25, 1):
            with pytest.raises(RoundAborted, match="The people of session"):
                linked(deployment, fewer=fewer)


def test_pools_of_two_sessions_are_of_the_same_records(tmp_path):
    plan = split_rows(people(90), CLEAR, ("north", "south", "registry"), ONE_TABLE, seed=5)
    deployment = Deployment(tmp_path / "deployment", plan)
    second = with_second_session(deployment)
    deployment.start()
    try:
        parties = deployment.spec.parties
        begin(deployment, os.urandom(16))
        MaskedSum(parties, Speaking(deployment, "pooling"), CLEAR).totals([mq.Query(by="A")])
        file = deployment.files["north"].parent / "records.parquet"
        pd.read_parquet(file).iloc[:-1].to_parquet(file, index=False)
        for party in parties:
            offer = say.Begin(spec=second, epoch=bytes(16).hex())
            deployment.say(MINER, party, "begin", say.encode(offer), session="second")
        with pytest.raises(RoundAborted, match="The people are not the same as in session 'example'"):
            MaskedSum(parties, Saying(deployment, "pooling", "second"), CLEAR).totals([mq.Query(by="A")])
    finally:
        deployment.stop()


def test_people_whom_not_all_have_stay_out_of_what_a_miner_gets(tmp_path):
    plan = split_columns(people(HELD), TABLE_1, OWNERS, "vertical-with-miner", ONE_TABLE, seed=2, missing=0.4)
    with deployed(tmp_path, plan) as deployment:
        assert len(joined(plan)) < 60
        with pytest.raises(RoundAborted, match="did not sign that the same records take part"):
            linked(deployment, everything=True)
        epoch, _, settled = linked(deployment, everything=True, arrange=False)
        assert settled.records > len(joined(plan))
        with pytest.raises(RoundAborted, match="not arranged here"):
            deployment.say(MINER, "north", "cells", CellRequest(epoch, MINER, (), 0, 1).encode())
        assert not [item for item in deployment.ledger("north") if item.policy]


def test_with_an_order_tables_of_other_variables_are_refused(tmp_path):
    goal = LearningGoal(model="network", order=("A", "T"))
    assert goal.allows(("A", "T"))
    assert not goal.allows(("X",))
    plan = split_rows(people(90), CLEAR, ("north", "south", "registry"), goal, seed=5)
    with deployed(tmp_path, plan) as deployment:
        begin(deployment, os.urandom(16))
        adding = MaskedSum(deployment.spec.parties, Speaking(deployment, "pooling"), CLEAR)
        with pytest.raises(RoundAborted, match="model does not need this"):
            adding.totals([mq.Query(by=("X", "C"))])


def test_after_a_restore_a_session_keeps_its_text(tmp_path):
    plan = split_rows(people(90), CLEAR, ("north", "south", "registry"), ONE_TABLE, seed=5)
    with deployed(tmp_path, plan) as deployment:
        begin(deployment, os.urandom(16))
        MaskedSum(deployment.spec.parties, Speaking(deployment, "pooling"), CLEAR).totals([mq.Query(by="A")])
        deployment.stop("north")
        shutil.rmtree(deployment.settings("north").state / "once")
        other = deployment.spec.model_copy(
            update={"learn": LearningGoal(model="tables", tables=(("A", "T", "E"),))}
        )
        deployment.consent_to(other)  # its operator has changed the file
        deployment.start("north")
        offer = say.encode(say.Begin(spec=other, epoch=os.urandom(16).hex()))
        with pytest.raises(QueryRefused, match="data was released under a different text"):
            deployment.say(MINER, "north", "begin", offer, session=SESSION)
