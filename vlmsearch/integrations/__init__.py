"""What other frameworks take of a pipeline: one module a framework, which imports it."""
