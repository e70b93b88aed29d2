"""Generalized sum pooling: collages, tokens, attributes, screening."""
