"""Randomizers of whole vectors of bits: every position, every number of differing bits, real packages."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import masquerade as mq
from masquerade.audit.epsilon_bracket import choose_position, choose_set
from masquerade.audit.foreign import BITS, ForeignSampler, allowed_by_distance, bit_vectors

KEEP = math.e / (1 + math.e)
GENERATOR = np.random.default_rng()


def randomize(bits, n, *, clear=()):
    """Return reports of a vector of bits, each kept with e/(1 + e); those at `clear` always are."""
    rows = np.tile(np.array(bits, dtype=np.uint8), (n, 1))
    flips = GENERATOR.random(rows.shape) >= KEEP
    flips[:, list(clear)] = False
    return rows ^ flips


def audited(draw, size=8, *, draws=16_000):
    sampler = ForeignSampler(BITS, 2, 1.0, draw, (bit_vectors(size, nested=size <= 8),))
    return mq.audit.audit_sampler(sampler, range(2), epsilon=1.0, draws=draws)


def test_a_bit_that_is_never_randomised_hides_among_thousands_and_not_in_a_small_vector():
    # the attack, as it passed: 8,000 bits of one truth in one vector, of which the last is kept as it is
    packed = [randomize([truth] * 8000, 1, clear=[7999])[0] for truth in (0, 1)]
    assert [int(row[-1]) for row in packed] == [0, 1]
    shares = [float(row.mean()) for row in packed]
    assert shares[0] == pytest.approx(1 - KEEP, abs=0.03)  # six standard errors
    assert shares[1] == pytest.approx(KEEP, abs=0.03)
    found = audited(lambda truth, n: randomize(truth, n, clear=[7]))
    (finding,) = [one for one in found.findings if one.about == "sampler"]
    assert found.contradicted
    assert "differ in 1 position" in finding.says
    assert "Position 8 of the report" in finding.says
    assert not audited(randomize).contradicted


@pytest.mark.parametrize(("size", "position"), [(8, 0), (8, 3), (16, 8), (16, 15)])
def test_a_fault_at_any_position_is_found(size, position):
    found = audited(lambda truth, n: randomize(truth, n, clear=[position]), size, draws=32_000)
    assert any(f"Position {position + 1} of" in one.says for one in found.of("contradicted"))


def test_bits_that_leak_together_and_not_alone_are_found():
    def tied(truth, n):  # the last two are flipped together: two bits that differ are told by their sum
        rows = randomize(truth, n)
        rows[:, -1] = rows[:, -2] ^ truth[-1] ^ truth[-2]
        return rows

    # the attack: each position on its own is randomised as claimed, the sum of two is not at all
    assert tied((0,) * 8, 20_000).mean(axis=0) == pytest.approx(np.full(8, 1 - KEEP), abs=0.03)
    assert (tied((0,) * 7 + (1,), 200)[:, -2:].sum(axis=1) % 2 == 1).all()
    found = audited(tied)
    assert found.contradicted
    assert not any("on its own" in one.says for one in found.findings)


def test_inputs_differ_in_every_position_and_in_every_number_of_them():
    vectors = np.array(bit_vectors(8, nested=True))
    apart = (vectors[:, None] != vectors[None]).sum(axis=2)
    assert set(apart.ravel().tolist()) == set(range(9))
    single = [np.flatnonzero(a != b).tolist() for a in vectors for b in vectors if (a != b).sum() == 1]
    assert {position for (position,) in single} == set(range(8))
    assert allowed_by_distance(bit_vectors(2), 0.5).tolist()[0] == [0, 0.5, 0.5, 1.0]


def test_pairs_are_chosen_by_what_exceeds_their_own_limit():
    # truths 0 and 2 are told apart best, and may be; 0 and 1 exceed what they may
    counts = np.array([[900, 100], [300, 700], [50, 950]])
    allowed = np.array([[0, 0.2, 9], [0.2, 0, 9], [9, 9, 0]], dtype=float)
    assert {choose_set(counts, 0.01).first, choose_set(counts, 0.01).second} == {0, 2}
    for event in (choose_set(counts, 0.01, allowed), choose_position(counts[:, None], 0.01, allowed)):
        assert {event.first, event.second} == {0, 1}
    assert choose_position(counts[:, None], 0.01).gain == pytest.approx(choose_set(counts, 0.01).gain)


PROGRAM = """
import json, sys
import numpy as np
import opendp.prelude as dp
import masquerade as mq
dp.enable_features("contrib")
flip = 2 / (1 + np.e)
domain, distance = dp.bitvector_domain(max_weight=1 << 14), dp.discrete_distance()
packed = dp.m.make_randomized_response_bitvec(domain, distance, f=float(flip))
rows = [np.unpackbits(np.frombuffer(packed(bytes([255 * t]) * 1000), dtype=np.uint8), bitorder="little")
        for t in (0, 1) for _ in range(40)]
shares = [float(np.mean(rows[40 * t : 40 * t + 40])) for t in (0, 1)]
changed = sum(int(row[-1] != (place >= 40)) for place, row in enumerate(rows))
sampler = mq.audit.foreign_sampler("opendp:randomized_response_bitvec", 2, 1.0)
found = mq.audit.audit_sampler(sampler, range(2), epsilon=1.0, draws=16_000)
print(json.dumps([shares, changed, found.to_dict()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("version", "is_sound"), [("0.14.1", False), ("0.16.0", True)])
def test_opendp_fails_while_its_last_bit_is_clear_and_passes_afterwards(version, is_sound, tmp_path):
    place = tmp_path / "opendp"
    wanted = ["--target", str(place), f"opendp=={version}"]
    install = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "install", "-q", *wanted], capture_output=True, check=False
    )
    if install.returncode:
        pytest.skip("opendp cannot be installed here")
    paths = [str(place), str(Path(mq.__file__).parents[1])]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    shares, changed, found = json.loads(done.stdout)
    # packed, both look sound: 320,000 bits of each truth, the standard error of a share is 0.0008
    assert shares == [pytest.approx(1 - KEEP, abs=0.005), pytest.approx(KEEP, abs=0.005)]
    # of 80 last bits, each changed with 0.27: all as they were by chance in 1e-11
    assert (changed > 0) == is_sound
    assert found["contradicted"] != is_sound
    claims = [one for one in found["findings"] if one["about"] == "sampler"]
    assert [one["verdict"] == "not contradicted" for one in claims] == [is_sound, is_sound]
    if not is_sound:
        said = " ".join(one["says"] for one in claims)
        assert "Position 8 of the report" in said
        assert "Position 16 of the report" in said
