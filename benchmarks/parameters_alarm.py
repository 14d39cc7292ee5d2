"""All parameters of ALARM (37 nodes) from a million disguised records, standard errors included.

Against pyAgrum on the clear records of the same people, which has no standard errors: its fit alone, with
the learner that holds the records built beforehand; and all of it, from a frame of labels.

    python -m benchmarks.parameters_alarm [--json FILE]
"""

import gzip
import warnings
from importlib.resources import files

import numpy as np
import pandas as pd
import pyagrum as gum
from benchmarks.timing import best_of, json_option, keep, rows, show

import masquerade as mq
from masquerade.core.errors import MasqueradeWarning
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.classifiers.prediction_rows import labels_of
from masquerade.learn.networks.network_files import parse_bif
from masquerade.sources.records import Records

RECORDS = 1_000_000
GROWTH = (250_000, 500_000, 1_000_000)


def alarm():
    """Return the network that pgmpy brings along."""
    packed = files("pgmpy").joinpath("utils", "example_models", "alarm.bif.gz").read_bytes()
    return parse_bif(gzip.decompress(packed).decode())


def frame_of(codes, schema):
    """Return codes as a pandas frame of text."""
    return pd.DataFrame({name: labels_of(schema[name], column) for name, column in codes.items()})


def template_of(network):
    """Return the network as pyAgrum's, so that it knows the labels and need not look for them."""
    template = gum.BayesNet()
    for variable in network.schema.values():
        template.add(gum.LabelizedVariable(variable.name, "", [str(x) for x in variable.categories]))
    for child, parents in network.structure.items():
        for parent in parents:
            template.addArc(parent, child)
    return template


def check_equal(network, fitted):
    """Assert that pyAgrum finds the same parameters in the clear records, where there are any."""
    for table in network.tables:
        theirs = fitted.cpt(table.child.name)
        axes = [theirs.names.index(axis.name) for axis in table.axes]
        # its arrays have the first of its names last
        values = theirs.toarray().transpose([theirs.toarray().ndim - 1 - axis for axis in axes])
        known = table.has_records
        np.testing.assert_allclose(values[known], table.probabilities[known], atol=1e-9)


def learning(network, policy, clear, disguised):
    """Time learning; ours starts from records it has never counted."""
    structure, template = network.structure, template_of(network)
    frame, disguised_frame = frame_of(clear, network.schema), frame_of(disguised, network.schema)

    def fitting(learner):
        fitted = gum.BayesNet(template)
        learner.fitParameters(fitted, take_into_account_score=False)
        return fitted

    def learner_of_frame():
        learner = gum.BNLearner(frame, template)
        learner.useNoPrior()
        return learner

    def ours():
        return mq.learn.bayesian_network(Records(disguised, policy), structure)

    learner = learner_of_frame()
    check_equal(
        mq.learn.bayesian_network(Records(clear, policy.without_channels()), structure), fitting(learner)
    )
    found = ours()
    for table, true in zip(found.tables, network.tables, strict=True):
        sure = table.reliable & np.all(table.stderr > 0, axis=-1)
        assert np.all(np.abs(table.probabilities - true.probabilities)[sure] < 6 * table.stderr[sure] + 1e-6)
    contenders = [
        ("masquerade", ours),
        (
            "masquerade, clear records",
            lambda: mq.learn.bayesian_network(Records(clear, policy.without_channels()), structure),
        ),
        (
            "masquerade, from a frame of text",
            lambda: mq.learn.bayesian_network(mq.tally(disguised_frame, policy), structure),
        ),
        ("pyAgrum, clear records, fit alone", lambda: fitting(learner)),
        ("pyAgrum, clear records, from a frame of text", lambda: fitting(learner_of_frame())),
    ]
    return rows(best_of(contenders, 3))


def growing(structure, policy, disguised):
    """Time a quarter of a million records and two doublings; ratios are to the smallest."""
    parts = {n: {name: column[:n].copy() for name, column in disguised.items()} for n in GROWTH}
    contenders = [
        (f"{n:,} records", lambda part=part: mq.learn.bayesian_network(Records(part, policy), structure))
        for n, part in parts.items()
    ]
    return rows(best_of(contenders, 10), ours=contenders[0][0])


def main():
    target = json_option(__doc__)
    warnings.simplefilter("ignore", MasqueradeWarning)
    network = alarm()
    policy = mq.Policy.build(
        network.schema, {v.name: mq.channels.symmetric(len(v), "0.2") for v in network.schema.values()}
    )
    clear = network.sample_codes(RECORDS, 1)
    disguised = simulate_codes(clear, policy, 2)
    results = {
        "learning": learning(network, policy, clear, disguised),
        "growing": growing(network.structure, policy, disguised),
    }
    show(f"parameters of ALARM, {RECORDS:,} records", results["learning"])
    show("\nlearning from more records", results["growing"])
    keep(target, results)


if __name__ == "__main__":
    main()
