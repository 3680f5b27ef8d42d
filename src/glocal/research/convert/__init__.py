"""From a ``.glocal`` file to a folder that runs without PyTorch."""
