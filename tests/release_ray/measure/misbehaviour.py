"""Functions that a worker process is told to run, each a way to go wrong."""

import os
import sys
import time

import numpy as np


def echo(value):
    return value


def pid():
    return os.getpid()


def affinity():
    return sorted(os.sched_getaffinity(0)), os.environ["TVM_NUM_THREADS"]


def exit_with(status):
    os._exit(status)


def say_and_die(text, number):
    sys.stderr.write(f"some backtrace\n{text}\n")
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    time.sleep(10)


def flood(megabytes):
    line = b"x" * 1023 + b"\n"
    for _ in range(1024 * megabytes):
        os.write(2, line)
    return megabytes


def flood_for_ever():
    while True:
        os.write(2, b"x" * 65536)


def eat_memory():
    kept = []
    while True:
        kept.append(np.ones(2**22))


class Unreadable:
    """Pickles, and does not unpickle."""

    def __reduce__(self):
        return (int, ("no number",))


def answer_like_no_other():
    return Unreadable()


def unpicklable():
    return lambda: None


def raise_like_tvm():
    raise RuntimeError("Traceback (most recent call last):\n  2: tvm::f\n  1: g\nthe reason\n")
