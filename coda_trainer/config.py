"""RunConfig: every setting of a run, frozen, checked, and written back into the run folder."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Strategy = Literal["sft", "uniform", "graded", "coda", "given"]
Signal = Literal["text2potential", "unrefined", "description", "sparse", "free-form", "frozen"]
UpdateRule = Literal["residual", "ppo", "weighted"]
#: Two are no frozen suites but fresh scenes of the generator range: ``wide``, of the whole of it,
#: and ``hard``, of the harder thirds of the family's declared interactions.
Suite = Literal[
    "seed", "wide", "hard", "ood-dev", "ood", "ood-spatial", "ood-attribute", "ood-task", "ood-far"
]
Memory = Literal["programs", "none", "trajectories", "insights", "skills"]
Tool = Literal[
    "stage_resets", "replay_weight", "exploration_noise", "best_of_n", "hindsight_subgoals"
]

#: Stands in metrics and tables for all families of a run together.
ALL = "all"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, Field(min_length=1)]


def _as_tuple(value: Any) -> Any:
    """YAML knows lists only; strict validation asks for the tuple that a frozen model keeps."""
    return tuple(value) if isinstance(value, list) else value


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("a list that names each family once")
    return names


def _distinct_tools(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("a list that names each tool once")
    return names


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError("a number, a text, true, false or null")


#: The value of a plugin's option: plain data, no nesting.
Option = Annotated[Any, AfterValidator(_plain)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class BackboneConfig(_Settings):
    """Which policy is trained, and its own options."""

    name: Name = "flow_chunk"
    """A built-in or installed backbone, `module:Class`, or the path of a Python file."""
    options: dict[str, Option] = Field(default_factory=dict)
    """Keyword arguments of the backbone; the backbone itself checks them."""


class DemonstrationsConfig(_Settings):
    """What the families' experts show before training starts."""

    episodes: Positive = 100
    """Successful expert episodes of each family, on scenes from the seed range."""
    noise: Share = 0.05
    """Standard deviation of the noise added to the expert's actions (1 = full action range)."""
    pushes: Share = 0.7
    """Share that starts where the open hand was pushed to, so that the way back is shown."""


class SFTConfig(_Settings):
    """Supervised fine-tuning of the backbone on the demonstrations of all families."""

    updates: Count = 3000
    """Optimiser steps."""
    batch_size: Positive = 256
    """Chunks a step."""


class CollectConfig(_Settings):
    """The rollouts the learner learns from; every number is for one family."""

    warm_up_episodes: Count = 768
    """Episodes of backbone plus noise before the critic's warm-up."""
    episodes: Positive = 1280
    """Episodes a round, warm-up not counted."""
    episodes_per_block: Positive = 128
    """Episodes between two blocks of learner updates."""
    wide_share: Annotated[float, Field(ge=0.5, le=1.0)] = 0.5
    """Least share of a round's scenes drawn from the whole generator range, not from modes."""
    scenes: Positive = 512
    """Distinct scenes of the whole range in a round; each serves several episodes."""
    scenes_per_mode: Positive = 128
    """Distinct scenes of each difficulty mode in a round."""
    replay_megabytes: Positive = 512
    """Most memory for a family's recorded rollouts; the oldest episodes go first."""


class LearnerConfig(_Settings):
    """The chunk critic and what learns beside it; every family has its own."""

    update: UpdateRule = "residual"
    """What learns from rollouts: `residual`: a bounded correction of the policy that climbs the
    critic, distilled into the policy at the round's end; `ppo`: such a correction by proximal
    policy optimisation, distilled likewise; `weighted`: the policy itself after every block, on
    its own chunks weighted by their advantage. With signal `frozen` the critic alone learns."""
    warm_up_updates: Count = 1500
    """Critic-only updates after the warm-up episodes."""
    updates_per_block: Positive = 500
    """Critic updates after each block of episodes; the actor takes every second one."""
    batch_size: Positive = 160
    """Transitions an update."""
    demo_share: Share = 0.25
    """Share of every batch that is demonstrations."""
    discount: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9924
    """Discount of one environment step; 0.9924 is 0.97 over a chunk of four."""
    candidates: Annotated[int, Field(ge=2)] = 8
    """Chunks that the critic picks one of; used where `signal` is `frozen` alone."""
    trace: Share = 0.9
    """λ of the advantages, per chunk; for `ppo` and `weighted`."""
    divergence: Annotated[float, Field(gt=0.0, le=1.0)] = 0.03
    """Kullback-Leibler divergence (nats) from the policy that acted in a block at which the passes
    over it stop; for `ppo`."""
    beta: Annotated[float, Field(gt=0.0)] = 1.0
    """Temperature of the weights, in standard deviations of the advantages; for `weighted`."""
    keep: Positive = 3
    """Blocks of which all episodes are learnt from, not the successes alone; for `weighted`."""
    backbone_updates: Count = 500
    """Optimiser steps of the policy after each block, for all families; for `weighted`."""


class DistilConfig(_Settings):
    """Distillation of the residual policies' successes into the backbone, at a round's end."""

    episodes: Count = 400
    """Episodes of each family's residual policy; the successes are kept. Where `learner.update` is
    `weighted` there is none: as many episodes check the policy after its last lesson."""
    blocks: Count = 0
    """Last blocks of the round whose successes are distilled too, labelled anew by the residual
    policy at its end; none where `learner.update` is `weighted`."""
    updates: Count = 2500
    """Optimiser steps of the backbone, on the successes of all families together."""


