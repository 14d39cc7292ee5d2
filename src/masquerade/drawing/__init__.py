"""How pictures look, wherever they stand."""
