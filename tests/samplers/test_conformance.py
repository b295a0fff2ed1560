import pytest

import samplers
from release_ray.core.settings import SamplerSettings
from release_ray.testing.samplers import SamplerSuite
from samplers.base import Sampler


@pytest.mark.parametrize("name", samplers.REGISTERED)
class TestRegistered(SamplerSuite):
    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make(self, settings: SamplerSettings) -> Sampler:
        return samplers.create(self.name, settings)
