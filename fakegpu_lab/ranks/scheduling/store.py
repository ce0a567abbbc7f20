"""The key-value stores by which ranks find each other, for ranks of one process.

A `torch.distributed.Store` in Python: a rank that waits for a key lets other ranks run. It replaces TCPStore and
FileStore while ranks run; stores with the same address or the same file share their keys.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DEFAULT_TIMEOUT = dt.timedelta(seconds=300)


class KeyWait:
    """A wait for keys of a store, as messages about hangs describe it."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)

    def __str__(self) -> str:
        return f"the key {self.keys[0]!r} of a store" if len(self.keys) == 1 else f"the keys {self.keys} of a store"


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class RankStore(dist.Store):  # type: ignore[misc]
    """A store that ranks of one process share; all stores of one address have the same `data`."""

    def __init__(self, data: dict[str, bytes]) -> None:
        super().__init__()
        self._data = data
        self._timeout = _DEFAULT_TIMEOUT

    def set(self, key: str, value: Any) -> None:
        """Set a key."""
        self._data[key] = _bytes(value)

    def get(self, key: str) -> bytes:
        """The key's value; waits until the key is set."""
        self.wait([key])
        return self._data[key]

    def add(self, key: str, value: int) -> int:
        """Add to a counter, and return its new value."""
        total = int(self._data.get(key, b"0")) + value
        self._data[key] = str(total).encode()
        return total

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Set a key if it has the expected value; return its value afterwards."""
        wanted, new = _bytes(expected), _bytes(desired)
        found = self._data.get(key)
        if (found is None and not wanted) or found == wanted:
            self._data[key] = new
            return new
        return wanted if found is None else found

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are set; if not, lets other ranks run first, so that a loop that polls it ends."""
        me = current_rank()
        if me is not None and not self._has(keys):
            me.give_way(Waiting(lambda: self._has(keys), KeyWait(keys)))
        return self._has(keys)

    def _has(self, keys: Sequence[str]) -> bool:
        return all(key in self._data for key in keys)

    def wait(self, keys: list[str], timeout: dt.timedelta | None = None) -> None:
        """Wait until all keys are set."""
        if self._has(keys):
            return
        me = current_rank()
        if me is None:
            raise dist.DistStoreError(f"wait timeout after {self._timeout}, keys: {', '.join(keys)}")
        me.wait(Waiting(lambda: self._has(keys), KeyWait(keys)))

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether it was set."""
        return self._data.pop(key, None) is not None

    def num_keys(self) -> int:
        """The number of keys."""
        return len(self._data)

    def list_keys(self) -> list[str]:
        """All keys."""
        return list(self._data)

    def append(self, key: str, value: Any) -> None:
        """Append to a key's value."""
        self._data[key] = self._data.get(key, b"") + _bytes(value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of several keys; waits until all are set."""
        self.wait(keys)
        return [self._data[key] for key in keys]

    def multi_set(self, keys: list[str], values: Sequence[Any]) -> None:
        """Set several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """True: `append`, `multi_get` and `multi_set` exist."""
        return True

    def set_timeout(self, timeout: dt.timedelta) -> None:
        """Keep the timeout, without effect: a wait that cannot end is reported at once."""
        self._timeout = timeout

    @property
    def timeout(self) -> dt.timedelta:
        """The timeout that was set."""
        return self._timeout

    def clone(self) -> RankStore:
        """Another client of the same store."""
        return RankStore(self._data)


def substitute(real: Any, data_of: Callable[..., dict[str, bytes]]) -> Any:
    """The class that replaces the store class `real` while ranks run.

    Parameters
    ----------
    data_of
        Finds a store's keys from the arguments of its constructor.
    """

    class Substitute(real):  # type: ignore[misc]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            rank = current_rank()
            if rank is None:
                return super().__new__(cls, *args, **kwargs)
            store = RankStore(data_of(*args, **kwargs))
            rank.local.setdefault("stores", []).append(store)  # a PrefixStore keeps only the C++ half
            return store

    Substitute.__name__ = Substitute.__qualname__ = real.__name__
    Substitute.__module__ = real.__module__
    return Substitute


def stores(data: dict[Any, dict[str, bytes]]) -> dict[str, Any]:
    """The substitutes of one run, by name; their stores keep their keys in `data`, by address."""

    def tcp(host_name: str, port: int, *args: Any, **kwargs: Any) -> dict[str, bytes]:
        return data.setdefault((host_name, port), {})

    def file(file_name: str, *args: Any, **kwargs: Any) -> dict[str, bytes]:
        return data.setdefault(str(file_name), {})

    return {"TCPStore": substitute(dist.TCPStore, tcp), "FileStore": substitute(dist.FileStore, file)}
