"""Compile the kernels that many tests need once, before several processes would do so at the same time.

`make test` runs it while the code is checked. What is not compiled here is compiled where it is first called.
"""

from __future__ import annotations

import doctest
import tempfile
from contextlib import chdir

import pyarrow as pa

import masquerade as mq
from masquerade.crypto import sodium_rows
from masquerade.crypto.batch_mac import Texts
from tests.e2e.test_docstrings import examples_of

EXAMPLES = (
    "masquerade.anonymity.anonymize",
    "masquerade.anonymity.mgas",
    "masquerade.learn.rules.association_rules",
    "masquerade.learn.networks.structure_search",
    "masquerade.protocols.linkage.pseudonyms",
    "masquerade.protocols.k_anonymity.threshold.roles",
)


def compile_kernels() -> None:
    """Run examples of docstrings, whatever they show; disguise records, learn from them; link some keys."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name in EXAMPLES:
            for example in examples_of(name):
                doctest.DocTestRunner(verbose=False).run(example, out=lambda _: None)
    network = mq.data.network("asia")
    policy = mq.Policy.build(
        {name: list(network.schema[name].categories) for name in network.structure},
        {name: mq.channels.for_gamma(2, 5) for name in network.structure},
    )
    reports = mq.disguise(pa.Table.from_pandas(network.sample(500, seed=1)), policy)
    mq.learn.structure(mq.tally(reports, policy), order=list(network.structure), max_parents=2)
    mq.learn.association_rules(mq.tally(reports, policy), 0.3, 0.5)
    keys = Texts.of([b"P000001", b"P000002"])
    points = sodium_rows.hashed_points(b"prepared", keys.data, keys.offsets)
    sodium_rows.multiplied_points(points, bytes([1] * 32))


if __name__ == "__main__":
    compile_kernels()
