"""Queries: which fields are asked, how their ranked lists become one, and how good what they find is."""
