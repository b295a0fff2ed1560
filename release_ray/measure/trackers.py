"""TVM's RPC trackers: which boards there are, and a session on one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from release_ray.core.errors import InputError
from release_ray.measure.hosts import answers

FORM = "rpc://host:port/key"
_LAST_PORT = 65535


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
        servers = self._tracker().summary()["server_info"]
        keys = [str(server["key"]).removeprefix("server:") for server in servers]
        if self.key not in keys:
            known = ", ".join(sorted(set(keys))) or "none at all"
            raise InputError(
                f"devices: the tracker at {self.host}:{self.port} knows no board {self.key!r}"
                f" (known: {known}); start one with python -m tvm.exec.rpc_server"
                f" --tracker {self.host}:{self.port} --key {self.key}"
            )
        return keys.count(self.key)

    def session(self, limit_s: float) -> Any:
        """A session on a free board; waits for one. The board ends it after `limit_s`."""
        return self._tracker().request(self.key, session_timeout=max(1, round(limit_s)))

    def _tracker(self) -> Any:
        from tvm.rpc import connect_tracker

        try:
            # TVM asks again and again, for minutes.
            if answers(f"{self.host}:{self.port}"):
                return connect_tracker(self.host, self.port)
        except (OSError, RuntimeError):
            pass  # it has just gone, or is something else
        raise InputError(
            f"devices: no RPC tracker answers at {self.host}:{self.port}; start one with"
            f" python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {self.port}"
        )
