"""How true the stand-in is: its names beside those of real modules.

``python tests/tensorrt_standin/fidelity.py dump [FILE]`` writes what the installed ``tensorrt`` and
``cuda.bindings.runtime`` have, as JSON, and imports nothing else. ``... compare FILE`` prints how the stand-in of that
version differs, and fails if it does. What is compared: every member and number of the enums, and for each name that a
class of the stand-in has in any version whether it is there, and its parameters.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.tensorrt_standin.versions import Version

CLASSES = (
    "Builder",
    "EngineInspector",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "ILayer",
    "INetworkDefinition",
    "IOptimizationProfile",
    "ITensor",
    "ITimingCache",
    "OnnxParser",
    "ParserError",
    "Runtime",
)
Dump = dict[str, Any]


def dump() -> Dump:
    """What the installed modules have."""
    trt = importlib.import_module("tensorrt")
    cuda = importlib.import_module("cuda.bindings.runtime")
    kinds = {name: kind for name, kind in vars(trt).items() if isinstance(kind, type)}
    return {
        "version": trt.__version__,
        "enums": {name: _members(kind) for name, kind in sorted(kinds.items()) if hasattr(kind, "__members__")},
        "classes": {name: members_of(kinds[name]) for name in CLASSES},
        "types": {name: value.name for name, value in sorted(vars(trt).items()) if isinstance(value, trt.DataType)},
        "cuda": {name: _cuda(value) for name, value in sorted(vars(cuda).items()) if name.startswith("cuda")},
    }


def _members(kind: Any) -> dict[str, int]:
    return {name: int(value) for name, value in kind.__members__.items()}


def members_of(kind: type) -> dict[str, str]:
    """Return the members of a class, with their parameters."""
    return {name: parameters(getattr(kind, name)) for name in dir(kind) if not name.startswith("_")}


def _cuda(value: Any) -> Any:
    if isinstance(value, type):
        return _members(value) if hasattr(value, "__members__") else "type"
    return _parameters_of_text(value.__doc__ or "", r"\w+\((.*)\)") if callable(value) else "value"


def parameters(member: Any) -> str:
    """``property``, or the parameters of a method by name; ``?`` where there are several forms."""
    if not callable(member):
        return "property"
    code = getattr(member, "__code__", None)
    if code is not None:
        return ",".join(code.co_varnames[1 : code.co_argcount])
    return _parameters_of_text(member.__doc__ or "", r"\(self: [\w.:]+,? ?(.*)\) -> ")


def _parameters_of_text(text: str, pattern: str) -> str:
    found = re.search(pattern, text.strip().split("\n")[0])
    if found is None:
        return "?"
    parts, depth = [""], 0
    for character in found[1]:
        depth += (character in "[(<") - (character in "])>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    names = [part.split("=")[0].split(":")[0].split() for part in parts]
    return ",".join(name[-1] for name in names if name)


def differences(real: Dump) -> list[str]:
    """Where the stand-in of the same version differs, in words."""
    from tests.support.tensorrt_standin import make_tensorrt
    from tests.support.tensorrt_standin.cuda_runtime import make_module
    from tests.support.tensorrt_standin.versions import ENUMS, FULL

    version = next(short for short, full in FULL.items() if full == real["version"])
    trt, cuda, found = make_tensorrt(version), make_module(), []
    for name in ENUMS:
        ours, theirs = _members(getattr(trt, name)) if hasattr(trt, name) else None, real["enums"].get(name)
        if ours != theirs:
            found.append(f"{name} is {theirs}, and here {ours}")
    types = {name: value.name for name, value in sorted(vars(trt).items()) if isinstance(value, trt.DataType)}
    if types != real["types"]:
        found.append(f"the types are {real['types']}, and here {types}")
    found += class_differences(real["classes"], version)
    for name, value in vars(cuda).items():
        if name.startswith("cuda"):
            found += _cuda_differences(name, value, real["cuda"].get(name))
    return found


def class_differences(real: dict[str, dict[str, str]], version: Version) -> list[str]:
    """Return where classes of the stand-in differ from real ones; ``real`` has the members of each by its name."""
    from tests.support.tensorrt_standin import CLASSES as OURS, make_tensorrt
    from tests.support.tensorrt_standin.versions import Only

    trt, found = make_tensorrt(version), []
    for original in OURS:
        name = original.__name__.removeprefix("_")
        members = {(m.name or n) if isinstance(m, Only) else n for n, m in vars(original).items() if n[0] != "_"}
        for member in sorted(members - {"trt"}):
            known = real[name].get(member)
            shaped = getattr(trt, name)
            here = parameters(getattr(shaped, member)) if hasattr(shaped, member) else None
            if here != known and not (known == "?" and here is not None):
                found.append(f"{name}.{member} is {known}, and here {here}")
    return found


def _cuda_differences(name: str, ours: Any, theirs: Any) -> list[str]:
    if theirs is None:
        return [f"there is no {name} in CUDA's bindings"]
    if isinstance(ours, type):
        return [f"{name}.{n} is {theirs.get(n)}" for n, value in _members(ours).items() if theirs.get(n) != value]
    if not callable(ours):
        return []
    code = ours.__wrapped__.__code__
    wanted = len(theirs.split(",")) if theirs else 0
    return [] if theirs == "?" or code.co_argcount == wanted else [f"{name} takes {theirs}"]


def main(command: str, file: str = "") -> int:
    """Dump, or compare a dump; the exit status."""
    if command == "dump":
        text = json.dumps(dump(), indent=1, sort_keys=True) + "\n"
        Path(file).write_text(text, encoding="utf-8") if file else print(text, end="")
        return 0
    found = differences(json.loads(Path(file).read_text(encoding="utf-8")))
    print("\n".join(found) or "no difference")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
