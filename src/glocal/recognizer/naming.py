"""What a class may be called; see ``glocal_runtime.naming``."""

from glocal_runtime.naming import LONGEST, UNKNOWN_NAME, check_class_name, check_distinct

__all__ = ["LONGEST", "UNKNOWN_NAME", "check_class_name", "check_distinct"]
