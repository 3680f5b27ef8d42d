"""Where "unknown" begins."""
