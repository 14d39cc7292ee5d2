"""Test and use models when the records at hand are disguised: the floor above sources and learners."""

from masquerade.evaluate.accuracy import Accuracy, accuracy
from masquerade.evaluate.disguised_rows import DisguisedView, disguised_view

__all__ = ["Accuracy", "DisguisedView", "accuracy", "disguised_view"]
