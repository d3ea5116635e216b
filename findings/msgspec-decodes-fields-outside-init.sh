#!/usr/bin/env bash
# msgspec 0.22.0: a field of a dataclass with init=False, which no caller of the class can set, is set from the JSON that
# is decoded, and is in the JSON Schema. Pydantic 2.14 ignores the key.
# Seen:
#   dataclass: TypeError: Upload.__init__() got an unexpected keyword argument 'is_trusted'
#   msgspec: Upload(name='a', is_trusted=True)
#   pydantic: Upload(name='a', is_trusted=False)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0 pydantic==2.14.4
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from dataclasses import dataclass, field

import msgspec
import pydantic


@dataclass
class Upload:
    name: str
    is_trusted: bool = field(init=False, default=False)


sent = b'{"name": "a", "is_trusted": true}'
try:
    print("dataclass:", Upload(**msgspec.json.decode(sent)))
except TypeError as exc:
    print(f"dataclass: TypeError: {exc}")
decoded = msgspec.json.decode(sent, type=Upload)
print("msgspec:", decoded)
print("pydantic:", pydantic.TypeAdapter(Upload).validate_json(sent))
if not (decoded.is_trusted and "is_trusted" in msgspec.json.schema(Upload)["$defs"]["Upload"]["properties"]):
    sys.exit("changed: msgspec leaves fields with init=False alone")
PYTHON
