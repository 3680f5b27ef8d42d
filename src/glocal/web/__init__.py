"""A recognizer as a static page that answers without a network."""
