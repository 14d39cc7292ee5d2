"""Ma & Sivakumar (2005): parameters of Bayesian networks from records disguised by post randomization."""
