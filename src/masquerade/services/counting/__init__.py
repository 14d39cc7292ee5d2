"""Counting people who each keep their own record, as services: by votes, sums, a mix or a suppressed table.

A *miner* asks the questions. A mix (mixnet) also has *leaders* (mix servers), and a suppression has key
holders and a randomness server. Different organisations run them. An *enrolment office* identifies people.
Each person has one file and runs one command on their own machine. The steps of a count::

    office ── enrol ──▶ miner, leaders     people and rules of the count, fixed once by a digest
    person ── letters, replies ──▶ miner   the device fetches its message, and answers by its own rules
    analyst ── questions ──▶ miner         a source of counts (`mq.people.count`): any learner, round by round
    operator ── close ──▶ miner            counting is over; a mix is shuffled and opened only now

`masquerade.protocols` describes what each role learns. Services reveal more: the miner also sees the address
of each person's device and the times of its requests. Anyone who has a person's file can answer in the
person's name.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
