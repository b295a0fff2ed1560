"""A pool learns at once that a run has ended, however it ended."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from release_ray.measure.lease import Lease, LeaseOffice

PROGRAM = """
import sys, time
from release_ray.measure.lease import Lease
lease = Lease(("127.0.0.1", int(sys.argv[1])), "run")
print("leased", flush=True)
time.sleep(60)
"""


class Book:
    """What an office was told, in order."""

    def __init__(self):
        self.entries = []
        self.full = False
        self.office = LeaseOffice(self.came, lambda run: self.entries.append(f"{run} gone"))

    def came(self, run):
        if not self.full:
            self.entries.append(f"{run} came")
        return not self.full

    async def until(self, entry):
        async with asyncio.timeout(10):
            while entry not in self.entries:
                await asyncio.sleep(0.01)


def test_a_lease_lasts_from_its_making_to_its_release():
    async def work():
        book = Book()
        address = ("127.0.0.1", await book.office.open("127.0.0.1"))
        one = await asyncio.to_thread(Lease, address, "one")
        two = await asyncio.to_thread(Lease, address, "two")
        assert sorted(book.entries) == ["one came", "two came"]
        two.release()
        await book.until("two gone")
        assert "one gone" not in book.entries
        one.release()
        one.release()
        await book.until("one gone")
        book.office.close()

    asyncio.run(work())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_has_gone(number):
    async def work():
        book = Book()
        port = await book.office.open("127.0.0.1")
        command = [sys.executable, "-c", PROGRAM, str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            await book.until("run came")
            os.kill(program.pid, number)
        await book.until("run gone")
        book.office.close()

    asyncio.run(work())


def test_a_pool_that_is_ending_takes_nobody():
    async def work():
        book = Book()
        book.full = True
        address = ("127.0.0.1", await book.office.open("127.0.0.1"))
        with pytest.raises(ConnectionError, match="has just ended"):
            await asyncio.to_thread(Lease, address, "late")
        book.office.close()
        return book.entries

    assert asyncio.run(work()) == []


def test_without_an_office_there_is_no_lease():
    async def work():
        book = Book()
        port = await book.office.open("127.0.0.1")
        book.office.close()
        return port

    port = asyncio.run(work())
    with pytest.raises(OSError, match="refused"):
        Lease(("127.0.0.1", port), "run")
