"""The extras that the manual's code needs."""

EXTRAS = {
    "chroma": r"chroma:",
    "eval": r"vlmsearch eval|\.evaluate\(",
    "haystack": r"integrations\.haystack",
    "langchain": r"integrations\.langchain",
    "llama-index": r"integrations\.llama_index",
    "mcp": r"vlmsearch mcp|import mcp|from mcp",
    "mongodb": r"mongodb(\+chroma)?:",
    "ocr": r"--ocr|ocr=True",
    "office": r"--office|office=True",
    "parquet": r"\.parquet",
    "pdf": r"--pdf|pdf=True",
    "postgresql": r"postgresql:",
    "ray": r"--on ray|integrations\.ray",
    "serve": r"vlmsearch serve|vlmsearch\.server",
    "triton": r"triton://",
    "video": r"--video|video=True",
    "watch": r"vlmsearch watch|\.watch\(",
}
"""Patterns of the code that needs an extra."""
