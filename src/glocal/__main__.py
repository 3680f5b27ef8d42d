"""``python -m glocal``, for torchrun."""

from glocal.cli.main import main

if __name__ == "__main__":  # processes that multiprocessing starts import this file too
    main()
