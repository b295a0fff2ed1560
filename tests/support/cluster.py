"""A Ray cluster as an operator starts it, of processes of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

START_S = 60.0
# Else a local Ray may have written a token that one side demands and the other does not send.
ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Running:
    """A cluster: its dashboard's address, its own, and the folder that its processes name."""

    jobs: str
    address: str
    folder: Path


def environment() -> dict[str, str]:
    """Of programs that talk to the cluster."""
    here = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**here, **ENVIRONMENT}


@contextmanager
def started(bin_dir: Path, cpus: int = 2) -> Iterator[Running]:
    """A cluster of one node, by `ray start` of an installation.

    It is ended by the ids of its processes: `ray stop` would end every Ray of the machine.
    """
    # The names of its sockets may have 107 characters in all.
    with tempfile.TemporaryDirectory(prefix="rr-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            yield _start(bin_dir, folder, cpus)
        finally:
            for process in of_cluster(folder):
                with suppress(psutil.Error):
                    process.kill()


def _start(bin_dir: Path, folder: Path, cpus: int) -> Running:
    port, dashboard, client, agent = _free_ports(4)
    command = [
        *(str(bin_dir / "ray"), "start", "--head", f"--port={port}", f"--num-cpus={cpus}"),
        *(f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
        *(f"--ray-client-server-port={client}", f"--temp-dir={folder}", "--include-dashboard=1"),
        *("--disable-usage-stats", "--object-store-memory=200000000"),
    ]
    # Not a pipe: its daemons would hold the other end for as long as they live.
    with (folder / "start.log").open("wb") as log:
        subprocess.run(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=START_S,
            check=True,
        )
    _until_answers(dashboard)
    return Running(f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{port}", folder)


def of_cluster(folder: Path) -> list[psutil.Process]:
    """The cluster's processes: its folder is in their command line, or in a parent's."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(folder) in " ".join(process.cmdline()):
                found |= {process, *process.children(recursive=True)}
    return list(found)


def _until_answers(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    """Free at the moment, and below those that Ray's workers take by themselves."""
    found = []
    for port in range(7301, 9999):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")
