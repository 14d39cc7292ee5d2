"""What protects people across rounds: the ledger of what left their devices."""
