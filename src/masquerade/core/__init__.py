"""The types that everything else speaks: numpy only, imports nothing of ours."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.core.atomic import write_whole
    from masquerade.core.covariance import Covariance, IndependentCovariance, LinearCovariance, SumCovariance
    from masquerade.core.errors import (
        ChannelError,
        DataMissing,
        EngineError,
        FileError,
        InputError,
        MasqueradeError,
        MasqueradeWarning,
        NotConverged,
        PluginError,
        PolicyError,
        PolicyMismatch,
        QueryRefused,
        Refusal,
        RoundAborted,
        SchemaError,
        SingularChannel,
        UnknownValue,
        did_you_mean,
    )
    from masquerade.core.evidence import Evidence, Fit
    from masquerade.core.guarantee import Disclosure, Guarantee
    from masquerade.core.intervals import Interval
    from masquerade.core.query import Query
    from masquerade.core.schema import Field, Schema, Variable
    from masquerade.core.supports import SupportAnswer, Supports, SupportTally
    from masquerade.core.table import CountTable
    from masquerade.core.tally import Cached, Merged, RecordTally, Tally, raise_refusals
    from masquerade.core.words import counted

__all__ = [
    "Cached",
    "ChannelError",
    "CountTable",
    "Covariance",
    "DataMissing",
    "Disclosure",
    "EngineError",
    "Evidence",
    "Field",
    "FileError",
    "Fit",
    "Guarantee",
    "IndependentCovariance",
    "InputError",
    "Interval",
    "LinearCovariance",
    "MasqueradeError",
    "MasqueradeWarning",
    "Merged",
    "NotConverged",
    "PluginError",
    "PolicyError",
    "PolicyMismatch",
    "Query",
    "QueryRefused",
    "RecordTally",
    "Refusal",
    "RoundAborted",
    "Schema",
    "SchemaError",
    "SingularChannel",
    "SumCovariance",
    "SupportAnswer",
    "SupportTally",
    "Supports",
    "Tally",
    "UnknownValue",
    "Variable",
    "counted",
    "did_you_mean",
    "raise_refusals",
    "write_whole",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "atomic": ["write_whole"],
        "covariance": ["Covariance", "IndependentCovariance", "LinearCovariance", "SumCovariance"],
        "errors": [
            "ChannelError",
            "DataMissing",
            "EngineError",
            "FileError",
            "InputError",
            "MasqueradeError",
            "MasqueradeWarning",
            "NotConverged",
            "PluginError",
            "PolicyError",
            "PolicyMismatch",
            "QueryRefused",
            "Refusal",
            "RoundAborted",
            "SchemaError",
            "SingularChannel",
            "UnknownValue",
            "did_you_mean",
        ],
        "evidence": ["Evidence", "Fit"],
        "guarantee": ["Disclosure", "Guarantee"],
        "query": ["Query"],
        "schema": ["Field", "Schema", "Variable"],
        "supports": ["SupportAnswer", "SupportTally", "Supports"],
        "intervals": ["Interval"],
        "table": ["CountTable"],
        "tally": ["Cached", "Merged", "RecordTally", "Tally", "raise_refusals"],
        "words": ["counted"],
    },
)
