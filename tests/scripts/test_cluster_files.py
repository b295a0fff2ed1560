"""The cluster files: of the form that those who read them have published."""

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml

CLUSTER = Path("scripts") / "cluster"


@pytest.fixture
def read(pytestconfig):
    return lambda name: yaml.safe_load((pytestconfig.rootpath / CLUSTER / name).read_text())


def closed(schema: Any) -> Any:
    """As Kubernetes takes a schema: a field that it does not name is a mistake."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or (
        "additionalProperties" in schema
    )
    if isinstance(schema.get("properties"), dict) and "type" in schema and not open_ended:
        made["additionalProperties"] = False
    return made


@pytest.fixture(scope="module")
def rayjob_schema(pytestconfig):
    packed = pytestconfig.rootpath / "tests" / "data" / "kuberay_rayjob_v1.json.gz"
    schema = json.loads(gzip.decompress(packed.read_bytes()))
    # Every resource has these, and Kubernetes checks them itself.
    schema["properties"]["metadata"] = {}
    return closed(schema)


def test_the_cluster_file_is_one_of_rays(read):
    config = read("ray-cluster.yaml")
    schema = json.loads(Path(ray.autoscaler.__file__).with_name("ray-schema.json").read_text())
    jsonschema.validate(config, schema)
    assert config["head_node_type"] in config["available_node_types"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**config, "max_worker": 3}, schema)


def test_the_rayjob_is_one_of_kuberays(read, rayjob_schema):
    manifest = read("rayjob.yaml")
    jsonschema.validate(manifest, rayjob_schema)
    (group,) = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    wrong = {**manifest, "spec": {**manifest["spec"], "entryPoint": "python x.py"}}
    with pytest.raises(jsonschema.ValidationError, match="entryPoint"):
        jsonschema.validate(wrong, rayjob_schema)


def test_images_have_the_ray_that_was_tested(read, pytestconfig):
    pins = (pytestconfig.rootpath / "constraints.txt").read_text().split()
    (version,) = (pin.split("==")[1] for pin in pins if pin.startswith("ray=="))
    spec = read("rayjob.yaml")["spec"]["rayClusterSpec"]
    docker = read("ray-cluster.yaml")["docker"]
    images = [docker["head_image"], docker["worker_image"]]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        images += [container["image"] for container in group["template"]["spec"]["containers"]]
    assert spec["rayVersion"] == version and len(images) == 4
    assert all(image.startswith(f"rayproject/ray:{version}-py311") for image in images)


def test_the_entrypoint_is_there(read, pytestconfig):
    _, script, _, config = read("rayjob.yaml")["spec"]["entrypoint"].split()
    assert (pytestconfig.rootpath / script).exists() and (pytestconfig.rootpath / config).exists()
