"""Write a file so that a reader sees the old one or the new one, never a half."""

from glocal_runtime.files import replacing, write_text

__all__ = ["replacing", "write_text"]
