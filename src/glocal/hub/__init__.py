"""Encoders from ONNX graphs of other programs, and recognizers for a hub; needs onnx, or huggingface_hub."""
