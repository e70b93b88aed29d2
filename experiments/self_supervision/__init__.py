"""Projectors of self-supervised learning."""
