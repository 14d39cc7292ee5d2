"""Learners: functions from answers to counting questions to models; they import the core and nothing else."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.learn import scores
    from masquerade.learn.averaged_network import AveragedNetwork, averaged
    from masquerade.learn.bayes import NaiveBayes, naive_bayes
    from masquerade.learn.catalogue import Learner, Option, learner
    from masquerade.learn.count_tables import Tables, tables
    from masquerade.learn.density import Density, reconstructed_density
    from masquerade.learn.graph import cpdag, shd
    from masquerade.learn.itemsets import Itemsets, frequent_itemsets
    from masquerade.learn.linear import LinearClassifier, linear_classifier
    from masquerade.learn.link_strength import LearnedStructure
    from masquerade.learn.model_file import load, save
    from masquerade.learn.network import (
        BayesianNetwork,
        ConditionalTable,
        bayesian_network,
        known_network,
        read_bif,
        write_bif,
    )
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
    "Learner",
    "LinearClassifier",
    "NaiveBayes",
    "Option",
    "Rules",
    "Tables",
    "association_rules",
    "averaged",
    "bayesian_network",
    "cpdag",
    "decision_tree",
    "frequent_itemsets",
    "known_network",
    "learner",
    "linear_classifier",
    "load",
    "naive_bayes",
    "read_bif",
    "reconstructed_density",
    "save",
    "scores",
    "shd",
    "structure",
    "tables",
    "write_bif",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "": ["scores"],
        "bayes": ["NaiveBayes", "naive_bayes"],
        "catalogue": ["Learner", "Option", "learner"],
        "density": ["Density", "reconstructed_density"],
        "averaged_network": ["AveragedNetwork", "averaged"],
        "graph": ["cpdag", "shd"],
        "itemsets": ["Itemsets", "frequent_itemsets"],
        "linear": ["LinearClassifier", "linear_classifier"],
        "link_strength": ["LearnedStructure"],
        "model_file": ["load", "save"],
        "network": [
            "BayesianNetwork",
            "ConditionalTable",
            "bayesian_network",
            "known_network",
            "read_bif",
            "write_bif",
        ],
        "rules": ["Rules", "association_rules"],
        "structure_search": ["structure"],
        "count_tables": ["Tables", "tables"],
        "tree": ["decision_tree"],
        "tree_model": ["DecisionTree"],
    },
)
