"""Zhan, Chang & Matwin (2004): naive Bayes classifiers from randomized responses."""
