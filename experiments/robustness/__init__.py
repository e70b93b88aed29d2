"""Robust features and Voronoi cells."""
