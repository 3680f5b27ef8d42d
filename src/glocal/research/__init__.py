"""Methods, data, training and tables: what needs PyTorch."""
