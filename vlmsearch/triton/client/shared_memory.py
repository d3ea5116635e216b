"""Inputs in shared memory: on one host they need not go through gRPC."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import tritonclient.grpc as triton
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from vlmsearch.errors import BackendError, BackendUnavailableError

_FIRST_SIZE = 2**22
_REFUSED = ("restricted", "disabled", "client-shm", "client_shm")
"""What servers say that take no shared memory from clients."""


class Slot:
    """A region of shared memory, one of ``count``, that one request at a time puts its inputs into; it grows as needed.

    BackendError where there is not so much memory.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self._count = count
        self._memory = _reserve(_FIRST_SIZE, count)
        self._parts: list[tuple[triton.InferInput, bytes]] = []
        self._version = 0
        self.registered = ""
        self.is_stale = True
        """Whether the server may not know the region."""

    def put(self, tensor: triton.InferInput, array: NDArray[np.generic]) -> None:
        """Make ``array`` the content of ``tensor``."""
        if array.dtype == np.object_:
            data: bytes = serialize_byte_tensor(array).item()
        else:
            data = np.ascontiguousarray(array).tobytes()
        self._parts.append((tensor, data))

    def share(self, client: triton.InferenceServerClient, headers: Mapping[str, str], seconds: float) -> None:
        """Copy what was put, and tell the server of the region unless it knows, which may take so many seconds."""
        total = sum(len(data) for _, data in self._parts)
        if total > self._memory.size:
            larger = _reserve(2 * total, self._count)
            self._unregister(client, headers)
            _free(self._memory)
            self._memory = larger
            self._version += 1
            self.is_stale = True
        if self.is_stale:
            self._register(client, headers, seconds)
        memory, start = self._memory.buf, 0
        if memory is None:
            raise BackendError("the shared memory is closed")
        for tensor, data in self._parts:
            memory[start : start + len(data)] = data
            tensor.set_shared_memory(self.registered, len(data), offset=start)
            start += len(data)
        self._parts = []

    def clear(self) -> None:
        """Forget what was put."""
        self._parts = []

    def close(self, client: triton.InferenceServerClient, headers: Mapping[str, str]) -> None:
        """Give the memory back."""
        self._unregister(client, headers)
        self.free()

    def free(self) -> None:
        """Give the memory back without a word to the server."""
        _free(self._memory)

    def _register(self, client: triton.InferenceServerClient, headers: Mapping[str, str], seconds: float) -> None:
        """Tell the server of the region, always by one name: Triton fails where it knows it by another."""
        self.registered = f"{self.name}-{self._version}"
        try:
            client.register_system_shared_memory(
                self.registered,
                f"/{self._memory.name}",
                self._memory.size,
                headers=dict(headers),
                client_timeout=seconds,
            )
        except InferenceServerException as exc:
            message = exc.message() or ""
            if any(word in message for word in _REFUSED):
                raise BackendError(
                    f"the server takes no shared memory from clients ({message}): start it with `vlmsearch triton "
                    "serve --client-shm` (from 26.05 on with `-- --allow-client-shm=true`), or leave shared_memory out"
                ) from exc
            if exc.status() != "StatusCode.ALREADY_EXISTS":
                raise
        self.is_stale = False

    def _unregister(self, client: triton.InferenceServerClient, headers: Mapping[str, str]) -> None:
        if self.registered:
            with suppress(InferenceServerException):
                client.unregister_system_shared_memory(self.registered, headers=dict(headers), client_timeout=2)
        self.registered = ""


def _reserve(size: int, count: int) -> SharedMemory:
    """Memory with all its pages: without them, the kernel would end the process that writes to it."""
    memory = None
    try:
        memory = SharedMemory(create=True, size=size)
        with open(f"/dev/shm/{memory.name}", "r+b") as file:  # noqa: S108
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as exc:
        if memory:
            _free(memory)
        raise BackendError(
            f"/dev/shm has no {_mib(size)} left ({exc.strerror}), and {count} requests at a time need "  # noqa: S108
            f"{_mib(count * size)}: give it more (`docker run --shm-size=SIZE`), or leave shared_memory out"
        ) from exc
    return memory


def _mib(size: int) -> str:
    return f"{-(-size // 2**20)} MiB"


def _free(memory: SharedMemory) -> None:
    memory.close()
    memory.unlink()


class SharedSlots:
    """As many slots as there are requests at a time; BackendError where there is not so much memory."""

    def __init__(self, count: int) -> None:
        self._all: list[Slot] = []
        self._free: queue.Queue[Slot] = queue.Queue()
        self._lock = threading.Lock()
        self._stale: set[str] = set()
        try:
            for number in range(count):
                self._all.append(Slot(f"vlmsearch-{os.getpid()}-{id(self):x}-{number}", count))
                self._free.put(self._all[-1])
        except BackendError:
            for slot in self._all:
                slot.free()
            raise

    def take(self, seconds: float) -> Slot:
        """Return a slot that nobody uses; BackendUnavailableError where none comes free for so many seconds."""
        try:
            slot = self._free.get(timeout=max(seconds, 0))
        except queue.Empty:
            raise BackendUnavailableError(
                f"no shared memory came free in time: requests not answered hold all its regions ({len(self._all)})"
            ) from None
        with self._lock:
            if slot.name in self._stale:
                self._stale.discard(slot.name)
                slot.is_stale = True
        return slot

    def give_back(self, slot: Slot) -> None:
        """Note that the slot's request is answered."""
        slot.clear()
        self._free.put(slot)

    def forget(self) -> None:
        """Forget all slots: the server may have been restarted, and know none any more."""
        with self._lock:
            self._stale.update(slot.name for slot in self._all)

    def close(self, client: triton.InferenceServerClient, headers: Mapping[str, str]) -> None:
        """Give all memory back."""
        slots, self._all = self._all, []
        for slot in slots:
            slot.close(client, headers)
