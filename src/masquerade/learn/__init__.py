"""Learners: functions from answers to counting questions to models; they import the core and nothing else."""

from masquerade.learn.bayes import NaiveBayes, naive_bayes
from masquerade.learn.bif import read_bif, write_bif
from masquerade.learn.density import Density, reconstructed_density
from masquerade.learn.graph import AveragedNetwork, averaged, cpdag, shd
from masquerade.learn.itemsets import Itemsets, frequent_itemsets
from masquerade.learn.linear import linear_classifier
from masquerade.learn.linear_model import LinearClassifier
from masquerade.learn.link_strength import LearnedStructure
from masquerade.learn.model_file import load, save
from masquerade.learn.network import BayesianNetwork, ConditionalTable, bayesian_network, known_network
from masquerade.learn.rules import Rules, association_rules
from masquerade.learn.structure_search import structure
from masquerade.learn.tree import decision_tree
from masquerade.learn.tree_model import DecisionTree

__all__ = [
    "AveragedNetwork",
    "BayesianNetwork",
    "ConditionalTable",
    "DecisionTree",
    "Density",
    "Itemsets",
    "LearnedStructure",
    "LinearClassifier",
    "NaiveBayes",
    "Rules",
    "association_rules",
    "averaged",
    "bayesian_network",
    "cpdag",
    "decision_tree",
    "frequent_itemsets",
    "known_network",
    "linear_classifier",
    "load",
    "naive_bayes",
    "read_bif",
    "reconstructed_density",
    "save",
    "shd",
    "structure",
    "write_bif",
]
