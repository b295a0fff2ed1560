import subprocess
import sys


def test_no_call_starts_a_ray_by_itself():
    """A thread that outlives a run must not start a second one behind the program's back."""
    program = "import release_ray.session, ray; ray.put(1)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "RaySystemError" in ended.stderr or "initialized" in ended.stderr
