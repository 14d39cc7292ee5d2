"""The table of protocols in docs/guarantee.md, from the guarantees that the protocols themselves compute.

`python -m tests.services.parties.guarantees` writes it.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from tests.pages import Written

import masquerade as mq
from masquerade.core.guarantee import Guarantee
from masquerade.core.util.formatting import gamma_text
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.frequency_mining.vote_noise import VoteNoise
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms, partition_guarantee
from masquerade.protocols.k_anonymity.threshold.row_schema import (
    Form,
    faithful_guarantee,
    production_guarantee,
)
from masquerade.protocols.linkage.psi import Joiner, keyed_guarantee
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.opened_records import mix_guarantee
from masquerade.protocols.mpc.guarantee import clusters_guarantee, structure_guarantee, tree_guarantee
from masquerade.protocols.mpc.k_means import Lloyd
from masquerade.protocols.mpc.private_queries import OverlapRules, control_guarantee
from masquerade.protocols.mpc.structure import Search
from masquerade.protocols.mpc.tree import Growth
from masquerade.protocols.noise_shares import NoiseShares
from masquerade.protocols.secure_aggregation.agreement import Parameters, SumNoise
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables, seen_by
from masquerade.protocols.vertical.paillier_products import KeyOwner, PaillierProducts
from masquerade.protocols.vertical.scalar_products import HelpedProducts, ProductHelper, ProductParty
from masquerade.protocols.wire.session import LocalTransport
from masquerade.services.parties.kinds.any_cells_without_miner import RESULTS
from masquerade.services.parties.kinds.without_miner import seen_without_miner
from masquerade.services.parties.session import JointSchema
from masquerade.simulation.aggregation import Aggregation as Aggregating
from masquerade.sources.parties.pooled import NoisyPool, pooling_party

ON_PAGE = Written(
    Path(__file__).parents[3] / "docs" / "guarantee.md",
    "<!-- protocols: written by python -m tests.services.parties.guarantees -->",
    "<!-- end of protocols -->",
)
HEAD = "| protocol | who learns what | assuming | holds against | what breaks it |"
WIDTH = 118

YES_NO = ["yes", "no"]
POLICY = mq.Policy.build({"smoker": YES_NO, "ill": YES_NO}, {"smoker": mq.channels.binary("1/4")})
SCHEMA, NAMES = POLICY.schema, tuple(POLICY.schema)
CLEAR = mq.Policy.clear(SCHEMA)
THREE = ("north", "south", "registry")
OWNERS = {"north": ("smoker",), "south": ("ill",)}
CODES = {name: np.array([0, 1, 1, 0], dtype=np.uint8) for name in NAMES}
PEOPLE = 20


class Case(NamedTuple):
    """A protocol, what it guarantees, and what it takes to break that, beside excluded coalitions."""

    name: str
    guarantee: Guarantee
    breaks: str


def identities(*names):
    """Return fresh keys, and their public parts."""
    keys = {name: SigningKey() for name in names}
    return keys, {name: key.public for name, key in keys.items()}


def among_organisations() -> list[Case]:
    """Return the protocols between organisations."""
    nobody = LocalTransport({})
    by_name = {party: restrict_to_variables(POLICY, names) for party, names in OWNERS.items()}
    return [
        Case(
            "pooled counts",
            pooled(),
            "a second session with one party more or fewer; a party that counts falsely, for the result",
        ),
        Case(
            "pooled counts with noise that nobody knows, 45 tables",
            pooled_with_noise(),
            "a second party that reveals or omits its noise: ε = 1.45; a person at two "
            "parties has two records; noise drawn twice; totals of a party are not protected",
        ),
        Case(
            "columns with a miner (Model II), any cells with a miner",
            seen_by("miner", POLICY),
            "a second draw: γ²; a miner who keeps pseudonyms and a party know whose row it is (γ holds)",
        ),
        Case(
            "columns without a miner (Model I)",
            seen_without_miner(JointSchema(by_name), {("north", "south"): ("smoker",)}, "convener"),
            "a second draw: γ²; own nodes are learnt from clear own columns, and all parties receive their "
            "parameters",
        ),
        Case(
            "any cells without a miner",
            seen_without_miner(
                JointSchema(dict.fromkeys(OWNERS, POLICY)),
                {("north", "south"): ("smoker",)},
                "convener",
                RESULTS,
            ),
            "a second draw: γ²; many narrow tables: own cells are counted as they are",
        ),
        Case(
            "scalar products with a helper",
            helped(),
            "many narrow tables: counts are exact, and of one person if a table isolates one",
        ),
        Case(
            "a structure on shares with a helper, counts hidden",
            on_shares(),
            "a second session with other people, or few more: structures differ by what is true of them",
        ),
        Case(
            "counts from two servers that do not learn the question",
            control_guarantee("client", ("first", "second"), "helper", NAMES, OverlapRules(20, 5)),
            "a second name of the client; three answers that add and subtract to a small set",
        ),
        Case(
            "clusters on shares with a helper, each step open",
            clusters_on_shares(hide_steps=False),
            "a second session with other people, or few more; two steps that differ by one who moved",
        ),
        Case(
            "clusters on shares with a helper, opened at the end",
            clusters_on_shares(hide_steps=True),
            "a second session with other people, or few more: centres differ by what is true of them",
        ),
        Case(
            "a decision tree on shares with a helper, counts hidden",
            tree_guarantee(
                tuple(OWNERS),
                {name: len(SCHEMA[name]) for name in SCHEMA},
                Growth.of("ill", ["smoker"]),
                helper="helper",
                convener="convener",
            ),
            "a second session with other people, or few more: trees differ by what is true of them",
        ),
        Case(
            "scalar products of two (Paillier)",
            paillier(),
            "an evaluator who weighs rows by powers of two, unnoticed; many narrow tables",
        ),
        Case(
            "projection",
            mq.projection_tally(frame(), OWNERS, schema=SCHEMA, receiver="receiver").guarantee,
            "an owner who tells the receiver the rotation, which undoes it; many narrow tables",
        ),
        Case(
            "linking by intersection",
            Joiner(THREE, nobody, peers=dict.fromkeys(THREE, bytes(32))).guarantee(),
            "a party that inserts guessed keys learns whether all others have them",
        ),
        Case(
            "linking by a shared secret",
            keyed_guarantee(THREE, "miner"),
            "the secret in a miner's hands, who then tries keys",
        ),
    ]


def among_people() -> list[Case]:
    """Return the protocols of people who each hold one record."""
    _, public = identities(*(f"p{i}" for i in range(PEOPLE)))
    _, others = identities("miner", "holder 1", "holder 2", "server")
    leaders = {name: others[name] for name in ("holder 1", "holder 2")}
    terms = FrequencyTerms("spring", CLEAR, public, 5)
    redrawn = FrequencyTerms("spring", CLEAR, public, 17, noise=VoteNoise(3, 2, colluders=2))
    parameters = Parameters.of(PEOPLE, minimum=5, server="malicious", dropouts="0.15")
    population = Aggregating({name: np.zeros(PEOPLE, dtype=np.uint8) for name in NAMES}, CLEAR, parameters)
    promise = Parameters.of(PEOPLE, dropouts="0.15", noise=SumNoise(epsilon=1, tables=10))
    noisy = Aggregating({name: np.zeros(PEOPLE, dtype=np.uint8) for name in NAMES}, CLEAR, promise)
    form = Form(SCHEMA, ("smoker",), ("ill",))
    partition = PartitionTerms(
        "spring", 3, NAMES, others["miner"], bytes(32), leaders, others["server"], public
    )
    narrow = "counts of clear values that isolate a person (disguise first: then γ holds whatever is asked)"
    return [
        Case(
            "frequency mining, as in the paper",
            frequency_guarantee(terms, PEOPLE, shared_checks=False),
            narrow,
        ),
        Case(
            "frequency mining in production (secure aggregation)",
            aggregation_guarantee(population.terms),
            f"more colluders or dropouts than agreed; a user who votes falsely shifts any count; {narrow}",
        ),
        Case(
            "secure aggregation with noise that nobody knows, 10 tables",
            aggregation_guarantee(noisy.terms),
            "more colluders or dropouts than agreed; people enrolled by the miner itself; noise drawn twice; "
            "a user who votes falsely shifts any count",
        ),
        Case(
            "frequency mining with redrawn votes, 2 tables",
            frequency_guarantee(redrawn, PEOPLE, shared_checks=False),
            "people enrolled by the miner itself; a table drawn twice because the ledgers of a whole roster "
            "were restored",
        ),
        Case(
            "anonymous collection (mix)",
            mix_guarantee(
                MixTerms("spring", others["miner"], leaders, public, width=1, minimum=5), POLICY, PEOPLE
            ),
            "a record that names its sender; all other senders colluding",
        ),
        Case(
            "k-anonymity with a threshold, in production",
            production_guarantee(form.terms("spring", 3), form),
            "a network that shows the collector who sends; a class all of whom share the sensitive value",
        ),
        Case(
            "k-anonymity with a threshold, as in the talk",
            faithful_guarantee(3, ("smoker",), ("ill",)),
            "every colluding user lowers k by two for everybody",
        ),
        Case(
            "k-anonymity by partition",
            partition_guarantee(partition),
            "made-up rows: two of them test anybody's value",
        ),
    ]


def frame():
    """Return a few clear records."""
    return pd.DataFrame({name: [YES_NO[code] for code in CODES[name]] for name in NAMES})


def pooled() -> Guarantee:
    """Return the guarantee of counts pooled by three parties."""
    source = mq.tally(frame(), schema=SCHEMA)
    keys, public = identities(*THREE)
    parties = {name: pooling_party(name, source, keys[name], public) for name in THREE}
    carried = LocalTransport({name: party.receive for name, party in parties.items()})
    return MaskedSum(THREE, carried, CLEAR).guarantee(NAMES)


def pooled_with_noise() -> Guarantee:
    """Return the guarantee of a pool of three whose sums carry noise; one may collude."""
    keys, public = identities(*THREE)
    terms = mq.NoiseTerms(1, 45, contributors=3, colluders=1)
    parties = {
        name: pooling_party(
            name,
            mq.tally(frame(), schema=SCHEMA),
            key,
            public,
            noise=NoiseShares(terms, mq.people.MemoryLedger(), bytes(32)),
        )
        for name, key in keys.items()
    }
    carried = LocalTransport({name: party.receive for name, party in parties.items()})
    return NoisyPool(MaskedSum(THREE, carried, CLEAR, noise=terms), CLEAR).guarantee


def helped() -> Guarantee:
    """Return the guarantee of products with a helper."""
    keys, public = identities(*OWNERS, "helper")
    shared = {"schema": SCHEMA, "owners": OWNERS}
    roles = {
        name: ProductParty(
            name, {own: CODES[own] for own in names}, keys[name], public, helper="helper", **shared
        )
        for name, names in OWNERS.items()
    }
    roles["helper"] = ProductHelper("helper", keys["helper"], public, n=4, **shared)
    carried = LocalTransport({name: role.receive for name, role in roles.items()})
    return HelpedProducts(OWNERS, "helper", carried, SCHEMA, 4).guarantee()


def on_shares() -> Guarantee:
    """Return the guarantee of a structure that is found on shares."""
    search = Search.in_order(NAMES, 1)
    return structure_guarantee(tuple(OWNERS), NAMES, search, helper="helper", convener="convener")


def clusters_on_shares(*, hide_steps: bool) -> Guarantee:
    """Return the guarantee of clusters that are found on shares."""
    plan = Lloyd(1000, 3, (9, 9), None, least=10, steps=30, hide_steps=hide_steps)
    return clusters_guarantee(tuple(OWNERS), NAMES, plan, helper="helper", convener="convener")


def paillier() -> Guarantee:
    """Return the guarantee of products of two."""
    shared = {"schema": SCHEMA, "owners": OWNERS}
    owner = KeyOwner("south", {"ill": CODES["ill"]}, **shared)
    carried = LocalTransport({"south": owner.receive})
    return PaillierProducts("north", {"smoker": CODES["smoker"]}, carried, **shared).guarantee()


def learnt(guarantee: Guarantee) -> str:
    """Return who learns what, with its bound."""
    alike = groupby(
        guarantee.disclosures,
        lambda item: (
            item.kind,
            item.variables,
            "no bound" if item.gamma is None else f"γ = {gamma_text(item.gamma)}",
            item.bound if item.noise_epsilon is not None else None,
        ),
    )
    return "; ".join(
        f"{listed([item.role for item in items])}: {kind.rstrip(',')} ({', '.join(variables)}), "
        + (noise or bound)
        for (kind, variables, bound, noise), items in alike
    )


def listed(names: list[str], word: str = "and") -> str:
    """Return names in a sentence."""
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def against(guarantee: Guarantee) -> str:
    """Return whom it holds against, and how many of them."""
    kinds = {
        kind: [role for role, given in guarantee.adversaries.items() if given == kind]
        for kind in ("malicious", "semi-honest")
    }
    parts = [f"{kind} {', '.join(roles)}" for kind, roles in kinds.items() if roles]
    if guarantee.colluders is not None:
        parts.append(f"up to {guarantee.colluders} colluding" if guarantee.colluders else "nobody colluding")
    if guarantee.dropouts:
        parts.append(f"up to {guarantee.dropouts} dropping out")
    false = {"none": "unnoticed", "detects": "noticed", "identifies": "noticed and named"}
    return "; ".join([*parts, f"cheating is {false[guarantee.integrity]}"])


def broken(case: Case) -> str:
    """Return the assumptions: excluded coalitions, and others."""
    grouped = groupby(case.guarantee.excluded_coalitions, lambda names: names[:-1])
    coalitions = [
        f"{' with '.join(first)} with {listed([names[-1] for names in some], 'or')}"
        if first
        else " or ".join(names[-1] for names in some) + " together"
        for first, some in grouped
    ]
    return "; ".join([*coalitions, case.breaks])


def generated() -> str:
    """Return both tables and the assumptions that they number."""
    numbers: dict[str, int] = {}
    parts = []
    for title, cases in (
        ("### Between organisations", among_organisations()),
        ("### Among people who each hold one record", among_people()),
    ):
        lines = [HEAD, "|---|---|---|---|---|"]
        for case in cases:
            assumed = [numbers.setdefault(text, len(numbers) + 1) for text in case.guarantee.assumptions]
            cells = (
                case.name,
                learnt(case.guarantee),
                ", ".join(map(str, assumed)),
                against(case.guarantee),
                broken(case),
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join([title, "", *lines]))
    listed = [
        "\n".join(textwrap.wrap(f"{number}. {text}", WIDTH, subsequent_indent=" " * (len(str(number)) + 2)))
        for text, number in numbers.items()
    ]
    return "\n\n".join([*parts, "The assumptions:", "\n".join(listed)])


if __name__ == "__main__":
    ON_PAGE.write(generated())
