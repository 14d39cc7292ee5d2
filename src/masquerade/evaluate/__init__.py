"""Test and use models when the records at hand are disguised: the floor above sources and learners."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.evaluate.disguised_views import DisguisedNetworkView as DisguisedNetworkView
    from masquerade.evaluate.disguised_views import DisguisedTreeView as DisguisedTreeView
    from masquerade.evaluate.disguised_views import DisguisedView as DisguisedView
    from masquerade.evaluate.disguised_views import disguised_view as disguised_view
    from masquerade.evaluate.hits import Accuracy as Accuracy
    from masquerade.evaluate.hits import accuracy as accuracy
    from masquerade.evaluate.measures import Calibration as Calibration
    from masquerade.evaluate.measures import Confusion as Confusion
    from masquerade.evaluate.measures import Measure as Measure
    from masquerade.evaluate.measures import balanced_accuracy as balanced_accuracy
    from masquerade.evaluate.measures import calibration as calibration
    from masquerade.evaluate.measures import confusion as confusion
    from masquerade.evaluate.measures import roc_auc as roc_auc

__getattr__, __dir__, __all__ = lazy_exports(__name__)
