"""Learners: functions from answers to counting questions to models; they import the core and nothing else."""

from masquerade.learn.network import BayesianNetwork, ConditionalTable, bayesian_network

__all__ = ["BayesianNetwork", "ConditionalTable", "bayesian_network"]
