"""What compares features with the classes: numpy, or the graphs of a converted method."""
