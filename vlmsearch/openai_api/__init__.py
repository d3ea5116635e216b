"""HTTP to servers: one client for all of them, and the rules of OpenAI's interface and of those like it."""

import sys

sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx's command line, which would load rich
