"""Threshold reporting as services: k-anonymity, formulation 1, for people who trust no one with their rows.

A *randomness server* and a *collector* are run by different organisations at different addresses. An
*enrolment office* gives each person one credential. A *client* runs on each person's own machine. The steps
of an epoch::

    office ── enrol ──▶ randomness server            each person gets one credential
    person ── notice, evaluate ──▶ randomness server  one blinded element per epoch
    operator ── close ──▶ randomness server           the key is destroyed; the server signs that
    person ── reports ──▶ collector                   reports are sent only from now on
    operator ── open ──▶ collector                    rows whose quasi-identifier occurs at least k times

`masquerade.protocols.k_anonymity.threshold` describes what each role learns. Services reveal more:

- The randomness server sees when each credential sends a request, and from which network address. Together
  with the office it knows who participates. It learns nothing about any row.
- The collector accepts reports from anyone, without names. Its log contains the time, the length and the
  status of a request, never its content or the sender's address, and it stores no time of arrival. But anyone
  who observes its network (the machine's operator, a proxy's log) sees addresses: **with these, an opened
  row can be linked to a person.** Send reports through a proxy that strips addresses, and whose operator runs
  neither of the two servers.
- Every member of a class knows its secret, and can send forged reports so that the class reaches k. The
  result shows how many more reports than evaluations there are, but not which reports are forged.
- The office could send a request in a person's name before the person does; the person then learns that the
  credential was used.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
