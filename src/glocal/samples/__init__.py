"""Pictures that come with installed packages, and the demo on them."""
