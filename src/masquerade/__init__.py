"""masquerade: learn from data nobody is allowed to see.

Every privacy technology is a way to answer counting questions; every learner is a function from answers to a
model. Names are loaded when they are first used, so that importing the package stays quick.
"""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade import anonymity as anonymity
    from masquerade import audit as audit
    from masquerade import channels as channels
    from masquerade import data as data
    from masquerade import evaluate as evaluate
    from masquerade import extend as extend
    from masquerade import interop as interop
    from masquerade import learn as learn
    from masquerade import parties as parties
    from masquerade import people as people
    from masquerade import stats as stats
    from masquerade.channels.channel import Channel as Channel
    from masquerade.channels.noise.terms import NoiseTerms as NoiseTerms
    from masquerade.channels.policy import Policy as Policy
    from masquerade.channels.policy.privacy import privacy as privacy
    from masquerade.core.covariance import Covariance as Covariance
    from masquerade.core.errors import MasqueradeError as MasqueradeError
    from masquerade.core.errors import QueryRefused as QueryRefused
    from masquerade.core.errors import Refusal as Refusal
    from masquerade.core.guarantee import Guarantee as Guarantee
    from masquerade.core.query import Query as Query
    from masquerade.core.schema import Schema as Schema
    from masquerade.core.schema import Variable as Variable
    from masquerade.core.table import CountTable as CountTable
    from masquerade.core.tally import Cached as Cached
    from masquerade.core.tally import Merged as Merged
    from masquerade.core.tally import Tally as Tally
    from masquerade.disguising.files import disguise_file as disguise_file
    from masquerade.disguising.frames import disguise as disguise
    from masquerade.disguising.seeded import simulate as simulate
    from masquerade.frames.baskets import basket_policy as basket_policy
    from masquerade.frames.baskets import read_baskets as read_baskets
    from masquerade.plan.enough import visible_pairs as visible_pairs
    from masquerade.plan.planner import plan as plan
    from masquerade.services.common.noise_ledger import NoiseLedger as NoiseLedger
    from masquerade.sources.cell_key import PerturbationTable as PerturbationTable
    from masquerade.sources.cell_key import cell_keyed as cell_keyed
    from masquerade.sources.control.data_dependent_rules import DataDependentRules as DataDependentRules
    from masquerade.sources.control.disclosure_profiles import Dominance as Dominance
    from masquerade.sources.control.disclosure_profiles import MostCategories as MostCategories
    from masquerade.sources.control.inference_control import Controlled as Controlled
    from masquerade.sources.control.inference_control import Rules as Rules
    from masquerade.sources.link_error import LinkError as LinkError
    from masquerade.sources.noise.family_stages import ask_families as ask_families
    from masquerade.sources.noise.family_stages import ask_tree as ask_tree
    from masquerade.sources.noise.family_stages import structure_stages as structure_stages
    from masquerade.sources.noise.family_stages import tree_tables as tree_tables
    from masquerade.sources.noise.noisy import Noisy as Noisy
    from masquerade.sources.noise.table_plan import plan_tables as plan_tables
    from masquerade.sources.noise.tree_pairs import pairs_near_tree as pairs_near_tree
    from masquerade.sources.parties.projection import projection_tally as projection_tally
    from masquerade.sources.parties.projection_seeded import simulate_projection as simulate_projection
    from masquerade.sources.survey_records import SurveyRecords as SurveyRecords
    from masquerade.sources.tally import tally as tally

__version__ = "0.2.0.dev0"

__getattr__, __dir__, __all__ = lazy_exports(__name__)
