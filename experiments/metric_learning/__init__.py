"""Losses, proxies and poolings compared by retrieval."""
