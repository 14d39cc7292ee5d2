"""Collecting rows from people who trust nobody with them: k-anonymity, formulation 1, as services.

A *randomness server* and a *collector* run by different people at different addresses; an *enrolment office*
that makes sure each person gets one credential; and a *client* on each person's own machine. An epoch goes::

    office ── enrol ──▶ randomness server            each person gets one credential
    person ── notice, evaluate ──▶ randomness server  one blinded element, once an epoch
    operator ── close ──▶ randomness server           the key is destroyed, which is signed
    person ── reports ──▶ collector                   only now a report leaves
    operator ── open ──▶ collector                    rows whose quasi-identifier occurs at least k times

What each learns is in `masquerade.protocols.k_anonymity.threshold`; what running them as services adds:

- The randomness server sees which credential asks and when, from which network address. With the office it
  knows who takes part. It sees nothing of any row.
- The collector takes reports from anybody, without names. Its own log has the time, the length and the
  status of a request, never its content or the sender's address, and no time of arrival is stored. But
  whoever sees its network (the machine's operator, a proxy's log) sees addresses: **with those, an opened
  row is a person's row.** Let reports pass through something that strips addresses, whose operator is neither
  of the two servers.
- Whoever takes part in a class knows its secret, and can make it reach k by made-up reports of its own. The
  result says how many more reports than evaluations there are; it cannot say which are made up.
- The office could ask in a person's name before that person does; the person then finds the credential used.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
