"""Scene (τ, σ, α): what to do, where things are, what things are like — as frozen data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from coda_envs.errors import SceneError, short
from coda_envs.factor import DIGITS, Value
from coda_envs.instruction import encode_instruction
from coda_envs.strict_yaml import read_yaml, yaml_problem

#: Largest scene file that is read, in bytes: forty times what a scene takes, and no more than a
#: YAML parser gets through in a few seconds.
MAX_BYTES = 64_000


class FrozenMap(dict[str, Any]):
    """A dict that refuses change; scenes share their parts, so nobody may edit one in place."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a scene is frozen: use scene.edit(path, value)")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = _refuse
    __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self),)


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenMap({k: _freeze(v) for k, v in value.items()})
    if isinstance(value, float):
        # Adding zero turns -0.0 into 0.0: the same pose must have the same id.
        return round(value, DIGITS) + 0.0
    return value


def _thaw(value: Any) -> Any:
    return {k: _thaw(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _instruction(text: str) -> str:
    encode_instruction(text)
    return text


Instruction = Annotated[
    StrictStr, Field(min_length=1, max_length=120), AfterValidator(_instruction)
]
Leaf = StrictFloat | StrictInt | StrictStr | StrictBool
Frozen = PlainSerializer(_thaw)
Choices = Annotated[Mapping[str, Leaf], AfterValidator(_freeze), Frozen]
ByRole = Annotated[Mapping[str, Mapping[str, Leaf]], AfterValidator(_freeze), Frozen]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Goal(_Part):
    """The goal predicate over roles, e.g. ``placed(target, receptacle)``."""

    predicate: str
    roles: tuple[str, ...]


class Task(_Part):
    """τ: the goal, the choices that make it up, and the language. Language is data."""

    goal: Goal
    instruction: Instruction
    paraphrases: tuple[Instruction, ...] = ()
    choices: Choices = Field(default_factory=lambda: FrozenMap())


class Scene(_Part):
    """One immutable scene. ``family.scene(values)`` makes one, :meth:`edit` derives another.

    Lengths are metres, masses kilograms, angles radians; positions are in the table frame (x away
    from the robot, y to its left, z up, origin at the middle of the table's top).
    """

    family: str
    task: Task
    spatial: ByRole
    attributes: ByRole

    @cached_property
    def id(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()

    def canonical_json(self) -> str:
        """JSON with sorted keys, no spaces, numbers rounded to six digits."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON or YAML."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The scene as a YAML document a person can edit."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=100)

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Every factor of the scene by its path, e.g. ``spatial.target.x`` → 0.05."""
        return FrozenMap(dict(self._leaves()))

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.task.choices.items():
            yield f"task.{name}", value
        for group in ("spatial", "attributes"):
            for role, fields in getattr(self, group).items():
                for name, value in fields.items():
                    yield f"{group}.{role}.{name}", value

    def edit(self, path: str, value: Value) -> Scene:
        """A new scene with one factor changed; see :meth:`edit_many`."""
        return self.edit_many({path: value})

    def edit_many(self, edits: Mapping[str, Value]) -> Scene:
        """A new scene with these factors changed and everything else as it was.

        Factors that an edit brings into being (a second distractor, say) take the middle of their
        seed range; those it takes away go. The instruction is rewritten only if it was the one
        the family writes; a user's own words stay. Raises :class:`SceneError` on an unknown path
        or a value outside its range.
        """
        # Imported here: family.py builds scenes, so it imports this module.
        from coda_envs.family import get_family

        return get_family(self.family).edited(self, edits)


def parse_scene(data: Any, source: str = "scene") -> Scene:
    """A checked :class:`Scene` from plain data.

    Raises :class:`SceneError` that names ``source``, the entry, its value and what is allowed.
    """
    from coda_envs.family import get_family

    if not isinstance(data, Mapping):
        raise SceneError(
            f"{source} holds {type(data).__name__}, not a scene.",
            allowed="a mapping with family, task, spatial and attributes",
            remedy="start from `coda scene new --family pick-place`",
        )
    try:
        scene = Scene.model_validate(data)
    except RecursionError as error:
        raise SceneError(f"{source} is nested too deeply.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(_key, (p for p in first["loc"] if p not in _NO_KEYS)))
        # The input of what is missing is all that surrounds it.
        found = "missing" if first["type"] == "missing" else short(first.get("input"))
        more = error.error_count() - 1
        raise SceneError(
            f"{source}: {where or 'scene'} is {found}: {first['msg']}"
            + (f" (and {more} more)." if more else "."),
            remedy="compare with `coda scene new --family pick-place`",
        ) from error
    try:
        return get_family(scene.family).checked(scene)
    except SceneError as error:
        raise SceneError(
            f"{source}: {error.problem}", allowed=error.allowed, remedy=error.remedy
        ) from error


#: What pydantic adds to the place of an error: the types it has tried, and that it is in a key.
_NO_KEYS = ("float", "int", "str", "bool", "[key]")


def _key(part: str | int) -> str:
    """A key as a message shows it: plain words as they are, all else escaped and cut short."""
    text = str(part)
    return text if text.isidentifier() and len(text) <= 60 else short(part)


def load_scene(path: Path | str) -> Scene:
    """Read a scene from a YAML or JSON file; see :func:`parse_scene` for the errors."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            # Not by the file's size, which a pipe or a device does not have.
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        # ValueError: a zero character in the path.
        raise SceneError(
            f"scene file {path} cannot be read: {getattr(error, 'strerror', None) or error}.",
            remedy="write one with `coda scene new --family pick-place > my_scene.yaml`",
        ) from error
    if len(content) > MAX_BYTES:
        raise SceneError(f"{path} is larger than {MAX_BYTES} bytes: not a scene file.")
    try:
        data = read_yaml(content.decode("utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SceneError(
            f"{path} is not YAML: {yaml_problem(error)}.",
            remedy="compare with `coda scene new --family pick-place`",
        ) from error
    return parse_scene(data, str(path))
