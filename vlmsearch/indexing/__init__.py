"""Documents in: sources, tables, records, the flow, and building an index anew."""
