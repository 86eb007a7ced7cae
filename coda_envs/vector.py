"""ManipulationVectorEnv: many environments whose physics MuJoCo steps together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from coda_envs import robot
from coda_envs.actions import as_actions, not_finite
from coda_envs.arena import Compiled
from coda_envs.env import BLOCK, IK_STEPS, ManipulationEnv
from coda_envs.errors import SceneError, short, suggest
from coda_envs.instruction import INSTRUCTION_BYTES, encode_instruction
from coda_envs.observations import WITH_IMAGES, Obs
from coda_envs.outcome import DIVERGED, Mover, lost, movers
from coda_envs.scene import Scene
from coda_envs.sensing import FEATURE_BOUND, N_SLOTS, SensorRows
from coda_envs.simulations import Simulations
from coda_envs.start_state import StartState
from coda_envs.text2potential.wrapper import shaping
from coda_envs.topology import build

#: How an environment may go on after an episode; see Gymnasium's ``AutoresetMode``.
AUTORESET_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)


class Outcomes(NamedTuple):
    """What a control step came to, one item an environment that acted.

    ``success [k]``, ``terminated [k]``, ``truncated [k]`` bool; ``failure [k]``: why the episode
    was declared failed, or empty.
    """

    success: np.ndarray
    failure: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class ManipulationVectorEnv(VectorEnv[Obs, np.ndarray, np.ndarray]):
    """``num_envs`` environments in one, each playing to the byte what it would play alone.

    ``options``: the keyword arguments of :class:`coda_envs.env.ManipulationEnv`, but those that
    draw. ``nthread``: threads that step the physics, 0 for one a core; the numbers do not depend on
    it. ``autoreset_mode``: ``NextStep`` (the step after an episode's last resets, its action
    counting for nothing) or ``SameStep`` (the last step resets at once; ``final_obs`` and
    ``final_info`` of ``infos`` say how the episode ended).

    Environment i of ``reset(seed=s)`` is one reset with seed s + i. Actions ``[n, 7]``;
    observations, rewards, ends and infos as Gymnasium's own vector environments give them. Actions
    with a number that is not finite raise ``ValueError``, and change nothing in any environment.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        nthread: int = 0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Any,
    ) -> None:
        if num_envs < 1 or nthread < 0:
            raise SceneError(
                f"num_envs={num_envs}, nthread={nthread}.",
                allowed="at least one environment, and 0 threads (one a core) or more",
            )
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        # What the options mean, and whether they are right, is for the single environment to say.
        self._single = single = ManipulationEnv(**options)
        if single.obs_mode in WITH_IMAGES or single.render_mode is not None:
            raise SceneError(
                f"obs_mode={single.obs_mode!r}, render_mode={single.render_mode!r}.",
                allowed="obs_mode 'state' or 'privileged', and no render_mode",
                remedy="pass vectorization_mode='sync' or 'async' to gym.make_vec for pictures",
            )
        self.num_envs = num_envs
        self.family, self.max_steps = single.family, single.max_steps
        self.single_action_space = single.action_space
        self.single_observation_space = single.observation_space
        self.action_space = batch_space(single.action_space, num_envs)
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.metadata = single.metadata | {"autoreset_mode": self.autoreset_mode}

        from coda_envs.kernels import control

        self._kernel, self._arm = control.act, robot.arm_table()
        blocks = round(1.0 / single.control_hz / robot.TIMESTEP) // BLOCK
        self._nthread = nthread
        self._simulations: list[Simulations] = []
        self._numbers: dict[Hashable, int] = {}
        # One row, or item, an environment.
        self._found = SensorRows(num_envs, self.family.schema)
        self._control = np.tile(robot.home_control(), (num_envs, 1))
        self._targets = np.zeros((num_envs, blocks, 8))
        self._instructions = np.zeros((num_envs, INSTRUCTION_BYTES), dtype=np.uint8)
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._success = np.zeros(num_envs, dtype=bool)
        self._failures, self._texts, self._scene_ids = np.full((3, num_envs), "", dtype=object)
        self._potentials, self._stages = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)
        self._compiled: list[Compiled | None] = [None] * num_envs
        self._topologies = np.zeros(num_envs, dtype=np.int64)
        self._movers: list[tuple[Mover, ...]] = [()] * num_envs
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._seeds: list[int | None] = [None] * num_envs
        self._over = np.zeros(num_envs, dtype=bool)

    # Gymnasium ---------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Obs, dict[str, Any]]:
        """Start an episode in every environment. ``seed``: of the first one, or one for each."""
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        given = [None] * self.num_envs if seeds is None else list(seeds)
        if len(given) != self.num_envs:
            raise SceneError(f"{len(given)} seeds were given.", allowed=f"{self.num_envs}")
        for env, one in enumerate(given):
            if one is not None:
                self._generators[env], self._seeds[env] = seeding.np_random(one)
        self._reset(np.arange(self.num_envs), options or {})
        return self._observations(), self._infos()

    def step(
        self, actions: np.ndarray
    ) -> tuple[Obs, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One control step of every environment, or the reset of one whose episode is over."""
        if any(compiled is None for compiled in self._compiled):
            raise gym.error.ResetNeeded("call reset() before step()")
        resetting = np.flatnonzero(self._over)
        acting = np.flatnonzero(~self._over)
        before = self._potentials.copy()
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=bool)
        given = as_actions(actions, (self.num_envs, 7))
        rewards[acting], _, terminated[acting], truncated[acting] = self._advance(given, acting)
        if self._single.potential is not None:
            shaped = shaping(before, self._potentials, self._single.gamma, 1, terminated)
            rewards[acting] += shaped[acting]
        final: dict[str, Any] = {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            resetting = np.flatnonzero(self._over)
            final = self._final(resetting)
        self._reset(resetting, {})
        return self._observations(), rewards, terminated, truncated, final | self._infos()

    def close_extras(self, **kwargs: Any) -> None:
        """Free the simulations. They come back with the next reset."""
        self._simulations.clear()
        self._numbers.clear()
        self._compiled = [None] * self.num_envs

    # One by one --------------------------------------------------------------------------------

    def start(
        self,
        envs: np.ndarray,
        scenes: Sequence[Scene],
        seeds: Sequence[int],
        states: Sequence[StartState | None] | None = None,
    ) -> None:
        """Start an episode of ``scenes[k]`` with ``seeds[k]`` in environment ``envs[k]``, whatever
        was under way there; the other environments stay as they are.

        ``envs [k]``: rising int64. ``states[k]``: where the episode starts, None: at the scene's
        start. From here on these environments are for :meth:`advance`, which never resets one by
        itself. Raises :class:`SceneError` for a scene or state that cannot be played.
        """
        for env, seed in zip(envs.tolist(), seeds, strict=True):
            self._generators[env], self._seeds[env] = seeding.np_random(seed)
        self._begin(envs, self._chosen(envs, [{"scene": scene} for scene in scenes]), states)

    def advance(self, envs: np.ndarray, actions: np.ndarray) -> Outcomes:
        """One control step of ``envs [k]`` (rising int64), whose episodes must not be over, with
        ``actions [k, 7]``; the other environments stay as they are."""
        idle = [e for e in envs.tolist() if self._over[e] or self._compiled[e] is None]
        if idle:
            raise gym.error.ResetNeeded(f"environment {idle[0]} has no episode: call start()")
        given = np.zeros((self.num_envs, 7))
        given[envs] = as_actions(actions, (len(envs), 7))
        return self._advance(given, envs)

    def observe(self, envs: np.ndarray) -> Obs:
        """The observations of ``envs [k]``, a row each."""
        found, n = self._found, len(envs)
        obs: Obs = {
            "proprio": found.proprio[envs],
            "objects": found.objects[envs].reshape(n, -1),
            "instruction": self._instructions[envs],
        }
        if self._single.obs_mode == "privileged":
            bounded = np.clip(found.features[envs], -FEATURE_BOUND, FEATURE_BOUND)
            obs["features"] = bounded.astype(np.float32)
        return obs

    def start_state(self, env: int) -> StartState:
        """Where the episode of an environment is, for :meth:`start`."""
        scene = self._playing(env).scene
        physics = self._simulations[self._topologies[env]].state[env].copy()
        return StartState(scene.id, physics, self._control[env].copy(), int(self._steps[env]))

    # State -------------------------------------------------------------------------------------

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """The scenes being played. Raises before the first reset."""
        return tuple(self._playing(env).scene for env in range(self.num_envs))

    @property
    def topologies(self) -> int:
        """How many topologies have been played: the groups in which physics is stepped."""
        return len(self._simulations)

    @property
    def features(self) -> np.ndarray:
        """State features ``[n, F]``, see :mod:`coda_envs.features`."""
        return self._found.features.copy()

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The environments' generators, as Gymnasium's own vector environments give them."""
        return tuple(self._generator(env) for env in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seeds of the environments' generators."""
        return tuple(self._seeds)

    # Inside ------------------------------------------------------------------------------------

    def _playing(self, env: int) -> Compiled:
        compiled = self._compiled[env]
        if compiled is None:
            raise gym.error.ResetNeeded("call reset() before asking for the scenes")
        return compiled

    def _generator(self, env: int) -> np.random.Generator:
        generator = self._generators[env]
        if generator is None:
            generator, self._seeds[env] = seeding.np_random()
            self._generators[env] = generator
        return generator

    def _reset(self, envs: np.ndarray, options: dict[str, Any]) -> None:
        """Start the episodes in these environments that the options ask for."""
        if envs.size:
            self._begin(envs, self._chosen(envs, [options] * len(envs)))

    def _chosen(self, envs: np.ndarray, options: Sequence[dict[str, Any]]) -> list[Scene]:
        """The scenes that the options ask for, drawn by the environments' generators."""
        choose = self._single.source.choose
        return [choose(self._generator(e), o) for e, o in zip(envs.tolist(), options, strict=True)]

    def _begin(
        self,
        envs: np.ndarray,
        scenes: Sequence[Scene],
        states: Sequence[StartState | None] | None = None,
    ) -> None:
        """Start an episode in each of these environments, and read its first state."""
        # Until it has begun there is none.
        self._over[envs] = True
        for env, scene in zip(envs.tolist(), scenes, strict=True):
            self._load(env, scene)
            self._found.load(env, self._playing(env), self._generator(env).permutation(N_SLOTS))
        for simulations, own in self._by_topology(envs):
            simulations.start(own, [self._playing(env) for env in own.tolist()])
        self._control[envs] = robot.home_control()
        self._steps[envs] = 0
        self._failures[envs] = ""
        for env, state in zip(envs.tolist(), states or [None] * len(envs), strict=True):
            if state is not None:
                self._go_to(env, state)
        self._judge(envs)
        self._over[envs] = False

    def _go_to(self, env: int, state: StartState) -> None:
        physics = self._simulations[self._topologies[env]].state[env]
        state.check(self._playing(env).scene, len(physics), self.max_steps)
        physics[:], self._control[env], self._steps[env] = state.physics, state.control, state.steps

    def _load(self, env: int, scene: Scene) -> None:
        """Have an environment play a scene."""
        old = self._compiled[env]
        if old is not None and old.scene.id == scene.id:
            return
        if old is not None:
            self._simulations[self._topologies[env]].leave(env)
        self._compiled[env] = compiled = build(scene)
        if compiled.topology not in self._numbers:
            self._numbers[compiled.topology] = len(self._simulations)
            self._simulations.append(
                Simulations(compiled, self.family.schema, self.num_envs, self._nthread)
            )
        self._topologies[env] = self._numbers[compiled.topology]
        self._movers[env] = movers(compiled, self.family.schema)
        self._instructions[env] = encode_instruction(scene.task.instruction)
        self._texts[env], self._scene_ids[env] = scene.task.instruction, scene.id

    def _by_topology(self, envs: np.ndarray) -> Iterator[tuple[Simulations, np.ndarray]]:
        """These environments by the topologies that they play."""
        played = self._topologies[envs]
        for number in np.unique(played).tolist():
            yield self._simulations[number], envs[played == number]

    def _act(self, actions: np.ndarray, envs: np.ndarray) -> None:
        """Turn the actions ``[n, 7]`` of these environments into controls."""
        wrong = self._kernel(
            self._arm, IK_STEPS[self._single.control_hz], actions, envs, self._found.poses,
            self._control, self._targets,
        )  # fmt: skip
        if wrong >= 0:
            env, component = divmod(wrong, 7)
            raise ValueError(f"environment {env}: {not_finite(actions[env], component)}")

    def _advance(self, actions: np.ndarray, envs: np.ndarray) -> Outcomes:
        """One control step of these environments; ``actions [n, 7]`` has a row for each of all."""
        self._act(actions, envs)
        self._simulate(envs)
        self._steps[envs] += 1
        self._judge(envs)
        success, failure = self._success[envs], self._failures[envs]
        terminated = success | np.asarray(failure != "", dtype=bool)
        truncated = ~terminated & (self._steps[envs] >= self.max_steps)
        self._over[envs] = terminated | truncated
        return Outcomes(success, failure, terminated, truncated)

    def _simulate(self, envs: np.ndarray) -> None:
        for simulations, own in self._by_topology(envs):
            diverged = simulations.step(own, self._targets[own], BLOCK)
            self._failures[own[diverged]] = DIVERGED

    def _judge(self, envs: np.ndarray) -> None:
        """Read the states of these environments: features, failures, success and potential."""
        for simulations, own in self._by_topology(envs):
            simulations.read(own, self._control[:, 14], self._found)
        features, success = self._found.features, self.family.success
        for env in envs.tolist():
            row, failure = features[env], self._failures[env]
            failure = failure or lost(row, self._movers[env])
            self._failures[env] = failure
            self._success[env] = bool(success(self._playing(env).scene, row)) and not failure
        if self._single.potential is not None:
            rows = features[envs]
            stages = self._single.potential.stage(rows)
            self._stages[envs] = stages
            self._potentials[envs] = self._single.potential.of_stage(rows, stages)

    def _observations(self) -> Obs:
        return self.observe(np.arange(self.num_envs))

    def _infos(self) -> dict[str, Any]:
        infos: dict[str, Any] = {
            "success": self._success.copy(),
            "is_success": self._success.copy(),
            "sparse_reward": self._success.astype(float),
            "scene_id": self._scene_ids.copy(),
            "instruction": self._texts.copy(),
            "failure": self._failures.copy(),
        }
        if self._single.potential is not None:
            infos |= {"potential": self._potentials.copy(), "stage": self._stages.copy()}
        # Gymnasium's masks: which environments have said so.
        return infos | {f"_{name}": np.ones(self.num_envs, dtype=bool) for name in infos}

    def _final(self, envs: np.ndarray) -> dict[str, Any]:
        """What ``infos`` says of the last states of episodes that are over, where any are."""
        final: dict[str, Any] = {}
        if envs.size:
            obs, infos = self._observations(), self._infos()
            names = [name for name in infos if not name.startswith("_")]
            for env in envs.tolist():
                last = {name: infos[name][env : env + 1].tolist()[0] for name in names}
                seen = {name: rows[env].copy() for name, rows in obs.items()}
                final = self._add_info(final, {"final_obs": seen, "final_info": last}, env)
        return final


def _autoreset_mode(given: AutoresetMode | str) -> AutoresetMode:
    values = [mode.value for mode in AUTORESET_MODES]
    value = given.value if isinstance(given, AutoresetMode) else given
    if value not in values:
        raise SceneError(f"autoreset_mode={short(value)}.", allowed=suggest(str(value), values))
    return AutoresetMode(value)
