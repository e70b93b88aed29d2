"""Prototypes and the assignment of labels to them."""
