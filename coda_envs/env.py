"""ManipulationEnv: one scene at a time as a Gymnasium environment."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces

from coda_envs import robot
from coda_envs.arena import divergence
from coda_envs.cameras import Cameras, check_size, checked_channels
from coda_envs.errors import SceneError, suggest
from coda_envs.factor import RangeName
from coda_envs.family import get_family
from coda_envs.instruction import encode_instruction
from coda_envs.observations import OBS_MODES, WITH_IMAGES, Obs, ObsMode, observation_space
from coda_envs.outcome import DIVERGED, lost, movers
from coda_envs.programs.potential import read_program
from coda_envs.rendering import Channel, has_display
from coda_envs.scene import Scene
from coda_envs.scene_source import make_source
from coda_envs.sensing import (
    FEATURE_BOUND,
    N_SLOTS,
    Sensor,
)
from coda_envs.start_state import StartState
from coda_envs.text2potential.evaluate import Potential, compile_potential
from coda_envs.text2potential.wrapper import shaping
from coda_envs.topology import Workspace

if TYPE_CHECKING:
    from coda_envs.viewer import Window

RewardMode = Literal["sparse", "shaped"]

CONTROL_HZ = (10, 20)
#: Inverse-kinematics steps an action. At 20 Hz one leaves the joint targets 0.8 mm short in the
#: mean; the arm is further behind them than that when the next action comes, and the expert
#: succeeds as often as with two.
IK_STEPS = {10: 2, 20: 1}
#: Physics steps between two joint targets.
BLOCK = 5

# Where gym.Env keeps its generator.
_GENERATOR = ("_np_random", "_np_random_seed")


class ManipulationEnv(gym.Env[Obs, np.ndarray]):
    """A robot arm over a table, with one scene at a time.

    Action ``[7]`` float32 in [-1, 1]: delta x, y, z (1 = 5 cm, table frame), delta axis-angle
    (1 = 0.5 rad, table frame), gripper (-1 open, +1 close). Values beyond the bounds act like the
    bound; NaN, infinity and other shapes raise ``ValueError`` and change nothing.

    Observation: a flat Dict. ``state``: ``proprio [8]``, ``objects [180]``, ``instruction
    [128]``. ``rgb``: ``proprio``, ``agentview`` and ``wrist`` (upright uint8; ``image_channels``
    adds distances and labels, see :func:`coda_envs.cameras.image_spaces`), ``instruction``.
    ``rgb+state``: all of these. ``privileged``: ``state`` plus ``features [F]``, which name the
    roles. See :mod:`coda_envs.sensing` for columns and units.

    Reward: 1 where the verifier holds, else 0 (``sparse``); ``shaped`` adds γΦ(s') − Φ(s).
    ``terminated``: the verifier holds, or a declared failure (``info["failure"]``).
    ``truncated``: the step limit, nothing else.

    ``model`` and ``data`` are MuJoCo's objects. What is changed in the model lasts until another
    scene is loaded. An environment can be pickled and copied, in mid-episode too; changes to its
    model do not go along.
    """

    #: Where there is no display, an instance's own metadata leave out ``human``.
    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 20}  # noqa: RUF012 as in gym

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
        image_channels: Sequence[Channel] = ("rgb",),
        render_mode: str | None = None,
        render_size: tuple[int, int] = (480, 640),
    ) -> None:
        self._options = {name: value for name, value in locals().items() if name != "self"}
        self.family = get_family(family)
        _one_of("obs_mode", obs_mode, OBS_MODES)
        _one_of("reward_mode", reward_mode, ("sparse", "shaped"))
        _one_of("control_mode", control_mode, ("delta_pose",))
        _one_of("control_hz", control_hz, CONTROL_HZ)
        _one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        if max_steps is not None and max_steps < 1:
            raise SceneError(f"max_steps is {max_steps}.", allowed="a whole number of at least 1")
        check_size("image_size", image_size, image_size)
        height, width = render_size
        check_size("render_size", height, width)
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
        self.image_channels = checked_channels(image_channels)
        self.max_steps = max_steps or round(self.family.max_seconds * control_hz)
        self.potential: Potential | None = None
        if reward_mode == "shaped":
            program = self.family.template if potential is None else read_program(potential)
            self.potential = compile_potential(program, self.family.schema)
        elif potential is not None:
            raise SceneError("potential= is set, but reward_mode is 'sparse'.",
                             remedy="pass reward_mode='shaped'")  # fmt: skip
        modes = self.metadata["render_modes"] if has_display() else ["rgb_array"]
        self.metadata = {"render_modes": modes, "render_fps": control_hz}
        blocks = round(1.0 / control_hz / robot.TIMESTEP) // BLOCK
        self.action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)
        self.observation_space = observation_space(  # type: ignore[assignment]
            obs_mode, self.family.schema.size, image_size, self.image_channels
        )
        self._controller = robot.Controller(IK_STEPS[control_hz], blocks)
        self._workspace = Workspace()
        self._cameras = Cameras()
        self._window: Window | None = None
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
        scene = self.source.choose(self.np_random, options or {})
        self._load(scene)
        self._order = self.np_random.permutation(N_SLOTS)
        self._sensor.arrange(self._order)
        self._compiled.reset(self.data)
        self._controller.control[0] = robot.home_control()
        self._steps = 0
        self.failure = ""
        self._read()
        if self.render_mode == "human":
            self.render()
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[Obs, SupportsFloat, bool, bool, dict[str, Any]]:
        """One control step: 1/control_hz seconds of physics."""
        before = 0.0 if self.potential is None else float(self.potential(self.features))
        self._simulate(action)
        self._steps += 1
        self._read()
        terminated = self._success or bool(self.failure)
        truncated = not terminated and self._steps >= self.max_steps
        reward = 1.0 if self._success else 0.0
        if self.potential is not None:
            after = self.potential(self.features)
            reward += float(shaping(before, after, self.gamma, 1, terminated))
        if self.render_mode == "human":
            self.render()
        return self._observation(), reward, terminated, truncated, self._info()

    def render(self) -> np.ndarray | None:
        """The agentview as ``[480, 640, 3]`` uint8 for ``render_mode="rgb_array"``, else None.

        ``human`` shows the state in a window; ``reset`` and ``step`` then do so by themselves.
        Raises :class:`coda_envs.errors.CodaError` where no window can be opened.
        """
        if self.render_mode == "human":
            if self._window is None:
                from coda_envs.viewer import Window

                self._window = Window(self.control_hz)
            self._window.show(self.model, self.data)
        if self.render_mode != "rgb_array":
            return None
        return self.picture("agentview", *self.render_size)

    def close(self) -> None:
        """Free the renderer and close the window. Both come back when they are needed again."""
        self._cameras.close()
        if self._window is not None:
            self._window.close()

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
            "command": self._controller.command.item(),
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
        self._controller.position[:] = state["target_position"]
        self._controller.quat[:] = state["target_quat"]
        self._controller.joints[:] = state["joints"]
        self._controller.command[:] = state["command"]
        self._steps = int(state["steps"])
        self._order = np.array(state["order"])
        self._sensor.arrange(self._order)
        self.failure = str(state["failure"])
        self.np_random.bit_generator.state = state["generator"]
        self._read()
        return self._observation()

    def start_state(self) -> StartState:
        """Where the episode is, for another one of the same scene to start from."""
        return StartState(
            self.scene.id,
            self.get_state()["physics"],
            self._controller.control[0].copy(),
            self._steps,
        )

    def start_at(self, start: StartState) -> Obs:
        """Go on, after a reset, from a state of the same scene; returns the observation there.

        Raises :class:`SceneError` where it is not a state of the scene being played.
        """
        state = self.get_state()
        start.check(self.scene, len(state["physics"]), self.max_steps)
        position, quat, joints, command = np.split(start.control, (3, 7, 14))
        return self.set_state(
            state
            | {
                "physics": start.physics,
                "target_position": position,
                "target_quat": quat,
                "joints": joints,
                "command": command,
                "steps": start.steps,
            }
        )

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: vars(self).get(name) for name in ("_options", "spec", *_GENERATOR)}
        # A shallow copy of an environment must not share its generator.
        return copy.deepcopy(kept) | {"state": None if self._scene is None else self.get_state()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        type(self).__init__(self, **kept["_options"])
        vars(self).update({name: kept[name] for name in ("spec", *_GENERATOR)})
        if kept["state"] is not None:
            self.set_state(kept["state"])

    # Cameras -----------------------------------------------------------------------------------

    @property
    def entity_roles(self) -> tuple[str, ...]:
        """Roles of the things in the scene being played, in the order of their labels."""
        return tuple(entity.role for entity in self._compiled.entities)

    def picture(self, camera: str, height: int, width: int) -> np.ndarray:
        """An upright ``[height, width, 3]`` uint8 picture from ``agentview`` or ``wrist``.

        ``agentview`` stands at the robot's right, z up. ``wrist`` has the fingertips on top; at
        home, what lies away from the robot is below them, and the robot's left is right.
        """
        return self._seen(camera, height, width, "rgb")

    def depth(self, camera: str, height: int, width: int) -> np.ndarray:
        """Distances along the camera's axis, ``[height, width]`` float32 (m), 50 where nothing
        is."""
        return self._seen(camera, height, width, "depth")

    def segmentation(self, camera: str, height: int, width: int) -> np.ndarray:
        """Labels ``[height, width]`` int32: 1 + index into :attr:`entity_roles`, 0 where the robot,
        the table or nothing is seen. The observation has other labels, which hide the roles."""
        return self._seen(camera, height, width, "segmentation")

    # Inside ------------------------------------------------------------------------------------

    def _seen(self, camera: str, height: int, width: int, channel: Channel) -> np.ndarray:
        size = (height, width)
        return self._cameras.look(self._compiled, self.data, camera, size, (channel,))[channel]

    def _load(self, scene: Scene) -> None:
        if self._scene is not None and self._scene.id == scene.id:
            return
        compiled, self.data = self._workspace.load(scene)
        self._compiled, self.model = compiled, compiled.model
        self._control = self.data.ctrl
        self._diverged = divergence(self.data)
        self._sensor = Sensor(compiled, self.data, self.family.schema, self._controller.command)
        self._scene = scene
        self._instruction = encode_instruction(scene.task.instruction)
        self._movers = movers(compiled, self.family.schema)

    def _simulate(self, action: np.ndarray) -> None:
        data, control = self.data, self._control
        for targets in self._controller.act(action, self._sensor.pose):
            control[:] = targets
            mujoco.mj_step(self.model, data, BLOCK)
        if self._diverged():
            mujoco.mj_resetData(self.model, data)
            self.failure = DIVERGED

    def _read(self) -> None:
        """Bring positions and contacts up to the current state, and evaluate the verifier.

        MuJoCo's own are one physics step old; reading them fresh makes features a function of the
        state, so that a restored state gives the same ones.
        """
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_collision(self.model, self.data)
        self.features = self._sensor.read()
        self.failure = self.failure or lost(self.features, self._movers)
        reached = bool(self.family.success(self.scene, self.features))
        self._success = reached and not self.failure

    def _observation(self) -> Obs:
        obs: Obs = {"proprio": self._sensor.proprio()}
        if self.obs_mode != "rgb":
            # Flat, as SB3 wants vectors; object_table() gives the rows back.
            obs["objects"] = self._sensor.objects()
        obs["instruction"] = self._instruction.copy()
        if self.obs_mode in WITH_IMAGES:
            obs |= self._cameras.observe(
                self._compiled, self.data, self.image_size, self.image_channels, self._order
            )
        if self.obs_mode == "privileged":
            bounded = np.clip(self.features, -FEATURE_BOUND, FEATURE_BOUND)
            obs["features"] = bounded.astype(np.float32)
        return obs

    def _info(self) -> dict[str, Any]:
        scene = self.scene
        info: dict[str, Any] = {
            "success": self._success,
            "is_success": self._success,
            "sparse_reward": 1.0 if self._success else 0.0,
            "scene_id": scene.id,
            "instruction": scene.task.instruction,
            "failure": self.failure,
        }
        if self.potential is not None:
            info["potential"] = float(self.potential(self.features))
            info["stage"] = int(self.potential.stage(self.features))
        return info


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise SceneError(f"{name}={value!r}.", allowed=suggest(str(value), map(str, allowed)))
