"""The recognizer as a web page and an HTTP API."""
