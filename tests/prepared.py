"""Compile the kernels that many tests need once, before several processes would do so at the same time.

`make test` runs it while the code is checked. What is not compiled here is compiled where it is first called.
"""

from __future__ import annotations

import doctest
import tempfile
from contextlib import chdir

import masquerade as mq
from tests.e2e.test_docstrings import examples_of

EXAMPLES = (
    "masquerade.anonymity.anonymize",
    "masquerade.anonymity.mgas",
    "masquerade.learn.rules",
    "masquerade.learn.structure_search",
    "masquerade.protocols.pseudonyms",
    "masquerade.protocols.threshold.roles",
)


def compile_kernels() -> None:
    """Run examples of docstrings, whatever they show, and find a structure in disguised records."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name in EXAMPLES:
            for example in examples_of(name):
                doctest.DocTestRunner(verbose=False).run(example, out=lambda _: None)
    network = mq.data.network("asia")
    policy = mq.Policy.build(
        {name: list(network.schema[name].categories) for name in network.structure},
        {name: mq.channels.for_gamma(2, 5) for name in network.structure},
    )
    records = mq.simulate(network.sample(500, seed=1), policy, seed=2)
    mq.learn.structure(mq.tally(records, policy), order=list(network.structure), max_parents=2)


if __name__ == "__main__":
    compile_kernels()
