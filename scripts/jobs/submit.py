"""Submits a tuning job or a sweep to a Ray cluster, after looking at what would go wrong there.

    python scripts/jobs/submit.py --address http://HEAD:8265 --config scripts/jobs/tune.yaml

Does the same as `ray job submit` with `tune.py` or `sweep.py`. Before, it reads the file as the job
will, says what would be uploaded, and compares the versions of Ray. Then it follows the job's log.
"""

import argparse
import asyncio
import logging
import shlex
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from release_ray.cli import explained, serve
from release_ray.configuration import read_yaml
from release_ray.core.errors import InputError, WorkFailed
from release_ray.job import is_sweep, load_sweep_job, load_tune_job
from release_ray.networks import BUILT_IN_NAMES
from release_ray.networks.files import first_line

HERE = Path(__file__).resolve().parent
MIB = 2**20
LARGEST = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the job's YAML file")
    parser.add_argument(
        "--address", default="http://127.0.0.1:8265", help="of the cluster's dashboard"
    )
    parser.add_argument("--runtime-env", type=Path, default=HERE / "runtime_env.yaml")
    parser.add_argument("--working-dir", type=Path, default=Path("."), help="is uploaded")
    parser.add_argument("--check", action="store_true", help="look, and do not submit")
    parser.add_argument("--no-wait", action="store_true", help="do not follow the log")
    chosen = parser.parse_args()
    import ray.job_submission  # noqa: F401 - it sets its own level when it is imported

    # It tells every ignore file that it has read, more than once.
    logging.getLogger("ray").setLevel(logging.ERROR)

    root = chosen.working_dir.resolve()
    entrypoint = checked_entrypoint(chosen.config, root)
    environment = read_yaml(chosen.runtime_env)
    tell_upload(root, environment.get("excludes") or [])
    client = connected(chosen.address)
    if chosen.check:
        return 0
    try:
        job = client.submit_job(
            entrypoint=entrypoint, runtime_env={**environment, "working_dir": str(root)}
        )
    except RuntimeError as error:
        raise InputError(
            f"{chosen.address} takes no job ({first_line(error)}): is its agent up? Of several Rays"
            " on a machine each wants its own --dashboard-agent-listen-port"
        ) from None
    print(f"submitted  {job}")
    print(f"follow     ray job logs --address {chosen.address} --follow {job}")
    print(f"stop       ray job stop --address {chosen.address} {job}", flush=True)
    return 0 if chosen.no_wait else asyncio.run(followed(client, job))


def checked_entrypoint(config: Path, root: Path) -> str:
    """The command that the cluster is to run, of a file that is right and will be there."""
    kind = "sweep" if is_sweep(config) else "tune"
    if kind == "sweep":
        networks = load_sweep_job(config).settings.networks
    else:
        networks = (load_tune_job(config).network,)
    files = [Path(network) for network in networks if network not in BUILT_IN_NAMES]
    for file in (config, *(root / file for file in files)):
        if not file.resolve().is_relative_to(root):
            raise InputError(f"{file} is outside {root}, which is uploaded: put it inside")
    for file in files:
        if file.is_absolute() or not (root / file).is_file():
            raise InputError(f"{config}: {file}: give its path relative to {root}, as jobs find it")
    script = (HERE / f"{kind}.py").relative_to(root) if HERE.is_relative_to(root) else None
    if script is None:
        raise InputError(f"{HERE} is outside {root}: submit from the folder that holds release_ray")
    path = config.resolve().relative_to(root)
    print(f"job        {kind} of {', '.join(networks)}")
    return shlex.join(["python", str(script), "--config", str(path)])


def tell_upload(root: Path, excludes: list[str]) -> None:
    """Says how much would be uploaded, and which folders are the largest.

    Raises `InputError` where that is more than Ray takes.
    """
    # Ray's own packing, so that what is told is what goes.
    from ray._private import ray_constants
    from ray._private.runtime_env.packaging import GCS_STORAGE_MAX_SIZE, create_package

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "upload.zip"
        excluded = [*ray_constants.get_runtime_env_default_excludes(), *excludes]
        create_package(str(root), package, include_gitignore=True, excludes=excluded)
        size = package.stat().st_size
        sizes: Counter[str] = Counter()
        with zipfile.ZipFile(package) as content:
            for entry in content.infolist():
                sizes[entry.filename.partition("/")[0]] += entry.compress_size
    told = ", ".join(f"{name} {bytes_ / MIB:.1f}" for name, bytes_ in sizes.most_common(LARGEST))
    print(f"upload     {size / MIB:.1f} MiB of {root} (largest, in MiB: {told})")
    if size > GCS_STORAGE_MAX_SIZE:
        raise InputError(
            f"{root}: {size / MIB:.0f} MiB are more than the {GCS_STORAGE_MAX_SIZE / MIB:.0f} MiB"
            f" that Ray takes; the largest are {told}: name what is not needed in .rayignore"
        )


def connected(address: str) -> Any:
    """The cluster's job server. Raises `InputError` where there is none, or one of another Ray."""
    import ray
    from ray.job_submission import JobSubmissionClient

    try:
        client = JobSubmissionClient(address)
        answer: Any = client._do_request("GET", "/api/version")
        theirs = str(answer.json()["ray_version"])
    except (ConnectionError, RuntimeError, ValueError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"no Ray job server answers at {address} ({reason}): give the dashboard's address, as"
            " http://HEAD:8265"
        ) from None
    if theirs != ray.__version__:
        raise InputError(
            f"the cluster at {address} has Ray {theirs}, and here is {ray.__version__}: install"
            f" ray=={theirs} here, or that one there"
        )
    print(f"cluster    {address}, Ray {theirs}")
    return client


async def followed(client: Any, job: str) -> int:
    """Shows a job's log until it ends. Raises `WorkFailed` where it has not succeeded."""
    async for lines in client.tail_job_logs(job):
        sys.stderr.write(lines)
        sys.stderr.flush()
    status = client.get_job_status(job)
    print(f"ended      {status.value}")
    if status.value != "SUCCEEDED":
        told = [line for line in (client.get_job_info(job).message or "").splitlines() if line]
        raise WorkFailed(f"job {job} has not succeeded: {told[-1] if told else status.value}")
    return 0


if __name__ == "__main__":
    serve(lambda: explained(main))
