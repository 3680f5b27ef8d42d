"""What people look at: result tables, figures, a gallery of one task, and the HTML page that holds them.

Every piece takes plain values (intervals, arrays, names), so a report can be made from a results file alone.
"""

from glocal.report.gallery import Query, gallery
from glocal.report.html import Html, Section, page, write_page
from glocal.report.table import Row, Table

__all__ = ["Html", "Query", "Row", "Section", "Table", "gallery", "page", "write_page"]
