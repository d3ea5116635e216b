"""Which optimization profile and which shapes a batch runs with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.tensorrt.engine.plans import Profile, Shape
from vlmsearch.tensorrt.engine.runtime import Program
from vlmsearch.tensorrt.engine.slots import Step

_ALWAYS_PADDED = 8  # batches that take the GPU less time than the CPU takes to launch them


class Steps:
    """The steps of one program; ``graphs`` are the batch sizes that run as graphs.

    ``usual`` are the batch sizes that the program was tuned for. It takes ``min_batch`` to ``max_batch`` rows.
    ``sizes`` are the most elements of a row of each input and of the output.
    """

    def __init__(self, program: Program, graphs: Sequence[int]) -> None:
        self._names = [tensor.name for tensor in program.inputs]
        self._profiles = program.profiles
        self._graphs = sorted(set(graphs))
        self._steps: dict[tuple[int, int, tuple[Shape, ...], bool], Step] = {}
        self.usual = sorted({profile[0].opt[0] for profile in program.profiles})
        self.min_batch = min(_min_rows(profile) for profile in program.profiles)
        self.max_batch = max(_max_rows(profile) for profile in program.profiles)
        self.sizes = {
            r.input: max(_row(profile, i) for profile in program.profiles)
            for i, r in enumerate(program.profiles[0])
        } | {program.output.name: int(np.prod(program.output.shape[1:]))}  # fmt: skip

    def limit(self, max_rows: int | None) -> int:
        """Return the greatest batch, of up to ``max_rows``; ConfigError where the program computes more at least."""
        if max_rows and max_rows < self.min_batch:
            raise ConfigError(f"the plan computes {self.min_batch} rows at least, not {max_rows}")
        return min(max_rows or self.max_batch, self.max_batch)

    def batch_for(self, shapes: Mapping[str, Shape]) -> int:
        """Return the most rows of such inputs that fit one profile; BackendError where none takes them."""
        tails = self._tails(shapes)
        fitting = [_max_rows(profile) for profile in self._profiles if _fits(profile, tails)]
        if not fitting:
            raise BackendError(f"the plan takes {self._said()}, not {_shapes_said(shapes)}")
        return max(fitting)

    def profiles_for(self, rows: int) -> set[int]:
        """Return the profiles that batches of up to ``rows`` run with."""
        tails = {tail for profile in self._profiles for tail in (_tails(profile, "min"), _tails(profile, "max"))}
        profiles = set()
        for tail in tails:  # what fits a tail in between fits one of these
            max_rows = max(_max_rows(profile) for profile in self._profiles if _fits(profile, tail))
            profiles |= {self._profile(count, tail) for count in range(1, min(max_rows, rows) + 1)}
        return profiles

    def find(self, rows: int, shapes: Mapping[str, Shape], *, max_rows: int) -> Step:
        """Return the step for a batch of ``rows``, which computes up to ``max_rows``."""
        tails = self._tails(shapes)
        key = (rows, max_rows, tails, True)
        step = self._steps.get(key)
        if step is None:
            max_rows = min(max_rows, self.batch_for(shapes))
            padded = next((size for size in self._graphs if size >= rows), 0)
            if padded <= max_rows and (padded <= _ALWAYS_PADDED or (padded - rows) * 8 <= padded) and padded:
                step = self._step(padded, tails, graph=True)
            else:
                step = self._step(rows, tails, graph=False)
            if step.rows > max_rows:
                raise BackendError(f"the plan computes {step.rows} rows at least, and there is memory for {max_rows}")
            self._steps[key] = step
        return step

    def exact(self, rows: int, shapes: Mapping[str, Shape]) -> Step:
        """Return the step that computes ``rows`` and no more, as a graph."""
        return self._step(rows, self._tails(shapes), graph=True)

    def _step(self, rows: int, tails: tuple[Shape, ...], *, graph: bool) -> Step:
        profile = self._profile(rows, tails)
        rows = max(rows, _min_rows(self._profiles[profile]))
        key = (rows, 0, tails, graph)  # one object for all batches that are padded to it
        step = self._steps.get(key)
        if step is None:
            shapes = tuple((name, (rows, *tail)) for name, tail in zip(self._names, tails))
            step = self._steps.setdefault(key, Step(profile, rows, shapes, graph))  # threads must agree on one
        return step

    def _profile(self, rows: int, tails: tuple[Shape, ...]) -> int:
        """Return the smallest profile that takes them.

        Of several alike, it is the one whose best shape is nearest.
        """
        fitting = [
            (max(rows, _min_rows(profile)), _volume(profile), abs(profile[0].opt[0] - rows), index)
            for index, profile in enumerate(self._profiles)
            if _max_rows(profile) >= rows and _fits(profile, tails)
        ]
        if not fitting:
            raise BackendError(f"the plan takes {self._said()}, not {rows} x {tails}")
        return min(fitting)[-1]

    def _tails(self, shapes: Mapping[str, Shape]) -> tuple[Shape, ...]:
        return tuple(shapes[name][1:] for name in self._names)

    def _said(self) -> str:
        return " or ".join(
            ", ".join(f"{r.input} from {r.min} to {r.max}" for r in profile) for profile in self._profiles
        )


def _shapes_said(shapes: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())


def _max_rows(profile: Profile) -> int:
    return min(r.max[0] for r in profile)


def _min_rows(profile: Profile) -> int:
    return max(r.min[0] for r in profile)


def _tails(profile: Profile, end: Literal["min", "max"]) -> tuple[Shape, ...]:
    return tuple(getattr(r, end)[1:] for r in profile)


def _row(profile: Profile, index: int) -> int:
    return int(np.prod(profile[index].max[1:]))


def _volume(profile: Profile) -> int:
    return sum(int(np.prod(r.max)) for r in profile)


def _fits(profile: Profile, tails: tuple[Shape, ...]) -> bool:
    return all(
        len(tail) == len(r.max) - 1 and all(low <= size <= high for low, size, high in zip(r.min[1:], tail, r.max[1:]))
        for r, tail in zip(profile, tails)
    )
