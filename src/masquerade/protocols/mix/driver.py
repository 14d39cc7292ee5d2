"""Drive a collection from beginning to end where all parties can be called: the order of the messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from masquerade.protocols.mix.roles import Collected, Leader, Miner


def collect(
    miner: Miner, leaders: Sequence[Leader], submissions: Callable[[bytes], Sequence[bytes]]
) -> Collected:
    """Return what the miner collects; `submissions` gets the board of keys and returns what was sent.

    Everything between the parties passes as bytes.
    """
    keys = miner.key_board([miner.share(), *[leader.share() for leader in leaders]])
    for leader in leaders:
        leader.take_key(keys)
    batch = miner.batch(submissions(keys))
    shuffles: list[bytes] = []
    for leader in leaders:
        shuffles.append(leader.shuffle(batch, miner.shuffle_board(shuffles)))
    board = miner.shuffle_board(shuffles)
    endorsed = miner.endorsement_board([leader.endorse(batch, board) for leader in leaders])
    return miner.collect(batch, board, [leader.open(endorsed) for leader in leaders])
