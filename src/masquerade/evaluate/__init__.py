"""Test and use models when the records at hand are disguised: the floor above sources and learners."""

from masquerade.evaluate.disguised import DisguisedView, disguised_view
from masquerade.evaluate.testing import Accuracy, accuracy

__all__ = ["Accuracy", "DisguisedView", "accuracy", "disguised_view"]
