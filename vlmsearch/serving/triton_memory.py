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

from vlmsearch.errors import BackendError

_FIRST_SIZE = 2**22


class Slot:
    """A region of shared memory that one request at a time puts its inputs into; it grows as needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._memory = SharedMemory(create=True, size=_FIRST_SIZE)
        self._parts: list[tuple[triton.InferInput, bytes]] = []
        self._version = 0
        self.registered = ""

    def put(self, tensor: triton.InferInput, array: NDArray[np.generic]) -> None:
        """Make ``array`` the content of ``tensor``."""
        if array.dtype == np.object_:
            data: bytes = serialize_byte_tensor(array).item()
        else:
            data = np.ascontiguousarray(array).tobytes()
        self._parts.append((tensor, data))

    def share(self, client: triton.InferenceServerClient, headers: Mapping[str, str]) -> None:
        """Copy what was put, and tell the server of the region unless it knows."""
        total = sum(len(data) for _, data in self._parts)
        if total > self._memory.size:
            self._unregister(client, headers)
            self._free()
            self._memory = SharedMemory(create=True, size=2 * total)
        if not self.registered:
            self._version += 1
            name = f"{self.name}-{self._version}"
            client.register_system_shared_memory(
                name, f"/{self._memory.name}", self._memory.size, headers=dict(headers)
            )
            self.registered = name
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
        self._free()

    def _unregister(self, client: triton.InferenceServerClient, headers: Mapping[str, str]) -> None:
        if self.registered:
            with suppress(InferenceServerException):
                client.unregister_system_shared_memory(self.registered, headers=dict(headers), client_timeout=2)
        self.registered = ""

    def _free(self) -> None:
        self._memory.close()
        self._memory.unlink()


class SharedSlots:
    """As many slots as there are requests at a time."""

    def __init__(self, count: int) -> None:
        self._all = [Slot(f"vlmsearch-{os.getpid()}-{id(self):x}-{number}") for number in range(count)]
        self._free: queue.Queue[Slot] = queue.Queue()
        self._lock = threading.Lock()
        self._stale: set[str] = set()
        for slot in self._all:
            self._free.put(slot)

    def take(self) -> Slot:
        """A slot that nobody uses."""
        slot = self._free.get()
        with self._lock:
            if slot.name in self._stale:
                self._stale.discard(slot.name)
                slot.registered = ""
        return slot

    def give_back(self, slot: Slot) -> None:
        """The slot's request is answered."""
        slot.clear()
        self._free.put(slot)

    def forget(self) -> None:
        """The server may have been restarted, and know no slot any more."""
        with self._lock:
            self._stale.update(slot.name for slot in self._all)

    def close(self, client: triton.InferenceServerClient, headers: Mapping[str, str]) -> None:
        """Give all memory back."""
        for slot in self._all:
            slot.close(client, headers)
