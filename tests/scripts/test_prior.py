"""What is shipped knows of no built-in network: what a search knows of those it has measured."""

import pytest

from release_ray.core import prior
from release_ray.core.settings import TuneSettings
from release_ray.prepare import local_devices, prepare
from release_ray.sketches import Sketches


@pytest.mark.parametrize("network", ["tiny", "alexnet", "resnet18", "vgg16"])
def test_no_operator_of_a_built_in_network_is_in_it(network):
    settings = TuneSettings()
    known = {task.space for task in prior.shipped().tasks}
    tasks = prepare(network, settings, local_devices(settings)).tasks
    spaces = [Sketches(task).space for task in tasks if "conv" in task.name or "mat" in task.name]
    assert spaces
    assert not known & set(spaces)
