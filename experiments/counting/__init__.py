"""How the norm of an embedding counts."""
