"""TVM's RPC trackers: which boards there are, and a session on one."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass
from typing import Any

from release_ray.core.errors import InputError

FORM = "rpc://host:port/key"
_LAST_PORT = 65535
_REACH_S = 5.0


@dataclass(frozen=True)
class BoardAddress:
    """Boards of one sort: those that a tracker knows by a key. `kind`: TVM's name of the device."""

    host: str
    port: int
    key: str
    kind: str = "cpu"

    def __str__(self) -> str:
        return f"rpc://{self.host}:{self.port}/{self.key}?{self.kind}"

    @classmethod
    def parse(cls, text: str) -> BoardAddress:
        """Reads `rpc://host:port/key`, or that with `?cuda`. Raises `InputError`."""
        match = re.fullmatch(r"rpc://([^/:?]+):(\d+)/([^/?]+)(?:\?(\w+))?", text)
        if match is None:
            raise InputError(f"devices: cannot read {text}; write {FORM}")
        host, port, key, kind = match.groups()
        if int(port) > _LAST_PORT:
            raise InputError(f"devices: {text}: ports end at {_LAST_PORT}")
        return cls(host, int(port), key, kind or "cpu")

    def boards(self) -> int:
        """How many the tracker knows, busy ones too. Raises `InputError` where it knows none."""
        keys = self._keys()
        if self.key not in keys:
            known = ", ".join(sorted(set(keys))) or "none at all"
            raise InputError(
                f"devices: the tracker at {self.host}:{self.port} knows no board {self.key!r}"
                f" (known: {known}); start one with {self._server_command()}"
            )
        return keys.count(self.key)

    def lost(self) -> str:
        """Why there is no such board any more; empty while there is one.

        TVM's server gives its board up when a kernel kills its session, and does not end.

        Raises:
            InputError: the tracker does not answer either.
        """
        if self.key in self._keys():
            return ""
        return (
            f"the tracker at {self.host}:{self.port} has no board {self.key!r} any more, as when a"
            f" kernel crashes TVM's server: end that, and start {self._server_command()}"
        )

    def _server_command(self) -> str:
        return f"python -m tvm.exec.rpc_server --tracker {self.host}:{self.port} --key {self.key}"

    def _keys(self) -> list[str]:
        """The keys of all boards that the tracker knows."""
        try:
            servers = self._tracker().summary()["server_info"]
        except (OSError, RuntimeError):
            raise self._no_tracker() from None
        return [str(server["key"]).removeprefix("server:") for server in servers]

    def session(self, limit_s: float) -> Any:
        """A session on a free board; waits for one. The board ends it after `limit_s`."""
        return self._tracker().request(self.key, session_timeout=max(1, round(limit_s)))

    def _tracker(self) -> Any:
        from tvm.rpc import connect_tracker

        try:
            # TVM asks again and again, for minutes, and waits for ever for one that is silent.
            self._greet()
            return connect_tracker(self.host, self.port)
        except (OSError, RuntimeError, struct.error):
            # It has just gone, or is something else.
            raise self._no_tracker() from None

    def _greet(self) -> None:
        """Raises `OSError` or `struct.error` where no tracker returns the greeting."""
        from tvm.rpc.base import RPC_TRACKER_MAGIC

        greeting = struct.pack("<i", RPC_TRACKER_MAGIC)
        with socket.create_connection((self.host, self.port), _REACH_S) as connection:
            connection.sendall(greeting)
            if connection.recv(len(greeting), socket.MSG_WAITALL) != greeting:
                raise ConnectionError("it returns another greeting")

    def _no_tracker(self) -> InputError:
        return InputError(
            f"devices: no RPC tracker answers at {self.host}:{self.port}; start one with"
            f" python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {self.port}"
        )
