"""Measurements on this machine: speed beside the installed peers, retrieval on drawn scenes."""
