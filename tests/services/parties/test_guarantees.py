"""The documentation's table of protocols says what the protocols say."""

from __future__ import annotations

from tests.services.parties import guarantees


def test_the_table_of_protocols_is_what_the_protocols_compute():
    assert guarantees.ON_PAGE.shown() == guarantees.generated(), (
        "write it again: python -m tests.services.parties.guarantees"
    )


def test_every_protocol_says_who_learns_what_and_what_that_rests_on():
    for case in (*guarantees.among_organisations(), *guarantees.among_people()):
        assert case.guarantee.disclosures, case.name
        assert case.guarantee.assumptions, case.name
        assert case.guarantee.adversaries, case.name
        assert case.breaks, case.name
