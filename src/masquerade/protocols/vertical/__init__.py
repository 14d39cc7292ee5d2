"""Vertical and arbitrary partitions: parties disguise what leaves them; a miner joins, or each of them."""
