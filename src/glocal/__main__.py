"""``python -m glocal``, for torchrun."""

from glocal.cli.main import main

main()
