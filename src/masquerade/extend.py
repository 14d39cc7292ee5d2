"""Names for authors of plug-ins: sources, channels, learners and session types of other packages.

`docs/extending.md` shows each of them in use. A learner also needs `mq.learn.Learner` and `mq.learn.Option`,
a session type the names of `mq.parties`.
"""

from masquerade.channels.policy.channel_models import Number, PolicyPart
from masquerade.core.covariance import Covariance, IndependentCovariance
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure
from masquerade.estimate.evidence import GaussianEvidence
from masquerade.learn.model_file import check_header, entry, header
from masquerade.learn.option_types import NUMBER, SHARE, SWITCH, VARIABLE, VARIABLES, WHOLE

__all__ = [
    "NUMBER",
    "SHARE",
    "SWITCH",
    "VARIABLE",
    "VARIABLES",
    "WHOLE",
    "Covariance",
    "Disclosure",
    "GaussianEvidence",
    "IndependentCovariance",
    "InputError",
    "Number",
    "PolicyPart",
    "check_header",
    "entry",
    "header",
]
