"""Many people at one survey: in fresh browser contexts, and through the page's own code inside one.

    python -m tests.survey.respondents [--people 200] [--inside 10000]

writes benchmarks/results/survey_respondents.json: what left their browsers, what stayed, what was stored, how
much of the truth is in it, and what is estimated from it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.statistical.checks import normal_bound
from tests.survey.browser import PHONE, Visit, running
from tests.survey.world import collecting

import masquerade as mq
from masquerade.survey.collector.export import table_of

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "survey_respondents.json"
LABELS = {
    "pills": {"yes": "marked-affirmative", "no": "marked-negative"},
    "nights": {"none": "marked-none", "some": "marked-some", "many": "marked-many"},
}
POLICY = {
    "masquerade": 1,
    "variables": {
        "pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
        "nights": {"categories": ["none", "some", "many"], "channel": {"kind": "symmetric", "p": 0.3}},
    },
}
SURVEY: dict[str, Any] = {
    "questions": [{"variable": name, "text": name, "answers": own} for name, own in LABELS.items()],
    "languages": ["en"],
    "title": "T",
    "contact": "C",
    "consent": "D",
}
TRUTHS = [(0, 0), (0, 2), (1, 1), (1, 0), (0, 0)]  # the two hang together, as answers do
INSIDE = """async ([truths, from, to]) => {
  for (let i = from; i < to; i++) {
    const [pills, nights] = truths[i % truths.length];
    const { what } = await masquerade.deliver({pills, nights}, masquerade.freshWords);
    if (what !== true) throw new Error(String(what));
  } }"""


def study(browser: Any, folder: Path, people: int, inside: int) -> dict[str, Any]:
    """Let so many people answer in contexts of their own, and so many inside one; return what was found."""
    logged = io.StringIO()
    with (
        contextlib.redirect_stderr(logged),
        contextlib.redirect_stdout(logged),
        collecting(folder, policy=POLICY, **SURVEY) as (collector, url, _),
    ):
        bodies, seen, stayed = [], [], set()
        for i in range(people):
            context = browser.new_context(**PHONE)
            one = Visit(context, url + "/").begin()
            for own, code in zip(LABELS.values(), TRUTHS[i % len(TRUTHS)], strict=True):
                one.answer(list(own.values())[code])
            assert one.sees("Your answers").kept() == {"blocks": "{}"}  # no answer is kept before it is sent
            one.send().sees("Sent")
            stayed |= set(one.kept().items())
            _leave(one, bodies, seen)
        if inside:
            one = Visit(browser.new_context(**PHONE), url + "/").sees("T")
            for begin in range(0, inside, 500):
                one.page.evaluate(INSIDE, [TRUTHS, begin, min(begin + 500, inside)])
            stayed |= set(one.kept().items())
            _leave(one, bodies, seen)
        policy = collector.survey.policy
        rows = sorted(codes for *_, codes in collector.store.reports())
        table = table_of(collector.store.count_reports()[policy.id], policy)
    database = b"".join(path.read_bytes() for path in (folder / "collected").rglob("*") if path.is_file())
    sent = [json.loads(body) for body in bodies]
    truth = [TRUTHS[i % len(TRUTHS)] for n in (people, inside) for i in range(n)]
    assert rows == sorted(tuple(one["reports"]) for one in sent)  # what was sent is what was stored
    texts = [*bodies, *seen, *map(str, stayed), logged.getvalue(), database.decode("latin-1")]
    tally = mq.tally(table, policy)
    answers = tally.answer([mq.Query(by=(name,)) for name in LABELS])
    scores = [
        (found.values - np.bincount([t[j] for t in truth], minlength=len(own)))
        / found.stderr("given_records")
        for j, (own, found) in enumerate(zip(LABELS.values(), answers, strict=True))
    ]
    return {
        "people_in_fresh_contexts": people,
        "people_inside_one_page": inside,
        "requests_with_a_body": len(bodies),
        "lengths_of_bodies": sorted({len(body) for body in bodies}),
        "keys_of_bodies": sorted({" ".join(sorted(one)) for one in sent}),
        "other_values_of_bodies": sorted({json.dumps([one["policy"] == policy.id, one["mode"], one["token"]])
                                          for one in sent}),
        "different_ids": len({one["id"] for one in sent}),
        "kept_on_devices": sorted(stayed),
        "texts_searched": len(texts),
        "texts_with_an_answer": sum("marked-" in text for text in texts),
        "largest_score_of_estimates": float(max(np.abs(score).max() for score in scores)),
        "bound_of_scores": normal_bound(sum(map(len, LABELS.values()))),
        "mutual_information": information(truth, [tuple(one["reports"]) for one in sent], policy),
    }  # fmt: skip


def _leave(one: Visit, bodies: list[str], seen: list[str]) -> None:
    """Note what a visit sent, whatever it was and whereto, and where else it might have left something."""
    bodies += [body for body in one.posted() if body is not None]
    seen += [f"{request.url} {request.headers}" for request in one.requests]
    where = "location.href, document.cookie, history.state, {...localStorage}, {...sessionStorage}"
    seen.append(one.page.evaluate(f"JSON.stringify([{where}])"))
    assert not one.problems, one.problems
    one.context.close()


def information(truth: list[Any], reports: list[Any], policy: mq.Policy) -> dict[str, float]:
    """Return nats of the truth in the reports: as found, and as the channels have it for these truths.

    Formula: I = Σ p(t, r) log p(r|t)/p(r). What is found from n pairs is too large by (T − 1)(R − 1)/2n
    (Miller, 1955), which is taken off, and has the standard error √(Var(log p(r|t)/p(r))/n).
    """
    n = len(truth)
    cells = {cell: i for i, cell in enumerate(sorted(set(truth)))}
    first, second = (policy.group(name).channel.matrix for name in LABELS)
    rows = np.array([np.outer(first[t], second[u]).ravel() for t, u in cells])
    weights = np.bincount([cells[t] for t in truth]) / n
    counts: NDArray[np.float64] = np.zeros(rows.shape)
    np.add.at(counts, ([cells[t] for t in truth], [r * second.shape[1] + q for r, q in reports]), 1)
    gains = np.log(rows / (weights @ rows))
    expected = float((weights[:, None] * rows * gains).sum())
    spread = float((weights[:, None] * rows * (gains - expected) ** 2).sum())
    share = counts / n
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.log(share / (share.sum(axis=1, keepdims=True) * share.sum(axis=0)))
    bias = (rows.shape[0] - 1) * (rows.shape[1] - 1) / (2 * n)
    return {
        "found": float(np.where(share > 0, share * np.nan_to_num(own), 0).sum()) - bias,
        "of_the_channels": expected,
        "stderr": float(np.sqrt(spread / n)),
    }


def judge(found: dict[str, Any]) -> None:
    """Assert what must hold for so many respondents, with false alarms of 1e-6 at most."""
    number = found["people_in_fresh_contexts"] + found["people_inside_one_page"]
    assert found["requests_with_a_body"] == found["different_ids"] == number
    assert len(found["lengths_of_bodies"]) == 1
    assert found["keys_of_bodies"] == ["id mode policy reports token"]
    assert found["other_values_of_bodies"] == [
        "[true, 0, null]"
    ]  # the same for everybody, whatever the truth
    assert [list(one) for one in found["kept_on_devices"]] == [["mark", "true"]]
    assert found["texts_with_an_answer"] == 0
    assert found["texts_searched"] > 2 * number
    assert found["largest_score_of_estimates"] <= found["bound_of_scores"]
    told = found["mutual_information"]
    assert abs(told["found"] - told["of_the_channels"]) <= normal_bound(1) * told["stderr"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--inside", type=int, default=10_000)
    options = parser.parse_args()
    with running() as (_, browser), tempfile.TemporaryDirectory() as place:
        found = study(browser, Path(place) / "work", options.people, options.inside)
    judge(found)
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
