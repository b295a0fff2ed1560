"""Settings from a YAML file and from named overrides, with errors that name the setting."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from release_ray.core.errors import InputError
from release_ray.core.settings import TuneSettings

_ALIKE = 0.55
"""How alike two names are, at least, of which one may be mistyped for the other."""


def load_settings(path: Path | None, overrides: Mapping[str, object]) -> TuneSettings:
    """Defaults, then the file, then the overrides (dotted names such as `agent.lr`).

    An override of None is not given. Raises `InputError` that names the file and the setting.
    """
    source = "the command line"
    data: dict[str, Any] = {}
    if path is not None:
        source = str(path)
        data = read_yaml(path)
    for name, value in overrides.items():
        if value is not None:
            put(data, name, value)
    return validate(data, source)


def _holds_itself(value: Any, within: tuple[int, ...] = ()) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    around = (*within, id(value))
    return id(value) in within or any(_holds_itself(one, around) for one in inner)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file's mapping; dotted names are unfolded. Raises `InputError`."""
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"cannot read the settings file {path}: {reason}") from None
    except ValueError as error:  # a date or a number that YAML recognises and Python has not
        raise InputError(f"{path}: {error}; put such a value into quotes") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise InputError(
            f"{path}{where}: {problem}; settings are YAML, as `agent: {{lr: 0.003}}`"
        ) from None
    if loaded is None:
        return {}
    if _holds_itself(loaded):
        raise InputError(f"{path}: it refers to itself (an alias, `*`, within its anchor, `&`)")
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: settings are `name: value` pairs, as `policy: ppo`")
    data: dict[str, Any] = {}
    leaves = [leaf for name, value in loaded.items() for leaf in _leaves(str(name), value)]
    for leaf in leaves:
        if leaves.count(leaf) > 1:
            raise InputError(f"{path}: {leaf} is given twice")
    for name, value in loaded.items():
        put(data, str(name), value)
    return data


def _leaves(name: str, value: object) -> list[str]:
    """The dotted names that a mapping, or a dotted name, sets; a section by name alone, its name.

    What is inside `space` are names of settings already, each with its own form.
    """
    if isinstance(value, Mapping) and name != "space":
        return [leaf for key, inner in value.items() for leaf in _leaves(f"{name}.{key}", inner)]
    return [f"{name}.name" if f"{name}.name" in names() else name]


class _Loader(yaml.SafeLoader):
    """Refuses a name that is given twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def validate(data: Mapping[str, Any], source: str, also: Sequence[str] = ()) -> TuneSettings:
    """Settings from nested plain data. Raises `InputError` naming the first bad setting.

    `also` are names that are known there beside the settings, for the hint at a mistyped one.
    """
    try:
        settings = TuneSettings.model_validate(dict(data))
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error, TuneSettings, also)}") from None
    return settings.model_copy(update={"budget": settings.budget.or_default()})


def check_search(settings: TuneSettings) -> None:
    """Raises `InputError` where there is no such policy or sampler as the settings name."""
    import policies
    import samplers

    policies.create(settings.policy, settings.agent).close()
    samplers.check(settings.sampler.name)


def to_yaml(settings: TuneSettings) -> str:
    """Settings as a file that `load_settings` reads back."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def names(model: type[BaseModel] = TuneSettings, prefix: str = "") -> list[str]:
    """Every setting's dotted name."""
    found = []
    for name, field in model.model_fields.items():
        # Of an optional group the group.
        inner = [
            kind
            for kind in (field.annotation, *get_args(field.annotation))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        found += names(inner[0], f"{prefix}{name}.") if inner else [prefix + name]
    return found


def put(data: dict[str, Any], name: str, value: object) -> None:
    """Sets a dotted name in nested plain data; a section given by name alone keeps that name."""
    section, dot, rest = name.partition(".")
    if not dot:
        known = data.get(section)
        if isinstance(known, dict) and isinstance(value, str):
            known["name"] = value
        elif isinstance(known, dict) and isinstance(value, Mapping):
            known.update(value)
        else:
            data[section] = value
        return
    inner = data.setdefault(section, {})
    if isinstance(inner, str):
        inner = data[section] = {"name": inner}
    if not isinstance(inner, dict):
        raise InputError(f"{name}: {section} is not a group of settings")
    put(inner, rest, value)


def explain(error: ValidationError, model: type[BaseModel], also: Sequence[str] = ()) -> str:
    """What is wrong with the first bad setting of a model; `also` as in `validate`."""
    # A name that is mistyped is missing under its right one, too.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = [*names(model), *model.model_fields, *also]
        last = name.rsplit(".", 1)[-1]
        near = difflib.get_close_matches(name, known, 1, _ALIKE) or difflib.get_close_matches(
            last, [k.rsplit(".", 1)[-1] for k in known], 1, _ALIKE
        )
        hint = f"did you mean {near[0]}?" if near else "see --print-config for all of them"
        return f"unknown setting {name}; {hint}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "too_short":
        message = "must not be empty"
    return f"setting {name}: {message[0].lower()}{message[1:]} (given: {first['input']!r})"
