"""The paper again: every table and figure from runs that are made when they are missing, and one report of them all."""
