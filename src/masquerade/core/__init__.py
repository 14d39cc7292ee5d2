"""Types that all other packages share. Importing them loads no other package of masquerade."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.core.covariance import Covariance as Covariance
    from masquerade.core.covariance import IndependentCovariance as IndependentCovariance
    from masquerade.core.covariance import SumCovariance as SumCovariance
    from masquerade.core.errors import ChannelError as ChannelError
    from masquerade.core.errors import DataMissing as DataMissing
    from masquerade.core.errors import EngineError as EngineError
    from masquerade.core.errors import FileError as FileError
    from masquerade.core.errors import InputError as InputError
    from masquerade.core.errors import MasqueradeError as MasqueradeError
    from masquerade.core.errors import MasqueradeWarning as MasqueradeWarning
    from masquerade.core.errors import NotConverged as NotConverged
    from masquerade.core.errors import NotEstimable as NotEstimable
    from masquerade.core.errors import PluginError as PluginError
    from masquerade.core.errors import PolicyError as PolicyError
    from masquerade.core.errors import PolicyMismatch as PolicyMismatch
    from masquerade.core.errors import QueryRefused as QueryRefused
    from masquerade.core.errors import Refusal as Refusal
    from masquerade.core.errors import RoundAborted as RoundAborted
    from masquerade.core.errors import SchemaError as SchemaError
    from masquerade.core.errors import SingularChannel as SingularChannel
    from masquerade.core.errors import UnknownValue as UnknownValue
    from masquerade.core.errors import did_you_mean as did_you_mean
    from masquerade.core.evidence import Evidence as Evidence
    from masquerade.core.evidence import Fit as Fit
    from masquerade.core.guarantee import Disclosure as Disclosure
    from masquerade.core.guarantee import Guarantee as Guarantee
    from masquerade.core.intervals import Interval as Interval
    from masquerade.core.linear_covariance import LinearCovariance as LinearCovariance
    from masquerade.core.query import Query as Query
    from masquerade.core.schema import Field as Field
    from masquerade.core.schema import Schema as Schema
    from masquerade.core.schema import Variable as Variable
    from masquerade.core.supports import SupportAnswer as SupportAnswer
    from masquerade.core.supports import Supports as Supports
    from masquerade.core.supports import SupportTally as SupportTally
    from masquerade.core.table import CountTable as CountTable
    from masquerade.core.tally import Cached as Cached
    from masquerade.core.tally import Merged as Merged
    from masquerade.core.tally import RecordTally as RecordTally
    from masquerade.core.tally import Tally as Tally
    from masquerade.core.tally import raise_refusals as raise_refusals
    from masquerade.core.util.atomic import write_whole as write_whole
    from masquerade.core.util.formatting import counted as counted

__getattr__, __dir__, __all__ = lazy_exports(__name__)
