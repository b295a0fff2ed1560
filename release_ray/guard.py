"""Ends what a killed program's Ray leaves behind: `python guard.py`, told of processes by stdin.

Two of Ray's agents, when the program that started it is killed, wait a minute for the rest of it.
This waits for the end of its standard input, which is that program's end, gives the processes a
moment to go by themselves, and kills those that have not. It imports nothing of the package: it
starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

GRACE_S = 3.0


def started(pid: int) -> str:
    """When a process was started, in the kernel's ticks: another one with its id differs."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


def end(marks: dict[int, str]) -> None:
    """Kills the processes that are still those which were marked (id: `started`)."""
    for pid, mark in marks.items():
        with suppress(OSError):
            if started(pid) == mark:
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    marks = {}
    for line in sys.stdin:
        pid, mark = line.split()
        marks[int(pid)] = mark
    time.sleep(GRACE_S)
    end(marks)


if __name__ == "__main__":
    main()
