"""Variables that the reports cannot distinguish are named, and independent rare ones never are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.learn.networks.copies import FALSE_ALARMS, is_copy
from masquerade.learn.networks.graph import differences

N = 20_000


def frame_of(seed=1):
    random = np.random.default_rng(seed)
    a = random.integers(0, 3, N)
    h = random.integers(0, 2, N)
    return pd.DataFrame(
        {
            "a": a,
            "b": (a + random.integers(0, 2, N)) % 3,
            "c": (a + 1) % 3,  # a copy of a whose categories have other names
            "h": h,
            "near": np.where(random.random(N) < 0.9, h, 1 - h),  # agrees in nine of ten
            "u": (random.random(N) < 0.01).astype(int),
            "v": (random.random(N) < 0.01).astype(int),
        }
    )


def source_of(frame, p):
    categories = {name: sorted(frame[name].unique().tolist()) for name in frame}
    if p == "0":
        return mq.tally(frame)
    masks = mq.Policy.build(
        categories, {name: mq.channels.symmetric(len(own), p) for name, own in categories.items()}
    )
    return mq.tally(mq.simulate(frame, masks, seed=5), masks)


@pytest.mark.parametrize("p", ["0", "0.1"])
def test_structures_name_copies_and_save_them(p):
    found = mq.learn.structure(source_of(frame_of(), p))
    assert found.copies == (("a", "c"),)
    assert "cannot distinguish a = c" in found.summary()
    assert mq.learn.LearnedStructure.from_dict(found.to_dict()).copies == found.copies
    damaged = {**found.to_dict(), "copies": [["a", "nobody"]]}
    with pytest.raises(mq.MasqueradeError, match="copies"):
        mq.learn.LearnedStructure.from_dict(damaged)


def test_independent_rare_variables_are_no_copies():
    """100 sources: each names a pair with a chance of 0.001 at most, and 100 · 10 pairs none below 1e-6."""
    random = np.random.default_rng(11)
    names = list("stuvw")
    masks = mq.Policy.build(
        {name: [0, 1] for name in names}, dict.fromkeys(names, mq.channels.symmetric(2, "0.1"))
    )
    for run in range(100):
        frame = pd.DataFrame({name: (random.random(2_000) < 0.02).astype(int) for name in names})
        source = mq.tally(mq.simulate(frame, masks, seed=run), masks)
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                table = source.answer([mq.Query(by=(one, other))])[0]
                assert not is_copy(table, FALSE_ALARMS)


def test_clear_records_with_one_difference_are_distinguished():
    frame = frame_of()
    frame.loc[0, "c"] = frame.loc[0, "a"]
    assert mq.learn.structure(mq.tally(frame)).copies == ()


def test_links_up_to_copies_do_not_depend_on_the_names_of_copies():
    truth = {"x": (), "y": ("x",), "z": ("x",), "w": ("y",)}
    learned = {"x": (), "y": ("x",), "z": ("y",), "w": ("x",)}  # z and w hang on the other copy
    assert differences(learned, truth) == (2, 2)
    assert differences(learned, truth, [("x", "y")]) == (0, 0)
    swapped = {"x": "y", "y": "x", "z": "z", "w": "w"}
    renamed = {swapped[name]: tuple(swapped[one] for one in parents) for name, parents in learned.items()}
    assert differences(renamed, truth, [("x", "y")]) == differences(learned, truth, [("x", "y")])
