"""What is frozen."""
