"""Factor: one editable number or choice of a scene, with its ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from coda_envs.errors import SceneError, short, suggest

Value = float | int | str
Group = Literal["task", "spatial", "attributes"]
RangeName = Literal["seed", "generator"]

#: Digits after the point kept of every number, so that a scene survives YAML and JSON with its id.
DIGITS = 6


class Declared(BaseModel):
    """Data read from a family's files: frozen, with no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class When(Declared):
    """A condition under which a factor exists in a scene: another factor's value."""

    factor: str
    min: int | None = None
    equals: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> When:
        if (self.min is None) == (self.equals is None):
            raise ValueError(f"a condition on {self.factor} gives min or equals")
        return self

    def holds(self, value: Value) -> bool:
        """Whether ``value`` of the other factor makes this one exist."""
        if self.min is not None:
            # A whole number may come from a file as 1.0.
            return isinstance(value, int | float) and value >= self.min
        return value == self.equals


class _Base(Declared):
    path: str = Field(pattern=r"^(task|(spatial|attributes)\.\w+)\.\w+$")
    meaning: str
    when: When | None = None

    @property
    def group(self) -> Group:
        head = self.path.split(".", 1)[0]
        return head  # type: ignore[return-value]

    @property
    def role(self) -> str | None:
        """The role a factor belongs to (``spatial.target.x`` → ``target``), if any."""
        parts = self.path.split(".")
        return parts[1] if len(parts) == 3 else None


class ContinuousFactor(_Base):
    """A number. ``unit`` is SI; an angle is in radians and wraps at ``period``."""

    type: Literal["continuous", "angle"]
    unit: str
    seed: tuple[float, float]
    generator: tuple[float, float]
    far: tuple[float, float] | None = None
    bins: int = Field(default=4, ge=1, le=16)
    period: float | None = None

    @model_validator(mode="after")
    def _nested(self) -> ContinuousFactor:
        low, high = self.generator
        if not low <= self.seed[0] <= self.seed[1] <= high:
            raise ValueError(f"{self.path}: the seed range must lie inside the generator range")
        if not self.limits[0] <= low <= high <= self.limits[1]:
            raise ValueError(f"{self.path}: the generator range must lie inside the far range")
        if any(round(b, DIGITS) != b for b in (*self.seed, *self.generator, *self.limits)):
            # A scene could not hold a value at such a bound.
            raise ValueError(f"{self.path}: bounds have at most {DIGITS} digits after the point")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest value that a scene may have."""
        return self.far or self.generator

    def sample(self, rng: np.random.Generator, within: RangeName) -> float:
        """One value, uniform over the named range."""
        low, high = self.seed if within == "seed" else self.generator
        return float(rng.uniform(low, high))

    def sample_far(self, rng: np.random.Generator) -> float:
        """One value, uniform over the far range outside the generator range."""
        (least, most), (low, high) = self.limits, self.generator
        below, above = low - least, most - high
        way = rng.uniform(0.0, below + above)
        return float(least + way) if way < below else float(high + way - below)

    def is_far(self, value: Value) -> bool:
        """Whether ``value`` lies outside the generator range."""
        return not self.generator[0] - 1e-9 <= float(value) <= self.generator[1] + 1e-9

    def edges(self, index: int) -> tuple[float, float]:
        """Lower and upper edge of a bin of the generator range."""
        low, high = self.generator
        width = (high - low) / self.bins
        return low + index * width, low + (index + 1) * width

    def sample_bin(self, rng: np.random.Generator, index: int) -> float:
        """One value, uniform over a bin of the generator range."""
        low, high = self.edges(index)
        return float(rng.uniform(low, high))

    def check(self, value: Any) -> float:
        """``value`` as a float inside its limits, or a :class:`SceneError`."""
        low, high = self.limits
        allowed = f"a number from {low:g} to {high:g} ({self.unit})"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SceneError(
                f"{self.path} is {short(value)}, not a number.",
                allowed=allowed,
                remedy=f"set {self.path} to a number in that range",
            )
        # NaN and whole numbers beyond a float's reach fail this comparison too.
        if not low - 1e-9 <= value <= high + 1e-9:
            raise SceneError(
                f"{self.path} is {short(value)}, outside its range.",
                allowed=allowed,
                remedy=f"set {self.path} to a value in that range",
            )
        return float(min(max(value, low), high))

    def bin(self, value: Value) -> int:
        """Index of the equal-width bin of the generator range that holds ``value``."""
        low, high = self.generator
        share = (float(value) - low) / (high - low) if high > low else 0.0
        return min(int(share * self.bins), self.bins - 1)


class DiscreteFactor(_Base):
    """A choice among words or small integers."""

    type: Literal["discrete"]
    seed: tuple[int | str, ...]
    generator: tuple[int | str, ...]
    #: Further choices that only ``ood-far`` scenes have.
    far: tuple[int | str, ...] = ()

    @model_validator(mode="after")
    def _nested(self) -> DiscreteFactor:
        if not set(self.seed) <= set(self.generator):
            raise ValueError(f"{self.path}: every seed choice must be a generator choice")
        if set(self.far) & set(self.generator):
            raise ValueError(f"{self.path}: a far choice must not be a generator choice")
        return self

    @property
    def choices(self) -> tuple[int | str, ...]:
        """Every choice that a scene may have."""
        return self.generator + self.far

    @property
    def bins(self) -> int:
        """One bin a choice."""
        return len(self.generator)

    def sample(self, rng: np.random.Generator, within: RangeName) -> int | str:
        """One choice, uniform over the named range."""
        choices = self.seed if within == "seed" else self.generator
        return choices[int(rng.integers(len(choices)))]

    def sample_far(self, rng: np.random.Generator) -> int | str:
        """One of the far choices."""
        return self.far[int(rng.integers(len(self.far)))]

    def is_far(self, value: Value) -> bool:
        """Whether ``value`` is a far choice."""
        return value in self.far

    def sample_bin(self, rng: np.random.Generator, index: int) -> int | str:
        """The choice of that index."""
        return self.generator[index]

    def check(self, value: Any) -> int | str:
        """``value`` if it is one of the choices, else a :class:`SceneError`."""
        choices = self.choices
        # An array, for one, cannot be looked for among the choices.
        known = isinstance(value, (int, float, str)) and not isinstance(value, bool)
        if not known or value not in choices:
            raise SceneError(
                f"{self.path} is {short(value)}, not one of its choices.",
                allowed=suggest(short(value).strip("'"), map(str, choices)),
                remedy=f"set {self.path} to one of them",
            )
        # The declared choice itself: 1.0 from a file must not stand beside 1.
        return choices[choices.index(value)]

    def bin(self, value: Value) -> int:
        """Index of ``value`` among the choices."""
        return self.generator.index(value)


Factor = Annotated[ContinuousFactor | DiscreteFactor, Field(discriminator="type")]
