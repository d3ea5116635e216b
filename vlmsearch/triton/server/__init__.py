"""A Triton server on this machine: installed, started, watched, stopped."""
