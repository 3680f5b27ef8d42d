"""glocal: few-shot open-set recognition.

Teach it classes from a handful of pictures; it names what it knows and says "unknown" to what it does not.
"""

__version__ = "0.1.0"
