"""MetaSchedule's sketches as knob spaces, and configurations as schedules.

A sketch is the trace of a schedule whose sampling instructions are left open. Those are the
knobs: `SamplePerfectTile` splits a loop, `SampleCategorical` picks from a list, and
`SampleComputeLocation` picks the loop at which a block is computed. A configuration replays the
trace with its own decisions and then the target's postprocessors, which may refuse it.

TVM silently alters some decisions: a compute location that the other knobs rule out becomes the
nearest legal one outside of it. So every schedule is read back. What is recorded, de-duplicated
and learnt from is this canonical configuration; the one that was asked for is an alias of it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from release_ray import tvm_setup
from release_ray.core.knobs import ChoiceKnob, Knob, TileKnob, Value
from release_ray.core.space import KnobSpace
from release_ray.targets import back_end
from release_ray.tasks import Task

# The place of a block that is computed inline, and the first that is not a loop's index.
_INLINED = -2

# Part of both lines of TVM's warning of an unknown schedule rule.
_COMPLAINT = b"meta_schedule.pool_max"


@dataclass(frozen=True)
class Applied:
    """A configuration as a schedule, or why there is none.

    `point` is the canonical configuration; None where the schedule was refused, and `message`
    then says by what. `schedule` is TVM's `Schedule`, its trace complete with postprocessors.
    """

    point: np.ndarray | None
    schedule: Any = None
    message: str = ""

    @property
    def trace_json(self) -> str:
        """The whole trace, as MetaSchedule's database stores it; replays on the task's module."""
        return json.dumps(plain(self.schedule.trace.as_json()))


class Sketches:
    """The design space of a `task`, and the way from its points to schedules."""

    def __init__(
        self, task: Task, spaces: Sequence[Any] = (), postprocessors: Sequence[Any] = ()
    ) -> None:
        """Of `spaces`, schedules that a space generator made, and of its `postprocessors`.

        Default: those of the target's rules.
        """
        tvm_setup.prepare([back_end(task.target)])
        self.task = task
        if not spaces:
            spaces, postprocessors = _of_the_target(task)
        self._sketches = [_Sketch(schedule) for schedule in spaces]
        self._postprocessors = list(postprocessors)
        self.space = KnobSpace(tuple(sketch.knobs for sketch in self._sketches))

    def apply(self, point: np.ndarray) -> Applied:
        """Makes the schedule of one point (`width`) and reads its decisions back; 5 to 25 ms."""
        return self._apply(int(point[0]), self.space.values(point))

    def apply_decisions(self, sketch: int, decisions: str) -> Applied:
        """The schedule of a record: its sketch and the JSON of its decisions.

        Raises `ValueError` where the sketch has no such knobs or values, as when the record is
        of another version of TVM.
        """
        values = values_from_json(decisions)
        try:
            if not 0 <= sketch < len(self._sketches):
                raise IndexError(sketch)
            self.space.point(sketch, values)
        except (KeyError, ValueError, IndexError) as error:
            raise ValueError(f"decisions {decisions} do not fit sketch {sketch}") from error
        return self._apply(sketch, values)

    def recognise(self, trace_json: Sequence) -> tuple[int, str]:
        """The sketch and the decisions of a trace as MetaSchedule's database holds it.

        Raises `ValueError` where no sketch of this task has such a trace.
        """
        from tvm.s_tir.schedule import Schedule, Trace

        schedule = Schedule(self.task.module, error_render_level="none")
        try:
            Trace.apply_json_to_schedule(trace_json, schedule)
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(f"its trace does not replay: {_first_line(error)}") from error
        outline = _outline(schedule.trace)
        for index, sketch in enumerate(self._sketches):
            if outline == sketch.outline:
                try:
                    values = sketch.read_back(schedule.trace)
                    self.space.point(index, values)
                except (KeyError, ValueError):
                    continue
                return index, values_to_json(values)
        raise ValueError("no sketch of the task has such a trace")

    def decisions(self, point: np.ndarray) -> str:
        """Canonical JSON of a point's knob values (values, never indices)."""
        return values_to_json(self.space.values(point))

    def _apply(self, sketch_index: int, values: Sequence[Value]) -> Applied:
        from tvm.s_tir.schedule import Schedule, ScheduleError, Trace

        sketch = self._sketches[sketch_index]
        schedule = Schedule(self.task.module, error_render_level="none")
        try:
            Trace(sketch.instructions, sketch.encode(values)).apply_to_schedule(
                schedule, remove_postproc=True
            )
            schedule.enter_postproc()
            for postprocessor in self._postprocessors:
                if not postprocessor.apply(schedule):
                    return Applied(None, message=f"refused by {_name(postprocessor)}")
        except (ScheduleError, RuntimeError, ValueError, TypeError) as error:
            return Applied(None, message=f"{type(error).__name__}: {_first_line(error)}")
        try:
            point = self.space.point(sketch_index, sketch.read_back(schedule.trace))
        except KeyError as error:
            return Applied(None, message=f"TVM chose a value outside of the knob's: {error}")
        return Applied(point, schedule)


