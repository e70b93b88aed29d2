"""Benchmarks against peers and floors: python -m benchmarks.<name>."""
