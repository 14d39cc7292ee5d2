"""Channels and policies: randomized response and PRAM, and their privacy guarantees."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.channels.basic import binary as binary
    from masquerade.channels.basic import flip as flip
    from masquerade.channels.basic import identity as identity
    from masquerade.channels.basic import matrix as matrix
    from masquerade.channels.basic import symmetric as symmetric
    from masquerade.channels.basic import ternary as ternary
    from masquerade.channels.basic import within_groups as within_groups
    from masquerade.channels.block_designs import block_design as block_design
    from masquerade.channels.block_designs import hadamard_response as hadamard_response
    from masquerade.channels.block_designs import subset_selection as subset_selection
    from masquerade.channels.channel import Channel as Channel
    from masquerade.channels.class_response import ClassResponse as ClassResponse
    from masquerade.channels.designs import additive as additive
    from masquerade.channels.designs import for_epsilon as for_epsilon
    from masquerade.channels.designs import for_gamma as for_gamma
    from masquerade.channels.designs import invariant as invariant
    from masquerade.channels.optimum import OptimalDesign as OptimalDesign
    from masquerade.channels.optimum import certify_design as certify_design
    from masquerade.channels.optimum import optimal as optimal
    from masquerade.channels.optimum import optimal_design as optimal_design
    from masquerade.channels.pairwise import only_sensitive as only_sensitive
    from masquerade.channels.pairwise import optimal_pairwise as optimal_pairwise
    from masquerade.channels.policy.unary import unary_encoding as unary_encoding
    from masquerade.channels.policy.unary import unary_gamma as unary_gamma
    from masquerade.channels.survey_designs import cheater_detection as cheater_detection
    from masquerade.channels.survey_designs import crosswise as crosswise
    from masquerade.channels.survey_designs import double_list as double_list
    from masquerade.channels.survey_designs import forced_response as forced_response
    from masquerade.channels.survey_designs import kuk as kuk
    from masquerade.channels.survey_designs import list_experiment as list_experiment
    from masquerade.channels.survey_designs import mangat as mangat
    from masquerade.channels.survey_designs import panel as panel
    from masquerade.channels.survey_designs import self_protective_no as self_protective_no
    from masquerade.channels.survey_designs import stochastic_lie_detector as stochastic_lie_detector
    from masquerade.channels.survey_designs import triangular as triangular
    from masquerade.channels.survey_designs import unrelated_question as unrelated_question
    from masquerade.channels.survey_designs import unrelated_unknown as unrelated_unknown
    from masquerade.channels.survey_designs import warner as warner

__getattr__, __dir__, __all__ = lazy_exports(__name__)
