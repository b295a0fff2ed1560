"""How a pool knows who uses it: a connection that a run holds for as long as it lives.

The operating system closes it when the run's process ends, however it ends, so the pool learns of
that at once. A process that only thinks hard, or holds Python's lock for minutes while it compiles,
keeps its lease. Where a whole host goes away nobody closes anything: there the kernel's keep-alive
messages are the heartbeats.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_HEARTBEAT_S = 1
_MISSED = 4


class LeaseOffice:
    """The pool's side: it is told when a run comes, which it may refuse, and when it has gone."""

    def __init__(self, came: Callable[[str], bool], gone: Callable[[str], None]) -> None:
        self._came = came
        self._gone = gone
        self._server: asyncio.Server | None = None

    async def open(self, host: str) -> int:
        """Listens on a port of its own, and returns it."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Takes no more runs."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _keep_alive(writer.get_extra_info("socket"))
        run, taken = "", False
        try:
            run = (await reader.readline()).decode().strip()
            taken = bool(run) and self._came(run)
            if taken:
                writer.write(b"welcome\n")
                await reader.read()
        except OSError:
            pass  # a host that went away: as good as an end
        finally:
            writer.close()
            if taken:
                self._gone(run)


class Lease:
    """A run's side. It ends with `release`, or with the process."""

    def __init__(self, address: tuple[str, int], run: str) -> None:
        """Raises `OSError` where the pool cannot be reached."""
        self._socket = socket.create_connection(address, timeout=10)
        # A child that is forked, or a program that is started, must not hold it any longer.
        self._socket.set_inheritable(False)
        _keep_alive(self._socket)
        self._socket.sendall(f"{run}\n".encode())
        if not self._socket.recv(16):
            raise ConnectionError("the pool has just ended")

    def release(self) -> None:
        """Ends the lease; a second time does nothing."""
        self._socket.close()


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _HEARTBEAT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _HEARTBEAT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _MISSED)
