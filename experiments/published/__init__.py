"""Figures and trees that the papers print."""
