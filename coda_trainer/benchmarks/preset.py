"""Presets: the sizes of a benchmark, in a YAML file of its own under configs/bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coda_envs.errors import ConfigError, suggest
from coda_envs.strict_yaml import line_of, read_yaml, yaml_problem
from coda_trainer.config import Count, Positive, RunConfig, Suite
from coda_trainer.yaml_input import shown

#: The presets of the checkout: <benchmark>-<preset>.yaml.
FOLDER = Path(__file__).resolve().parents[2] / "configs" / "bench"


def as_tuple(value: Any) -> Any:
    """YAML knows lists only."""
    return tuple(value) if isinstance(value, list) else value


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse an entry that is given twice."""
    if len(set(values)) != len(values):
        raise ValueError("a list without repeats")
    return values


#: A YAML list of names, or of seeds, each once and at least one.
Names = Annotated[
    tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1), AfterValidator(distinct)
]
Seeds = Annotated[
    tuple[Count, ...], BeforeValidator(as_tuple), Field(min_length=1), AfterValidator(distinct)
]


class Settings(BaseModel):
    """Frozen, closed data with strict types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class AgreementSettings(Settings):
    """How agreement with a sparse critic is measured (:mod:`coda_trainer.learning.agreement`)."""

    episodes: Positive = 64
    """Episodes of the final backbone on fresh wide scenes of each family: the held-out states."""
    updates: Positive = 4000
    """Updates of each critic."""
    every: Positive = 500
    """Updates between two measurements."""
    candidates: Annotated[int, Field(ge=2)] = 8
    """Chunks in a candidate set."""
    noise: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Standard deviation of the noise on the backbone's samples."""
    epsilon: Annotated[float, Field(ge=0)] = 0.02
    """Least spread of the candidates' values in a state that counts."""


class Preset(Settings):
    """What every benchmark's preset has."""

    seeds: Seeds
    """One run of every arm for each."""
    run: dict[str, Any]
    """The settings of every run, as in a configuration; the benchmark adds its own and the seed."""
    tuned_on: Suite = "ood-dev"
    """The suite on which arms are compared and targets read; never `ood`."""

    def config(self, seed: int, *overrides: Mapping[str, Any]) -> RunConfig:
        """The configuration of one run: ``run``, then ``overrides`` in order, then the seed.

        Raises :class:`ConfigError` naming the setting.
        """
        settings: dict[str, Any] = {}
        for part in (self.run, *overrides, {"seed": seed}):
            settings = _merged(settings, part)
        try:
            config = RunConfig.model_validate(settings)
        except ValidationError as error:
            raise _problem("the preset's run", error) from error
        self.check_suites(config, (self.tuned_on,))
        return config

    @staticmethod
    def check_suites(config: RunConfig, suites: Sequence[Suite]) -> None:
        """Raises :class:`ConfigError` where runs are not evaluated on a suite that is needed."""
        for suite in suites:
            if suite not in config.evaluation.suites:
                raise ConfigError(
                    f"the preset's run is not evaluated on {suite!r}.",
                    remedy=f"add {suite} to run.evaluation.suites",
                )


P = TypeVar("P", bound=Settings)


def load_preset(kind: type[P], bench: str, preset: str) -> P:
    """The preset of that name, or in a YAML file of one's own where ``preset`` is its path.

    ``like: OTHER`` in a file takes over what it does not say itself from OTHER.yaml beside it,
    which may be of another benchmark. Raises :class:`ConfigError` naming what there is, or the
    entry that is wrong.
    """
    path = Path(preset) if preset.endswith((".yaml", ".yml")) else FOLDER / f"{bench}-{preset}.yaml"
    if not path.is_file():
        names = [p.stem.removeprefix(f"{bench}-") for p in FOLDER.glob(f"{bench}-*.yaml")]
        raise ConfigError(
            f"there is no preset {preset!r} of {bench}.",
            allowed=suggest(preset, names) if names else "the path of a YAML file",
            remedy="choose one of these, or give the path of a YAML file",
        )
    text = path.read_text(encoding="utf-8")
    try:
        data = read_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {yaml_problem(error)}.") from error
    if isinstance(data, dict) and "like" in data:
        data = _alike(kind, path, data)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        line = line_of(text, error.errors()[0]["loc"]) if isinstance(data, dict) else None
        raise _problem(f"{path}, line {line}" if line else str(path), error) from error


def _alike(kind: type[Settings], path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in data.items() if name != "like"}
    other = path.with_name(f"{data['like']}.yaml")
    try:
        taken = read_yaml(other.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: like is {shown(data['like'])}, and {other} cannot be read.",
            allowed="the name of a preset file in the same folder, without .yaml",
        ) from error
    known = kind.model_fields.keys()
    return {name: value for name, value in taken.items() if name in known} | own


def _merged(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` with those of ``other`` on top; groups are merged, anything else replaced."""
    merged = dict(settings)
    for name, value in other.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _problem(source: str, error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f"{source}: {key or 'it'} is {shown(first['input'])}.",
        allowed=message[:1].lower() + message[1:],
        remedy="compare with the presets in configs/bench",
    )
