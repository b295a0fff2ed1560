"""Candidates of a small matrix product, made where TVM is loaded: in a child process."""

import json

from release_ray.measure.jobs import Workload
from release_ray.measure.kernels import host_target


def matmul_candidates(count, size=64):
    """A workload, and traces of `count` random schedules of it, postprocessors included."""
    import tvm
    from tvm import te
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.schedule import Schedule, Trace

    a = te.placeholder((size, size), name="a")
    b = te.placeholder((size, size), name="b")
    k = te.reduce_axis((0, size), "k")
    c = te.compute(
        (size, size),
        lambda i, j: te.sum(a[i, k] * b[k, j], axis=k),
        name="c",
        attrs={"layout_free_placeholders": [b]},
    )
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": function})
    context = meta_schedule.TuneContext(
        mod=module,
        target=host_target(),
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name="matmul",
        num_threads=1,
        rand_state=1,
    )
    traces = []
    while len(traces) < count:
        # Each time it generates the space, other decisions are drawn.
        for sketch in context.generate_design_space():
            schedule = Schedule(module, error_render_level="none")
            sketch.trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            if all(p.apply(schedule) for p in context.space_generator.postprocs):
                traces.append(Trace.as_json(schedule.trace))
    workload = Workload(
        key="0123",
        name="matmul",
        module_json=tvm.ir.save_json(module),
        target_json=json.dumps(_plain(dict(host_target().export()))),
        flops=2.0 * size**3,
    )
    return workload, [json.dumps(_plain(trace)) for trace in traces[:count]]


def _plain(value):
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    if hasattr(value, "__iter__"):
        return [_plain(v) for v in value]
    return int(getattr(value, "value", value))
