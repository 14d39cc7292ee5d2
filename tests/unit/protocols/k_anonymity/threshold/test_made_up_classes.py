"""Reports that nobody was given: what a stranger without a credential, and the server, can make open."""

from tests.unit.protocols.k_anonymity.threshold.world import Insiders, World

from masquerade.crypto import oprf
from masquerade.crypto.class_secrets import random_place, secret_of
from masquerade.protocols.k_anonymity.threshold.messages import ReportLayout, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.roles import report_of
from masquerade.services.threshold.results import describe_result, summary_of

K = 3
TRUE, OTHER = b"07028", b"07029"
ROWS = [(TRUE, b"colitis")] * K


def made_up(layout, quasi, sensitive, number=K):
    """Return reports of a class whose secret a stranger chose: no credential, no evaluation."""
    stranger = Insiders(layout)
    return [stranger.report(quasi, sensitive) for _ in range(number)]


def test_a_stranger_makes_up_a_class_and_the_collector_counts_too_many_reports():
    world = World()
    opening = world.opening([*world.reports(ROWS), *made_up(world.layout, OTHER, b"none")])
    assert sorted(opening.rows()) == sorted([*ROWS, *[(OTHER, b"none")] * K])  # the attack
    assert opening.contested_classes == 0
    assert summary_of(opening, evaluations=K)["more_reports_than_evaluations"] == K


def test_a_class_that_is_made_up_beside_the_true_one_shows():
    world = World()
    opening = world.opening([*world.reports(ROWS), *made_up(world.layout, TRUE, b"none")])
    assert sorted(opening.rows()) == sorted([*ROWS, *[(TRUE, b"none")] * K])
    assert opening.contested_classes == 2
    assert "2 classes with the quasi-identifier of another" in opening.summary()
    said = summary_of(opening, evaluations=2 * K)  # as many as if all were true
    assert said["more_reports_than_evaluations"] == 0
    assert any("all but one are forged" in line for line in describe_result(said, "rows.csv"))


def test_classes_that_are_true_are_not_contested():
    """Also where one quasi-identifier begins like another: what is compared has its length."""
    world = World(ThresholdTerms("spring", K, 12, 16))
    rows = [(quasi, b"none") for quasi in (TRUE, TRUE + b"\0", b"") for _ in range(K)]
    opening = world.opening(world.reports(rows))
    assert opening.opened == len(rows)
    assert opening.contested_classes == 0
    assert world_without_reports().contested_classes == 0


def world_without_reports():
    return World().opening([])


def test_the_randomness_server_alone_opens_a_class_below_k():
    """It can compute every class's secret while it has the key; that it sends no report is an assumption."""
    world = World()
    (victim,) = world.reports([(TRUE, b"stroke")])
    key = world.server._keys["spring"]
    blinded = oprf.blind(world.terms.input_of(TRUE))
    (evaluated,), _ = oprf.evaluate(key, [blinded.element])
    unblinded = oprf.unblind(blinded, evaluated).encode()
    secret = secret_of(oprf.output_of(world.terms.input_of(TRUE), unblinded))
    layout: ReportLayout = world.layout
    false = [report_of(layout, secret, unblinded, TRUE, b"none", x=random_place()) for _ in range(K - 1)]
    opening = world.opening([victim, *false])
    assert (TRUE, b"stroke") in list(opening.rows())
    assert summary_of(opening, evaluations=1)["more_reports_than_evaluations"] == K - 1  # what shows
