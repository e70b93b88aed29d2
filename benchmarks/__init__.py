"""Benchmarks against other libraries and floors: python -m benchmarks.<name>."""
