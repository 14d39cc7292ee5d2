"""Counting people who each keep their own record, as services: votes, secure aggregation and the mix.

A *miner* that asks, for the mix *leaders* run by others, an *enrolment office* that makes sure who is who,
and on each person's own machine one file and one command. A count goes::

    office ── enrol ──▶ miner, leaders     who is counted, how, and by which rules: fixed once, by a digest
    person ── letters, replies ──▶ miner   the device asks for what it is due, and answers by its own rules
    analyst ── questions ──▶ miner         a source of counts (`mq.people.count`): any learner, round by round
    operator ── close ──▶ miner            counting is over; a mix is shuffled and opened only now

What each learns is in `masquerade.protocols`; what running them as services adds: the miner sees from which
address somebody's device asks, and when; whoever keeps a person's file can answer in their name.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
