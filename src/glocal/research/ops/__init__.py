"""Plain functions on tensors: similarities, energies, open scores."""
