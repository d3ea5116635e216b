"""The HTTP service: several indexes behind one port, for programs and for people."""
