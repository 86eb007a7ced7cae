"""ManipulationEnv: one scene at a time as a Gymnasium environment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces

from coda_envs import robot
from coda_envs.arena import OFFSCREEN, TABLE, TABLE_X, CompileCache, diverged
from coda_envs.errors import SceneError, suggest
from coda_envs.factors import RangeName
from coda_envs.family import get_family
from coda_envs.instruction import INSTRUCTION_BYTES, encode_instruction
from coda_envs.programs.potential import PotentialProgram
from coda_envs.rendering import OffscreenRenderer
from coda_envs.scene import Scene
from coda_envs.scene_source import make_source
from coda_envs.sensing import (
    FEATURE_BOUND,
    N_SLOTS,
    PROPRIO_BOUND,
    SLOT_BOUND,
    Sensor,
)
from coda_envs.text2potential.evaluate import Potential, compile_potential
from coda_envs.text2potential.wrapper import shaping

ObsMode = Literal["state", "rgb", "rgb+state", "privileged"]
RewardMode = Literal["sparse", "shaped"]

OBS_MODES = ("state", "rgb", "rgb+state", "privileged")
CONTROL_HZ = (10, 20)
#: Inverse-kinematics steps an action. At 20 Hz one leaves the joint targets 0.8 mm short in the
#: mean; the arm is further behind them than that when the next action comes, and the expert
#: succeeds as often as with two.
IK_STEPS = {10: 2, 20: 1}
#: Physics steps between two joint targets.
_BLOCK = 5
Obs = dict[str, np.ndarray]


class ManipulationEnv(gym.Env[Obs, np.ndarray]):
    """A robot arm over a table, with one scene at a time.

    Action ``[7]`` float32 in [-1, 1]: delta x, y, z (1 = 5 cm, table frame), delta axis-angle
    (1 = 0.5 rad, table frame), gripper (-1 open, +1 close). Values beyond the bounds act like the
    bound; NaN, infinity and other shapes raise ``ValueError`` and change nothing.

    Observation: a flat Dict. ``state``: ``proprio [8]``, ``objects [126]``, ``instruction
    [128]``. ``rgb``: ``proprio``, ``agentview`` and ``wrist`` (upright uint8), ``instruction``.
    ``rgb+state``: all of these. ``privileged``: ``state`` plus ``features [F]``, which name the
    roles. See :mod:`coda_envs.sensing` for columns and units.

    Reward: 1 where the verifier holds, else 0 (``sparse``); ``shaped`` adds γΦ(s') − Φ(s).
    ``terminated``: the verifier holds, or a declared failure (``info["failure"]``).
    ``truncated``: the step limit, nothing else.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 as in gym.Env

    def __init__(
        self,
        family: str = "pick-place",
        *,
        scene: str | Mapping[str, Any] | Scene | None = None,
        suite: str | None = None,
        library: str | None = None,
        within: RangeName = "seed",
        obs_mode: ObsMode = "state",
        reward_mode: RewardMode = "sparse",
        potential: str | Mapping[str, Any] | None = None,
        gamma: float = 0.99,
        control_mode: Literal["delta_pose"] = "delta_pose",
        control_hz: int = 20,
        max_steps: int | None = None,
        image_size: int = 128,
        render_mode: str | None = None,
        render_size: tuple[int, int] = (480, 640),
    ) -> None:
        self.family = get_family(family)
        _one_of("obs_mode", obs_mode, OBS_MODES)
        _one_of("reward_mode", reward_mode, ("sparse", "shaped"))
        _one_of("control_mode", control_mode, ("delta_pose",))
        _one_of("control_hz", control_hz, CONTROL_HZ)
        _one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        if max_steps is not None and max_steps < 1:
            raise SceneError(f"max_steps is {max_steps}.", allowed="a whole number of at least 1")
        if not 16 <= image_size <= 960:
            raise SceneError(f"image_size is {image_size}.", allowed="16 to 960 pixels")
        height, width = render_size
        if not (16 <= height <= OFFSCREEN[0] and 16 <= width <= OFFSCREEN[1]):
            raise SceneError(
                f"render_size is {height} × {width}.",
                allowed=f"height and width from 16 to {OFFSCREEN[0]} × {OFFSCREEN[1]} pixels",
            )
        self.source = make_source(
            self.family, scene=scene, suite=suite, library=library, within=within
        )
        self.obs_mode = obs_mode
        self.reward_mode = reward_mode
        self.control_hz = control_hz
        self.gamma = gamma
        self.render_mode = render_mode
        self.render_size = (height, width)
        self.image_size = image_size
        self.max_steps = max_steps or round(self.family.max_seconds * control_hz)
        self.potential: Potential | None = None
        if reward_mode == "shaped":
            self.potential = compile_potential(self._program(potential), self.family.schema)
        elif potential is not None:
            raise SceneError("potential= is set, but reward_mode is 'sparse'.",
                             remedy="pass reward_mode='shaped'")  # fmt: skip
        self.metadata = {**self.metadata, "render_fps": control_hz}
        blocks = round(1.0 / control_hz / robot.TIMESTEP) // _BLOCK
        # Shares of the way to the new joint targets, one a block of physics steps: [blocks, 1].
        self._ramp = np.arange(1, blocks + 1)[:, None] / blocks
        self.action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)
        self.observation_space = self._observation_space()  # type: ignore[assignment]
        self._cache = CompileCache()
        self._controller = robot.Controller(steps=IK_STEPS[control_hz])
        self._renderer: OffscreenRenderer | None = None
        self._targets = np.array(robot.HOME)
        self._command = -1.0
        self._steps = 0
        self._order = np.arange(N_SLOTS)
        self._scene: Scene | None = None
        self.failure = ""

    # Gymnasium ---------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Start an episode. ``options``: ``scene`` (Scene or mapping) or ``index`` (into the suite
        or library); otherwise the scene is drawn from ``np_random``."""
        super().reset(seed=seed)
        options = options or {}
        unknown = set(options) - {"scene", "index"}
        if unknown:
            raise SceneError(
                f"unknown reset option {sorted(unknown)[0]!r}.", allowed="'index', 'scene'"
            )
        if "scene" in options:
            scene = make_source(self.family, scene=options["scene"]).fixed[0]
        elif "index" in options:
            scene = self.source.at(int(options["index"]))
        else:
            scene = self.source.draw(self.np_random)
        self._load(scene)
        self._order = self.np_random.permutation(N_SLOTS)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[self._arm] = robot.HOME
        self.data.qpos[self._fingers] = robot.FINGER
        self._controller.reset(np.array(robot.HOME))
        self._targets = np.array(robot.HOME)
        self.data.ctrl[:7] = robot.HOME
        self.data.ctrl[7] = robot.FINGER
        self._command = -1.0
        self._steps = 0
        self.failure = ""
        self._read()
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[Obs, SupportsFloat, bool, bool, dict[str, Any]]:
        """One control step: 1/control_hz seconds of physics."""
        clipped = self._checked_action(action)
        before = 0.0 if self.potential is None else float(self.potential(self.features))
        self._simulate(clipped)
        self._steps += 1
        self._read()
        terminated = self._success or bool(self.failure)
        truncated = not terminated and self._steps >= self.max_steps
        reward = 1.0 if self._success else 0.0
        if self.potential is not None:
            after = self.potential(self.features)
            reward += float(shaping(before, after, self.gamma, 1, terminated))
        return self._observation(), reward, terminated, truncated, self._info()

    def render(self) -> np.ndarray | None:
        """The agentview as ``[480, 640, 3]`` uint8 for ``render_mode="rgb_array"``, else None."""
        if self.render_mode is None:
            return None
        return self.picture("agentview", *self.render_size)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    # State -------------------------------------------------------------------------------------

    @property
    def scene(self) -> Scene:
        """The scene being played. Raises before the first reset."""
        if self._scene is None:
            raise gym.error.ResetNeeded("call reset() before asking for the scene")
        return self._scene

    def get_state(self) -> dict[str, Any]:
        """Everything the future depends on: physics, controller, counters, slots, generator."""
        physics = np.empty(mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_INTEGRATION))
        mujoco.mj_getState(
            self.model, self.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION.value
        )
        return {
            "scene": self.scene.to_dict(),
            "physics": physics,
            "target_position": self._controller.position.copy(),
            "target_quat": self._controller.quat.copy(),
            "joints": self._controller.joints.copy(),
            "targets": self._targets.copy(),
            "command": self._command,
            "steps": self._steps,
            "order": self._order.copy(),
            "failure": self.failure,
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> Obs:
        """Restore what :meth:`get_state` gave, bit for bit; returns the observation there."""
        scene = Scene.model_validate(state["scene"])
        self._load(scene)
        size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_INTEGRATION)
        physics = np.asarray(state["physics"], dtype=float)
        if physics.shape != (size,):
            raise SceneError(
                f"the state's physics has the shape {physics.shape}.", allowed=f"({size},)"
            )
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(
            self.model, self.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION.value
        )
        self._controller.position = np.array(state["target_position"], dtype=float)
        self._controller.quat = np.array(state["target_quat"], dtype=float)
        self._controller.joints = np.array(state["joints"], dtype=float)
        self._targets = np.array(state["targets"], dtype=float)
        self._command = float(state["command"])
        self._steps = int(state["steps"])
        self._order = np.array(state["order"])
        self.failure = str(state["failure"])
        self.np_random.bit_generator.state = state["generator"]
        self._read()
        return self._observation()

    def picture(self, camera: str, height: int, width: int) -> np.ndarray:
        """An upright ``[height, width, 3]`` uint8 picture from ``agentview`` or ``wrist``.

        ``agentview`` stands at the robot's right, z up. ``wrist`` has the fingertips on top; at
        home, what lies away from the robot is below them, and the robot's left is right.
        """
        if self._renderer is None:
            self._renderer = OffscreenRenderer(self.model)
        mujoco.mj_camlight(self.model, self.data)
        return self._renderer.render(self.model, self.data, camera, width, height)

    # Inside ------------------------------------------------------------------------------------

    def _load(self, scene: Scene) -> None:
        if self._scene is not None and self._scene.id == scene.id:
            return
        compiled = self._cache.get(scene)
        self.model = compiled.model
        self.data = mujoco.MjData(self.model)
        self._control = self.data.ctrl
        self._sensor = Sensor(compiled, self.data, self.family.schema)
        self._arm = np.array([self.model.joint(n).qposadr[0] for n in robot.ARM_JOINTS])
        self._fingers = np.array(
            [self.model.joint(f"{side}_slide").qposadr[0] for side in ("left", "right")]
        )
        self._scene = scene
        self._instruction = encode_instruction(scene.task.instruction)
        goal = scene.task.goal
        self._mover = self.family.schema.role_offset(goal.roles[0]) + 1

    def _checked_action(self, action: Any) -> np.ndarray:
        values = np.asarray(action, dtype=np.float64)
        if values.shape != (7,):
            raise ValueError(f"the action has the shape {values.shape}; allowed: (7,)")
        finite = [math.isfinite(value) for value in values.tolist()]
        if not all(finite):
            index = finite.index(False)
            raise ValueError(
                f"action[{index}] is {values[index]}; allowed: finite numbers in [-1, 1]"
            )
        bounded = [max(-1.0, min(value, 1.0)) for value in values.tolist()]
        # Rounded to float32 like the action space, so that what is stored is what acted.
        return np.array(bounded, dtype=np.float32).astype(np.float64)

    def _simulate(self, action: np.ndarray) -> None:
        data = self.data
        before = self._targets
        after = self._controller.move(action, self._reading.position, self._reading.quat)
        self._command = float(action[6])
        control = self._control
        control[7] = robot.FINGER * (1.0 - self._command) / 2.0
        for target in before + self._ramp * (after - before):
            control[:7] = target
            mujoco.mj_step(self.model, data, _BLOCK)
        self._targets = after
        if diverged(data):
            mujoco.mj_resetData(self.model, data)
            self.failure = "physics diverged"

    def _read(self) -> None:
        """Bring positions and contacts up to the current state, and evaluate the verifier.

        MuJoCo's own are one physics step old; reading them fresh makes features a function of the
        state, so that a restored state gives the same ones.
        """
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_collision(self.model, self.data)
        self._reading = self._sensor.read()
        self.features = self._sensor.features(self._reading, self._command)
        x, y, z = self.features[self._mover : self._mover + 3].tolist()
        if not self.failure and (z < -0.02 or abs(x - TABLE_X) > TABLE[0] or abs(y) > TABLE[1]):
            self.failure = f"{self.scene.task.goal.roles[0]} off the table"
        reached = bool(self.family.success(self.scene, self.features))
        self._success = reached and not self.failure

    def _observation(self) -> Obs:
        obs: Obs = {"proprio": self._sensor.proprio(self._reading)}
        if self.obs_mode != "rgb":
            # Flat, as SB3 wants vectors; object_table() gives the rows back.
            obs["objects"] = self._sensor.objects(self._reading, self._order).ravel()
        obs["instruction"] = self._instruction.copy()
        if self.obs_mode in ("rgb", "rgb+state"):
            for camera in ("agentview", "wrist"):
                obs[camera] = self.picture(camera, self.image_size, self.image_size)
        if self.obs_mode == "privileged":
            bounded = np.clip(self.features, -FEATURE_BOUND, FEATURE_BOUND)
            obs["features"] = bounded.astype(np.float32)
        return obs

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {
            "success": self._success,
            "is_success": self._success,
            "sparse_reward": 1.0 if self._success else 0.0,
            "scene_id": self.scene.id,
            "instruction": self.scene.task.instruction,
            "failure": self.failure,
        }
        if self.potential is not None:
            info["potential"] = float(self.potential(self.features))
            info["stage"] = int(self.potential.stage(self.features))
        return info

    def _observation_space(self) -> spaces.Dict:
        def within(bound: np.ndarray) -> spaces.Box:
            return spaces.Box(-bound, bound, dtype=np.float32)

        parts: dict[str, spaces.Space[Any]] = {"proprio": within(PROPRIO_BOUND)}
        if self.obs_mode != "rgb":
            parts["objects"] = within(np.tile(SLOT_BOUND, N_SLOTS))
        parts["instruction"] = spaces.Box(0, 255, (INSTRUCTION_BYTES,), np.uint8)
        if self.obs_mode in ("rgb", "rgb+state"):
            for camera in ("agentview", "wrist"):
                shape = (self.image_size, self.image_size, 3)
                parts[camera] = spaces.Box(0, 255, shape, np.uint8)
        if self.obs_mode == "privileged":
            size = self.family.schema.size
            parts["features"] = within(np.full(size, FEATURE_BOUND, dtype=np.float32))
        return spaces.Dict(parts)

    def _program(self, potential: str | Mapping[str, Any] | None) -> PotentialProgram:
        """The family's template, a program as data, or one read from a JSON file."""
        if potential is None:
            return self.family.template
        if isinstance(potential, str):
            try:
                potential = json.loads(Path(potential).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise SceneError(f"potential={potential!r} cannot be read: {error}") from error
        return PotentialProgram.parse(potential, "potential=")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise SceneError(f"{name}={value!r}.", allowed=suggest(str(value), map(str, allowed)))
