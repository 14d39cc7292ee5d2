"""What several counts give away together: rosters that overlap, and colluders in them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from masquerade.protocols.people.history import against_difference


@pytest.mark.parametrize(("before", "least"), [(12, 11), (13, 11), (20, 15), (21, 15), (22, 16), (40, 25)])
def test_the_smallest_later_roster_has_more_than_half_and_half_of_the_colluders(before, least):
    everybody = frozenset(range(before))

    def code(stay):
        found = against_difference(frozenset(range(stay)), everybody, 10)
        return found and found.code

    assert {code(stay) for stay in range(max(least, before - 9), before)} <= {"departed_too_few"}
    assert {code(stay) for stay in range(least, before - 9)} <= {None}
    assert {code(stay) for stay in range(min(least, before - 9))} == {"departed_too_many"}
    assert all(2 * stay > before + 8 for stay in range(least, before))
    assert not any(2 * stay > before + 8 for stay in range(least))


def alone(rosters, honest):
    """Return honest users whose record is a combination of the sums over these rosters and colluders' own."""
    users = sorted(honest)
    sums = np.array([[user in roster for user in users] for roster in rosters], dtype=float)
    rank = np.linalg.matrix_rank(sums)
    return [
        user
        for user in users
        if np.linalg.matrix_rank(np.vstack([sums, [user == other for other in users]])) == rank
    ]


def played(seed, size, minimum, refuses):
    """Return the rosters that honest users let through, of those that a miner might try, and who they are."""
    rng = Random(seed)  # noqa: S311  (a miner to play against)
    everybody = list(range(size))
    honest = frozenset(everybody[minimum - 2 :])
    let: list[frozenset[int]] = []
    for _ in range(40):
        base = sorted(rng.choice(let)) if let and rng.random() < 0.7 else everybody
        now = frozenset(rng.sample(base, rng.randint(min(minimum, len(base)), len(base))))
        if let and rng.random() < 0.3:  # what is left of an earlier one, and the colluders
            now = (rng.choice(let) - now) | (frozenset(everybody) - honest)
        known = [before for before in let if before & now & honest]
        if len(now) >= minimum and not any(refuses(now, before, minimum) for before in known):
            let.append(now)
    return let, honest


@pytest.mark.parametrize(("size", "minimum"), [(9, 3), (14, 3), (14, 4), (20, 5), (30, 4)])
def test_no_rosters_that_users_let_through_single_anybody_out(size, minimum):
    """Every honest user knows its own rosters only, and as many collude as are tolerated."""
    several = 0
    for seed in range(150):
        let, honest = played(seed, size, minimum, against_difference)
        assert alone(let, honest) == []
        several += len(set(let)) > 1
    assert several > 20


def test_without_the_half_the_same_miner_would_single_somebody_out():
    def loose(now, before, minimum):
        found = against_difference(now, before, minimum)
        return found is not None and found.code != "departed_too_many"

    assert any(alone(*played(seed, 14, 3, loose)) for seed in range(150))


def test_two_halves_that_share_only_colluders_are_refused():
    everybody, colluding = frozenset(range(21)), frozenset({0, 1})  # as many as a minimum of 4 tolerates
    halves = [frozenset(range(11)), colluding | frozenset(range(11, 20))]
    assert all(2 * len(half) > len(everybody) for half in halves)
    assert alone([everybody, *halves], everybody - colluding) == [20]
    found = [against_difference(half, everybody, 4) for half in halves]
    assert [refused and refused.code for refused in found] == ["departed_too_many"] * 2
