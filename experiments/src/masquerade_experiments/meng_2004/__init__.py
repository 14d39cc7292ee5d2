"""Meng, Sivakumar & Kargupta (2004): parameters of a Bayesian network from randomly projected columns."""
