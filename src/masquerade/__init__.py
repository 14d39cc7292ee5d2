"""masquerade: learn from data nobody is allowed to see."""
