"""``docs/methods``: a page per method and an index, made from records, docstrings, signatures and results files.

    python -m glocal.report.method_pages docs/methods

writes them anew; ``tests/unit/test_method_pages.py`` fails while they are out of date.
"""

from glocal.report.method_pages.page import pages
from glocal.report.method_pages.records import RECORDS, MethodRecord, Paper

__all__ = ["RECORDS", "MethodRecord", "Paper", "pages"]
