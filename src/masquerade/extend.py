"""Names for authors of plug-ins: sources, channels, learners and session kinds of other packages.

`docs/extending.md` shows each of them at work. A learner also needs `mq.learn.Learner` and `mq.learn.Option`,
a session kind the names of `mq.parties`.
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
