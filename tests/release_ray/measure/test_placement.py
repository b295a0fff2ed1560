"""Where builders go."""

from release_ray.measure import devices
from release_ray.measure.hosts import Gpu, Host
from release_ray.measure.placement import spread_builders

GIB = 2**30
GPU = Gpu("NVIDIA H100")


def host(node, cores, memory_gib=64, gpus=0):
    return Host(
        node, f"machine of {node}", "p", tuple(range(cores)), memory_gib * GIB, (GPU,) * gpus, node
    )


def test_builders_take_the_cores_that_devices_leave():
    one = [host("", 2)]
    assert spread_builders(one, devices.expand("cpu", one)) == [""]
    two = [host("a", 4), host("b", 8)]
    nodes = spread_builders(two, devices.expand("cpu:1x2", two))
    assert (nodes.count("a"), nodes.count("b")) == (4, 6)


def test_there_is_one_at_least_and_memory_bounds_them():
    full = [host("a", 1)]
    assert spread_builders(full, devices.expand("cpu", full)) == ["a"]
    small = [host("a", 64, memory_gib=3, gpus=1)]
    assert len(spread_builders(small, devices.expand("cuda", small))) == 3


def test_a_gpu_keeps_a_core_to_itself():
    gpus = [host("a", 4, gpus=2), host("b", 3)]
    nodes = spread_builders(gpus, devices.expand("cuda", gpus))
    assert (nodes.count("a"), nodes.count("b")) == (2, 3)


def test_as_many_as_were_asked_for():
    two = [host("a", 2), host("b", 4)]
    assert spread_builders(two, devices.expand("sim:2", two), 3) == ["b", "b", "a"]
    assert spread_builders(two, devices.expand("sim:2", two)) == ["b"]
    assert spread_builders(two, devices.expand("sim:2", two), 0) == []
