"""Photos: found, decoded, cut to size."""
