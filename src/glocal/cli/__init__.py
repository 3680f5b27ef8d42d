"""The command line.  Nothing here imports torch before a command needs it."""
