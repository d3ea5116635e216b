"""Values as HTML for notebooks: what ``_repr_html_`` of results gives.

It has no script, no style sheet and nothing from another place. What is from outside is escaped. Colours are those of
the page, light or dark.
"""

from vlmsearch.notebook.values import to_html

__all__ = ["to_html"]
