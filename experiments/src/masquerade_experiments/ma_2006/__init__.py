"""Ma (2006), dissertation: learning from randomized data."""
