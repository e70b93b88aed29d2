"""Shared parts of all studies: command line, results, figures, data, networks."""
