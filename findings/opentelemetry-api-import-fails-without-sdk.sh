#!/usr/bin/env bash
# opentelemetry-api 1.45.2: its import of `propagate` fails where OTEL_PROPAGATORS names one of the specification's
# propagators whose package is not installed, though no SDK is installed and OTEL_SDK_DISABLED is true. A variable that
# is set for all programs of a cluster stops each library that imports `propagate`. `opentelemetry.trace` can be
# imported, but its `get_tracer` raises StopIteration where OTEL_PYTHON_TRACER_PROVIDER names the SDK that is absent.
# Seen:
#   trace: imported
#   propagate: ValueError: Propagator b3 not found. It is either misspelled or not installed.
#   get_tracer: StopIteration
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check opentelemetry-api==1.45.2
OTEL_PROPAGATORS=tracecontext,b3 OTEL_SDK_DISABLED=true OTEL_PYTHON_TRACER_PROVIDER=sdk_tracer_provider \
    "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

from opentelemetry import trace

print("trace: imported")
seen = []
try:
    from opentelemetry import propagate
except ValueError as exc:
    print(f"propagate: ValueError: {exc}")
    seen.append("propagate")
try:
    trace.get_tracer("library")
except StopIteration:
    print("get_tracer: StopIteration")
    seen.append("get_tracer")
if seen != ["propagate", "get_tracer"]:
    print(f"changed: fails alone: {seen}")
    sys.exit(1)
PYTHON
