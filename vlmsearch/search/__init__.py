"""Queries: which fields are asked, and how their ranked lists become one."""
