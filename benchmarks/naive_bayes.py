"""Naive Bayes from a million disguised records of ten columns, standard errors included.

Against scikit-learn's CategoricalNB.fit on the clear codes of the same records (no errors), in the layouts
and types of matrix that might suit it best; then predictions for clear rows, and how the time grows.

    python -m benchmarks.naive_bayes [--json FILE]
"""

import numpy as np
from benchmarks.timing import best_of, json_option, keep, rows, show
from sklearn.naive_bayes import CategoricalNB

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.classifiers.bayes import naive_bayes
from masquerade.sources.records import Records

RECORDS = 1_000_000
GROWTH = (250_000, 500_000, 1_000_000, 2_000_000)
SIZES = (2, 3, 4, 5, 2, 3, 4, 5, 6, 3)
NAMES = tuple(f"x{i}" for i in range(len(SIZES)))
SCHEMA = mq.Schema(
    {"y": [0, 1, 2], **{name: list(range(size)) for name, size in zip(NAMES, SIZES, strict=True)}}
)
POLICY = mq.Policy.build(SCHEMA, {name: mq.channels.symmetric(len(SCHEMA[name]), "0.3") for name in SCHEMA})


def population(n, generator):
    """Return clear codes in which every feature leans on the class."""
    y = generator.integers(0, 3, n)
    codes = {"y": y.astype(np.uint8)}
    for name, size in zip(NAMES, SIZES, strict=True):
        shares = generator.dirichlet(np.ones(size), 3).cumsum(axis=1)[y, :-1]
        codes[name] = (generator.random(n)[:, None] >= shares).sum(axis=1).astype(np.uint8)
    return codes


def learning(clear, disguised):
    """Time learning; ours starts from codes it has never tabulated."""
    y = clear["y"]
    matrix = np.column_stack([clear[name] for name in NAMES])
    wide, columns = matrix.astype(np.int64), np.asfortranarray(matrix.astype(np.int64))

    def ours():
        return naive_bayes(Records(disguised, POLICY), "y")

    def ours_clear():
        return naive_bayes(Records(clear, POLICY.without_channels()), "y")

    theirs = CategoricalNB(alpha=1).fit(matrix, y)
    for table, logs in zip(ours_clear().probabilities, theirs.feature_log_prob_, strict=True):
        np.testing.assert_allclose(np.log(table), logs, atol=1e-9)
    found = ours()
    for table, logs, errors in zip(found.probabilities, theirs.feature_log_prob_, found.stderrs, strict=True):
        assert np.all(np.abs(table - np.exp(logs)) < 6 * errors)
    contenders = [
        ("masquerade", ours),
        ("masquerade, clear records", ours_clear),
        ("CategoricalNB, clear codes, uint8", lambda: CategoricalNB(alpha=1).fit(matrix, y)),
        ("CategoricalNB, clear codes, int64", lambda: CategoricalNB(alpha=1).fit(wide, y)),
        ("CategoricalNB, clear codes, int64 by column", lambda: CategoricalNB(alpha=1).fit(columns, y)),
    ]
    return rows(best_of(contenders, 5))


def predicting(clear):
    """Time class probabilities of clear rows: ours reads labels, theirs codes."""
    model = naive_bayes(Records(clear, POLICY.without_channels()), "y")
    matrix = np.column_stack([clear[name] for name in NAMES]).astype(np.int64)
    theirs = CategoricalNB(alpha=1).fit(matrix, clear["y"])
    labels = {name: matrix[:, i] for i, name in enumerate(NAMES)}
    np.testing.assert_allclose(model.predict_proba(labels), theirs.predict_proba(matrix), atol=1e-9)
    contenders = [
        ("masquerade", lambda: model.predict_proba(labels)),
        ("CategoricalNB", lambda: theirs.predict_proba(matrix)),
    ]
    return rows(best_of(contenders, 5))


def growing():
    """Time a quarter of a million records and three doublings; ratios are to the smallest."""
    most = simulate_codes(population(GROWTH[-1], np.random.default_rng(3)), POLICY, 4)
    parts = {n: {name: column[:n].copy() for name, column in most.items()} for n in GROWTH}
    contenders = [
        (f"{n:,} records", lambda part=part: naive_bayes(Records(part, POLICY), "y"))
        for n, part in parts.items()
    ]
    return rows(best_of(contenders, 30), ours=contenders[0][0])


def main():
    target = json_option(__doc__)
    clear = population(RECORDS, np.random.default_rng(1))
    disguised = simulate_codes(clear, POLICY, 2)
    results = {
        "learning": learning(clear, disguised),
        "predicting": predicting(clear),
        "growing": growing(),
    }
    show(f"naive Bayes, {RECORDS:,} records × {len(NAMES)} columns", results["learning"])
    show(f"\nclass probabilities of {RECORDS:,} clear rows", results["predicting"])
    show("\nlearning from more records", results["growing"])
    keep(target, results)


if __name__ == "__main__":
    main()