class CodaConfig(_Settings):
    """What the strategy `coda` does with the failures that it found; other strategies ignore it.

    `omega`, `phi` and `graded` off: the diagnoses are made and the modes measured, and nothing
    comes of it. `omega`, `phi` and `tools` are about the programs.
    """

    memory: Memory = "programs"
    """What a round takes from the failures that it remembers: `programs`: modes with generation and
    training programs, from tested claims; the others are alternatives to compare with: `none`;
    `trajectories`: the scenes of the failed trajectories most like the present ones; `insights`:
    what most untested diagnoses say; `skills`: what got done, rehearsed in the stages that fail."""
    omega: bool = True
    """Generation programs Ω: aim scenes at the modes. Off: every scene is wide."""
    phi: bool = True
    """Training programs Φ: diagnoses refine the potential, and their learning tools are used."""
    graded: bool = True
    """Wide scenes by graded magnitudes. Off: uniform over the generator range."""
    tools: Annotated[
        tuple[Tool, ...], BeforeValidator(_as_tuple), AfterValidator(_distinct_tools)
    ] = ("stage_resets", "hindsight_subgoals")
    """The learning tools that training programs may use; `[]` for none. The other three are off
    unless named: measured alone, none of them helped its modes, and two cost success on wide scenes
    (docs/training_programs.md)."""
    given: dict[Name, Name] = Field(default_factory=dict)
    """For the strategy `given`: declared interactions that stand for modes, each with the stage
    that a diagnosis would name."""


class DiagnosisConfig(_Settings):
    """Who says why an episode failed, and how many causes are tested."""

    diagnostician: Name = "trace"
    """A built-in or installed diagnostician: `trace`, `vlm` or `random_factor`, or a plugin's."""
    options: dict[str, Option] = Field(default_factory=dict)
    """Keyword arguments of the diagnostician; it checks them itself. No keys: those come by the
    environment."""
    episodes: Positive = 256
    """Episodes a round and family in which failures are looked for."""
    max_tested: Count = 4
    """Diagnoses a round and family that get a control evaluation."""


class ProgramsConfig(_Settings):
    """Who writes the programs of a confirmed difficulty."""

    author: Literal["compiler", "model"] = "compiler"
    """`compiler`: by fixed rules. `model`: a language model writes generation programs and
    potentials against the same schema, where a wrong answer is repaired once; where it gives none,
    the compiler's stand."""
    options: dict[str, Option] = Field(default_factory=dict)
    """The model's: `base_url`, `model` and others as for `vlm`. No keys: those come by the
    environment."""


class ControlConfig(_Settings):
    """Control evaluation of a diagnosis."""

    max_per_arm: Positive = 32
    """Most rollouts in each of the three arms."""


class ProbesConfig(_Settings):
    """The fixed scenes that measure learning progress."""

    per_mode: Positive = 64
    """Probe scenes for each difficulty mode."""
    band_rollouts: Count = 0
    """Episodes in each scene that targeting is measured in: whether a mode's new scenes are neither
    always solved nor never. 0: it is not measured."""
    band_scenes: Positive = 16
    """A mode's scenes that targeting is measured in."""


class EvaluationConfig(_Settings):
    """What is measured after every round, with the backbone alone."""

    suites: Annotated[tuple[Suite, ...], BeforeValidator(_as_tuple)] = (
        "seed",
        "ood-dev",
        "ood",
    )
    """Suites to evaluate on, and `wide`: fresh scenes of the whole generator range, the same ones
    in every run. Nothing may be tuned on `ood`."""
    episodes: Positive = 200
    """Episodes a suite and family."""


class RunConfig(_Settings):
    """All settings of one run. Two runs with equal settings give equal numbers.

    One policy is trained over all ``families``. Numbers of episodes, scenes, diagnoses and probes
    are for each family; optimiser steps of the backbone (``sft``, ``distil``) are for all together.
    """

    seed: Count = 0
    """Seed of everything random in the run."""
    families: Annotated[
        tuple[Name, ...],
        BeforeValidator(_as_tuple),
        Field(min_length=1),
        AfterValidator(_distinct),
    ] = ("pick-place",)
    """The task families that the one policy learns: built-in or installed, each once."""
    strategy: Strategy = "coda"
    """`sft`: demonstrations only; `uniform`: scenes from the whole range; `graded`: the same, from
    the seed range outwards; `coda`: the full loop; `given`: for benchmarks of the learning tools,
    with modes that nobody had to find (`coda.given`)."""
    signal: Signal = "text2potential"
    """What the learner is paid: `text2potential`: potentials compiled from diagnoses and refined
    between rounds; `unrefined`: not refined; `description`: the potential of the task's description
    alone; `sparse`: success only; `free-form`: a dense reward that is no potential and may change
    which policy is best; `frozen`: the policy never changes, the critic picks among its samples."""
    rounds: Count = 2
    """Rounds of generate, collect, diagnose, control, compile, train and measure."""
    control_hz: Literal[10, 20] = 10
    """Environment steps a second."""
    workers: Positive = 1
    """Processes that run rollouts. The results do not depend on it."""
    backbone: BackboneConfig = BackboneConfig()
    demonstrations: DemonstrationsConfig = DemonstrationsConfig()
    sft: SFTConfig = SFTConfig()
    collect: CollectConfig = CollectConfig()
    learner: LearnerConfig = LearnerConfig()
    distil: DistilConfig = DistilConfig()
    coda: CodaConfig = CodaConfig()
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    programs: ProgramsConfig = ProgramsConfig()
    control: ControlConfig = ControlConfig()
    probes: ProbesConfig = ProbesConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, every setting resolved, ready for JSON or YAML."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The resolved configuration as a document that :func:`load_config` reads back."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=100)
