"""What TensorBoard is told of a run."""

import struct

import pytest

from release_ray.core.statuses import Status
from release_ray.events import Measured, RoundFinished, RoundPlanned, RunStarted, TaskSummary
from release_ray.scalars import Scalars


def told(folder):
    """(name, step, value) of everything in the files of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    entries = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            # A TFRecord: length, its checksum, the entry, its checksum.
            (length,) = struct.unpack("<Q", data[:8])
            entry = Event.FromString(data[12 : 12 + length])
            entries += [(v.tag, entry.step, v.simple_value) for v in entry.summary.value]
            data = data[16 + length :]
    return entries


def started(trials):
    tasks = (TaskSummary("conv", 1, 1e9, trials, None),)
    return RunStarted("net", "{}", ("cpu:0",), tasks, None, None, 0.0)


def planned(number, **metrics):
    return RoundPlanned("conv", number, 8, 0, 3, 0.5, metrics)


def measured(trials, best_s):
    return Measured("conv", Status.OK, best_s, "", "cpu:0", trials, best_s)


def test_values_stand_over_the_trials_of_their_task(tmp_path):
    scalars = Scalars(tmp_path)
    events = [
        started(16),
        planned(0, entropy=0.25),
        measured(24, 2e-3),
        RoundFinished("conv", 0, 9.0),
        planned(1, foresight=-0.5),
    ]
    for event in events:
        scalars(event)
    scalars.close()
    assert told(tmp_path) == [
        ("conv/entropy", 16, 0.25),
        ("conv/clusters", 16, 3),
        ("conv/search_cpu_s", 16, 0.5),
        ("conv/best_ms", 24, 2.0),
        ("conv/foresight", 24, -0.5),
        ("conv/clusters", 24, 3),
        ("conv/search_cpu_s", 24, 0.5),
    ]


def test_nothing_is_written_before_the_first_round_is_over(tmp_path):
    scalars = Scalars(tmp_path)
    scalars(started(0))
    scalars(planned(0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["missing", "file/below"])
def test_a_file_that_cannot_be_written_stops_nothing(tmp_path, folder):
    (tmp_path / "file").touch()
    scalars = Scalars(tmp_path / folder)
    for event in (started(0), planned(0), RoundFinished("conv", 0, 1.0)):
        scalars(event)
    scalars.close()
