"""Learners: functions from answers to counting questions to models; they import the core and nothing else."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.learn import scores as scores
    from masquerade.learn.averaged_network import AveragedNetwork as AveragedNetwork
    from masquerade.learn.averaged_network import averaged as averaged
    from masquerade.learn.averaged_network import resampled_network as resampled_network
    from masquerade.learn.bayes import NaiveBayes as NaiveBayes
    from masquerade.learn.bayes import naive_bayes as naive_bayes
    from masquerade.learn.catalogue import Learner as Learner
    from masquerade.learn.catalogue import Option as Option
    from masquerade.learn.catalogue import learner as learner
    from masquerade.learn.clusters import Clusters as Clusters
    from masquerade.learn.clusters import k_means as k_means
    from masquerade.learn.correlation import Correlations as Correlations
    from masquerade.learn.correlation import correlations as correlations
    from masquerade.learn.count_tables import Tables as Tables
    from masquerade.learn.count_tables import tables as tables
    from masquerade.learn.density import Density as Density
    from masquerade.learn.density import reconstructed_density as reconstructed_density
    from masquerade.learn.graph import cpdag as cpdag
    from masquerade.learn.graph import shd as shd
    from masquerade.learn.itemsets import Itemsets as Itemsets
    from masquerade.learn.itemsets import frequent_itemsets as frequent_itemsets
    from masquerade.learn.label_tree import LabelTree as LabelTree
    from masquerade.learn.linear import LinearClassifier as LinearClassifier
    from masquerade.learn.linear import linear_classifier as linear_classifier
    from masquerade.learn.link_strength import LearnedStructure as LearnedStructure
    from masquerade.learn.model_file import load as load
    from masquerade.learn.model_file import save as save
    from masquerade.learn.network import BayesianNetwork as BayesianNetwork
    from masquerade.learn.network import ConditionalTable as ConditionalTable
    from masquerade.learn.network import bayesian_network as bayesian_network
    from masquerade.learn.network import known_network as known_network
    from masquerade.learn.network import read_bif as read_bif
    from masquerade.learn.network import write_bif as write_bif
    from masquerade.learn.rules import Rules as Rules
    from masquerade.learn.rules import association_rules as association_rules
    from masquerade.learn.scores import Constant as Constant
    from masquerade.learn.scores import DesignEffect as DesignEffect
    from masquerade.learn.scores import Eta as Eta
    from masquerade.learn.scores import Likelihood as Likelihood
    from masquerade.learn.scores import Uncorrected as Uncorrected
    from masquerade.learn.structure_search import structure as structure
    from masquerade.learn.tree import decision_tree as decision_tree
    from masquerade.learn.tree_model import DecisionTree as DecisionTree

__getattr__, __dir__, __all__ = lazy_exports(__name__)
