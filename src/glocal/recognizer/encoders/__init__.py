"""ONNX graphs that turn photos into features."""
