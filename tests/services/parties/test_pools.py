"""Pools that follow each other: their difference must not be the counts of one or two parties."""

import yaml
from tests.services.parties.deployments import CLEAR, Deployment, LearningGoal, people, split_rows

from masquerade.services.parties.settings import consent_values

PARTIES = ("north", "south", "east", "west", "registry")


def test_a_pool_that_differs_from_an_earlier_one_by_few_parties_is_refused(tmp_path):
    goal = LearningGoal(model="tables", tables=(("A",),))
    deployment = Deployment(tmp_path / "nodes", split_rows(people(100), CLEAR, PARTIES, goal, seed=1))
    fewer = deployment.spec.model_copy(update={"session": "fewer", "parties": PARTIES[1:]})
    for name in PARTIES[1:]:
        values = yaml.safe_load(deployment.files[name].read_text())
        (consent,) = values["consents"]
        values["consents"] = [consent, {**consent, **consent_values(fewer)}]
        deployment.files[name].write_text(yaml.safe_dump(values))
    try:
        deployment.start()
        assert deployment.run()["state"] == "done"
        before = deployment.ledger("south")
        status = deployment.run(fewer)  # consented to, and the difference of the two would be north's
        assert status["state"] == "interrupted"
        assert "differs by 1 parties" in status["reason"]
        assert deployment.ledger("south") == before
        assert deployment.run()["state"] == "done"  # the same pool again is nothing new
    finally:
        deployment.stop()
