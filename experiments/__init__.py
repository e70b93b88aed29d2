"""Experiments of the papers as entry points: python -m experiments.<name>."""
