"""A Triton server on this machine: installed, started, supervised, stopped."""
