"""Measure vlmsearch beside its peers, and what its design rests on; nothing here is in the wheel."""
