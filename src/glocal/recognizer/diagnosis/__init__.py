"""What to expect of a recognizer."""
