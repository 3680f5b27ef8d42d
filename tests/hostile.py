"""Files that somebody made to do harm, or that came to harm: name of the file -> a function that writes it to a path.

``WORDS`` has what the refusal of each must say, as a pattern.  Files that would run a program make a folder ``RAN``
beside themselves.
"""

# Importing them enters their files.
import hostile_archives  # noqa: F401
import hostile_arrays  # noqa: F401
import hostile_pickles  # noqa: F401
from hostile_registry import HOSTILE, RAN, WORDS

__all__ = ["HOSTILE", "RAN", "WORDS"]
