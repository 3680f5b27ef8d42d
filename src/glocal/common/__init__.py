"""Errors, files that are written as a whole, words and markup: below everything else."""
