"""Learners: functions that turn answers to counting queries into models. They import the core only."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.learn.catalogue import learner as learner
    from masquerade.learn.classifiers.bayes import NaiveBayes as NaiveBayes
    from masquerade.learn.classifiers.bayes import naive_bayes as naive_bayes
    from masquerade.learn.classifiers.label_tree import LabelTree as LabelTree
    from masquerade.learn.classifiers.linear import LinearClassifier as LinearClassifier
    from masquerade.learn.classifiers.linear import linear_classifier as linear_classifier
    from masquerade.learn.classifiers.tree import decision_tree as decision_tree
    from masquerade.learn.classifiers.tree_model import DecisionTree as DecisionTree
    from masquerade.learn.clusters import Clusters as Clusters
    from masquerade.learn.clusters import k_means as k_means
    from masquerade.learn.correlation import Correlations as Correlations
    from masquerade.learn.correlation import correlations as correlations
    from masquerade.learn.count_tables import Tables as Tables
    from masquerade.learn.count_tables import tables as tables
    from masquerade.learn.density import Density as Density
    from masquerade.learn.density import reconstructed_density as reconstructed_density
    from masquerade.learn.learner_types import Learner as Learner
    from masquerade.learn.learner_types import Option as Option
    from masquerade.learn.missing_cells import network_with_missing as network_with_missing
    from masquerade.learn.model_file import load as load
    from masquerade.learn.model_file import save as save
    from masquerade.learn.networks import scores as scores
    from masquerade.learn.networks.averaged_network import AveragedNetwork as AveragedNetwork
    from masquerade.learn.networks.averaged_network import average_structures as average_structures
    from masquerade.learn.networks.averaged_network import resampled_network as resampled_network
    from masquerade.learn.networks.graph import cpdag as cpdag
    from masquerade.learn.networks.graph import shd as shd
    from masquerade.learn.networks.link_strength import LearnedStructure as LearnedStructure
    from masquerade.learn.networks.network import BayesianNetwork as BayesianNetwork
    from masquerade.learn.networks.network import ConditionalTable as ConditionalTable
    from masquerade.learn.networks.network import bayesian_network as bayesian_network
    from masquerade.learn.networks.network import known_network as known_network
    from masquerade.learn.networks.network_files import read_bif as read_bif
    from masquerade.learn.networks.network_files import write_bif as write_bif
    from masquerade.learn.networks.scores import Constant as Constant
    from masquerade.learn.networks.scores import DesignEffect as DesignEffect
    from masquerade.learn.networks.scores import Eta as Eta
    from masquerade.learn.networks.scores import Likelihood as Likelihood
    from masquerade.learn.networks.scores import Uncorrected as Uncorrected
    from masquerade.learn.networks.structure_search import structure as structure
    from masquerade.learn.rules.association_rules import association_rules as association_rules
    from masquerade.learn.rules.itemsets import Itemsets as Itemsets
    from masquerade.learn.rules.itemsets import frequent_itemsets as frequent_itemsets
    from masquerade.learn.rules.rules_model import AssociationRules as AssociationRules

__getattr__, __dir__, __all__ = lazy_exports(__name__)
