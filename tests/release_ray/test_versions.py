from release_ray.versions import versions


def test_versions():
    found = versions()
    assert {"python", "release_ray", "apache-tvm", "ray", "torch"} <= set(found)
