"""Heads for the tables in docs/results, as data: glocal finds them by name when this package is installed."""

__version__ = "0.1.0"