class _Sketch:
    """One sketch: its instructions, and its sampling instructions as knobs, in trace order."""

    def __init__(self, schedule: Any) -> None:
        self.instructions = list(schedule.trace.insts)
        self.outline = _outline(schedule.trace)
        decisions = schedule.trace.decisions
        self._sampled = [inst for inst in self.instructions if inst in decisions]
        depth = _deepest_loop_nest(schedule)
        self.knobs: tuple[Knob, ...] = tuple(
            _knob(number, inst, decisions[inst], depth) for number, inst in enumerate(self._sampled)
        )

    def encode(self, values: Sequence[Value]) -> dict:
        """Knob values as the decisions of the trace: a categorical one is an index there."""
        return {
            inst: _encoded(knob, value)
            for inst, knob, value in zip(self._sampled, self.knobs, values, strict=True)
        }

    def read_back(self, trace: Any) -> list[Value]:
        """The knob values that a schedule's trace really has.

        Postprocessors may have appended sampling instructions of their own; the sketch's come
        first and in the same order.
        """
        decided = trace.decisions
        sampled = [inst for inst in trace.insts if inst in decided]
        return [
            _decoded(knob, decided[inst]) for inst, knob in zip(sampled, self.knobs, strict=False)
        ]


def values_to_json(values: Sequence[Value]) -> str:
    """Canonical JSON of knob values: tiles as lists, the rest as numbers."""
    return json.dumps(
        [list(value) if isinstance(value, tuple) else value for value in values],
        separators=(",", ":"),
    )


def values_from_json(decisions: str) -> tuple[Value, ...]:
    """Reverses `values_to_json`. Raises `ValueError` for anything else."""
    try:
        return tuple(
            tuple(int(v) for v in value) if isinstance(value, list) else int(value)
            for value in json.loads(decisions)
        )
    except TypeError as error:
        raise ValueError(f"{decisions} is no list of knob values") from error


def _of_the_target(task: Task) -> tuple[list[Any], list[Any]]:
    """The spaces of a task by MetaSchedule's rules for the target, and the postprocessors."""
    from tvm.s_tir import meta_schedule

    context = meta_schedule.TuneContext(
        mod=task.module,
        target=task.target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name=task.name,
        num_threads=1,
        # Decisions drawn while the sketches are made are replaced; their structure is fixed.
        rand_state=1,
    )
    with _without_complaint():
        spaces = list(context.generate_design_space())
    return spaces, list(context.space_generator.postprocs)


@contextmanager
def _without_complaint() -> Iterator[None]:
    """Holds back one warning that TVM writes to the process's stderr; all else passes.

    TVM marks pooling for a schedule rule that only GPUs have, and complains on CPUs. Registering a
    rule of that name would keep the other rules from the block, so that is no way out.
    """
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(original, 2)
            os.close(original)
            held.seek(0)
            for line in held.read().splitlines(keepends=True):
                if _COMPLAINT not in line:
                    os.write(2, line)


def _outline(trace: Any) -> list:
    """What tells sketches apart: the instructions before the postprocessors, without decisions.

    MetaSchedule's search leaves out instructions whose result nothing uses, so none count here.
    Nor do the probabilities of a categorical choice: they change no schedule.
    """
    instructions, _ = plain(trace.simplified(remove_postproc=True).as_json())
    return [
        [kind, inputs, attributes[:1] if kind == "SampleCategorical" else attributes, outputs]
        for kind, inputs, attributes, outputs in instructions
    ]


def _knob(number: int, inst: Any, decision: Any, depth: int) -> Knob:
    kind = inst.kind.name
    if kind == "SamplePerfectTile":
        extent = int(np.prod([int(factor) for factor in decision], dtype=np.int64))
        return TileKnob(f"tile_{number}", extent, int(inst.attrs[0]), int(inst.attrs[1]))
    if kind == "SampleCategorical":
        return ChoiceKnob(f"choice_{number}", tuple(_integer(c) for c in inst.attrs[0]))
    if kind == "SampleComputeLocation":
        return ChoiceKnob(f"place_{number}", tuple(range(_INLINED, depth)), role="place")
    raise ValueError(f"TVM's {kind} is a kind of knob that release_ray does not know")


def _encoded(knob: Knob, value: Value) -> list[int] | int:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(knob, ChoiceKnob) and knob.role == "choice":
        return knob.index_of(value)
    return value


def _decoded(knob: Knob, decision: Any) -> Value:
    if isinstance(knob, TileKnob):
        return tuple(int(factor) for factor in decision)
    if isinstance(knob, ChoiceKnob) and knob.role == "choice":
        return knob.choices[int(decision)]
    return int(decision)


def _deepest_loop_nest(schedule: Any) -> int:
    root = schedule.get_sblock("root")
    return max((len(schedule.get_loops(b)) for b in schedule.get_child_blocks(root)), default=0)


def plain(value: Any) -> Any:
    """TVM's arrays and boxed numbers as what `json` can write."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "__iter__"):
        return [plain(v) for v in value]
    return plain(value.value)


def _integer(value: Any) -> int:
    return int(getattr(value, "value", value))


def _name(postprocessor: Any) -> str:
    return str(postprocessor).rsplit(".", 1)[-1]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
