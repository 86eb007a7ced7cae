"""Physical validity: named checks in order, bounded repair, and the certificate they leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import mujoco
import numpy as np

from coda_envs import robot
from coda_envs.arena import TABLE, TABLE_X, Compiled, compile_scene, diverged
from coda_envs.errors import HeldOutError, SceneError
from coda_envs.family import TaskFamily, get_family
from coda_envs.predicates import View
from coda_envs.scene import Scene
from coda_envs.sensing import Sensor

#: Deepest overlap at the start (m), farthest an object may move or turn while settling (m, rad).
PENETRATION = 0.001
SETTLE_MOVE = 0.005
SETTLE_TURN = 0.05
SETTLE_SECONDS = 1.0
#: Inverse kinematics must come this close (m + rad).
REACH_ERROR = 0.005
#: Share of the target's sample points that the main camera must see.
VISIBLE = 0.25
#: Bumped whenever a check or the physics changes, so that stored certificates show their age.
RULES = 1

CHECKS = (
    "layout",
    "compiles",
    "penetration",
    "not_solved",
    "settles",
    "workspace",
    "reachable",
    "visible",
    "solvable",
)


@dataclass(frozen=True)
class Check:
    """One named check: whether it passed, and in words what was found."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Certificate:
    """The record that a scene passed (or where it failed), with its settled state.

    ``settled``: MuJoCo ``qpos`` after one simulated second, empty where a check failed before.
    ``engine``: fingerprint of the physics that certified it.
    """

    scene_id: str
    checks: tuple[Check, ...]
    settled: tuple[float, ...] = ()
    engine: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check that ran passed."""
        return all(c.passed for c in self.checks)

    @property
    def reason(self) -> str:
        """Name of the check that failed, or empty."""
        return next((c.name for c in self.checks if not c.passed), "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "scene_id": self.scene_id,
            "passed": self.passed,
            "checks": [[c.name, c.passed, c.detail] for c in self.checks],
            "settled": list(self.settled),
            "engine": self.engine,
        }


def engine_fingerprint() -> str:
    """What a stored state depends on: MuJoCo's version and this suite's physics rules."""
    return f"mujoco {mujoco.__version__}, gymnasium {gymnasium.__version__}, rules {RULES}"


class _FailedError(Exception):
    """A check did not pass; carries the detail."""


@dataclass
class _Inspection:
    """What the checks of one scene share."""

    scene: Scene
    family: TaskFamily
    tries: int
    compiled: Compiled | None = None
    data: mujoco.MjData | None = None
    sensor: Sensor | None = None
    settled: tuple[float, ...] = ()

    @property
    def state(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        assert self.compiled is not None
        assert self.data is not None
        return self.compiled.model, self.data

    def features(self) -> np.ndarray:
        model, data = self.state
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        assert self.sensor is not None
        return self.sensor.features(self.sensor.read(), -1.0)


def validate(scene: Scene, *, solve_tries: int = 2) -> Certificate:
    """Run the checks in order and stop at the first failure.

    ``solve_tries``: how often the family's expert may try; 0 leaves the check ``solvable`` out.
    Every check is bounded in simulated time and never raises for a bad scene.
    """
    inspection = _Inspection(scene, get_family(scene.family), solve_tries)
    done: list[Check] = []
    for name in CHECKS:
        if name == "solvable" and solve_tries == 0:
            continue
        try:
            detail = _CHECKS[name](inspection)
        except (_FailedError, SceneError) as failure:
            done.append(Check(name, False, str(failure)))
            return Certificate(scene.id, tuple(done), (), engine_fingerprint())
        done.append(Check(name, True, detail))
    return Certificate(scene.id, tuple(done), inspection.settled, engine_fingerprint())


def _layout(it: _Inspection) -> str:
    problem = it.family.problem(it.scene.values)
    if problem:
        raise _FailedError(f"the scene {problem}")
    return "objects stand apart, the instruction fits one"


def _compiles(it: _Inspection) -> str:
    it.compiled = compile_scene(it.scene)
    model = it.compiled.model
    it.data = data = mujoco.MjData(model)
    it.sensor = Sensor(it.compiled, data, it.family.schema)
    for name, angle in zip(robot.ARM_JOINTS, robot.HOME, strict=True):
        data.qpos[model.joint(name).qposadr[0]] = angle
    for side in ("left", "right"):
        data.qpos[model.joint(f"{side}_slide").qposadr[0]] = robot.FINGER
    data.ctrl[:7], data.ctrl[7] = robot.HOME, robot.FINGER
    return f"{model.nbody} bodies, {model.ngeom} geoms"


def _penetration(it: _Inspection) -> str:
    model, data = it.state
    mujoco.mj_kinematics(model, data)
    mujoco.mj_collision(model, data)
    deepest = float(-data.contact.dist.min()) if data.ncon else 0.0
    if deepest > PENETRATION:
        worst = data.contact[int(np.argmin(data.contact.dist))]
        names = [model.geom(int(g)).name for g in worst.geom]
        raise _FailedError(f"{names[0]} and {names[1]} overlap by {1000 * deepest:.1f} mm")
    return f"deepest overlap {1000 * max(deepest, 0.0):.2f} mm"


def _not_solved(it: _Inspection) -> str:
    if bool(it.family.success(it.scene, it.features())):
        raise _FailedError("the goal holds before the robot moves")
    return "the goal does not hold yet"


def _settles(it: _Inspection) -> str:
    model, data = it.state
    before = _object_poses(it)
    mujoco.mj_step(model, data, round(SETTLE_SECONDS / robot.TIMESTEP))
    if diverged(data):
        raise _FailedError("physics diverged")
    mujoco.mj_kinematics(model, data)
    after = _object_poses(it)
    move = turn = 0.0
    for role, (position, matrix) in before.items():
        position_now, matrix_now = after[role]
        moved = float(np.linalg.norm(position_now - position))
        cosine = (float(np.trace(matrix.T @ matrix_now)) - 1.0) / 2.0
        turned = math.acos(min(1.0, max(-1.0, cosine)))
        move, turn = max(move, moved), max(turn, turned)
        if moved > SETTLE_MOVE or turned > SETTLE_TURN:
            raise _FailedError(
                f"{role} moves {1000 * moved:.1f} mm and turns {turned:.2f} rad in 1 s"
            )
    it.settled = tuple(round(float(q), 6) for q in data.qpos)
    return f"largest movement {1000 * move:.2f} mm, {turn:.3f} rad"


def _object_poses(it: _Inspection) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    _, data = it.state
    assert it.compiled is not None
    return {
        e.role: (data.body(e.role).xpos.copy(), data.body(e.role).xmat.reshape(3, 3).copy())
        for e in it.compiled.entities
        if e.free
    }


def _workspace(it: _Inspection) -> str:
    features = View(it.family.schema, it.features())
    assert it.compiled is not None
    for entity in it.compiled.entities:
        x, y, z = features.position(entity.role)
        reach = math.hypot(entity.half[0], entity.half[1])
        if abs(x - TABLE_X) + reach > TABLE[0] or abs(y) + reach > TABLE[1] or z < 0:
            raise _FailedError(f"{entity.role} stands over the table's edge at ({x:.2f}, {y:.2f})")
    return "everything lies on the table"


def _reachable(it: _Inspection) -> str:
    features = View(it.family.schema, it.features())
    down = np.array([0.0, 1.0, 0.0, 0.0])
    worst = 0.0
    for role in it.scene.task.goal.roles:
        for above in (0.0, 0.12):
            at = features.position(role) + np.array([0.0, 0.0, above])
            at[2] = max(at[2], 0.012)
            controller = robot.Controller()
            controller.reset(np.array(robot.HOME))
            error = controller.solve_pose(at, down)
            worst = max(worst, error)
            if error > REACH_ERROR:
                raise _FailedError(f"the gripper misses {role} by {1000 * error:.0f} mm (+ mrad)")
    return f"largest inverse-kinematics error {1000 * worst:.2f} mm"


def _visible(it: _Inspection) -> str:
    """Share of the target's corners and middle with a free line of sight to ``agentview``."""
    model, data = it.state
    mujoco.mj_camlight(model, data)
    camera = data.cam_xpos[model.camera("agentview").id]
    role = it.scene.task.goal.roles[0]
    body = data.body(role)
    assert it.compiled is not None
    half = np.array(next(e.half for e in it.compiled.entities if e.role == role))
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (0.2, 1)])
    points = body.xpos + (0.9 * signs * half) @ body.xmat.reshape(3, 3).T
    geom = np.zeros(1, dtype=np.int32)
    normal = np.zeros(3)
    seen = 0
    own = int(model.body(role).id)
    for point in points:
        ray = point - camera
        mujoco.mj_ray(model, data, camera, ray, None, 1, -1, geom, normal)
        seen += geom[0] >= 0 and int(model.geom_bodyid[geom[0]]) == own
    share = seen / len(points)
    if share < VISIBLE:
        raise _FailedError(f"the main camera sees {100 * share:.0f}% of {role}")
    return f"the main camera sees {100 * share:.0f}% of {role}"


def _solvable(it: _Inspection) -> str:
    from coda_envs.env import ManipulationEnv

    env = ManipulationEnv(it.family.name, scene=it.scene, control_hz=20)
    try:
        for attempt in range(it.tries):
            env.reset(seed=attempt)
            expert = it.family.expert(attempt)
            done = False
            while not done:
                _, _, terminated, truncated, info = env.step(expert.act(env))
                done = terminated or truncated
            if info["success"]:
                return f"the expert solves it in try {attempt + 1}"
    finally:
        env.close()
    raise _FailedError(f"the expert fails in {it.tries} tries: {info['failure'] or 'out of time'}")


_CHECKS: dict[str, Callable[[_Inspection], str]] = {
    "layout": _layout,
    "compiles": _compiles,
    "penetration": _penetration,
    "not_solved": _not_solved,
    "settles": _settles,
    "workspace": _workspace,
    "reachable": _reachable,
    "visible": _visible,
    "solvable": _solvable,
}


@dataclass(frozen=True)
class Repair:
    """One bounded repair: what failed and which factors were drawn anew."""

    reason: str
    changed: Mapping[str, Any] = field(default_factory=dict)


def repair(
    scene: Scene,
    reason: str,
    edited: Iterable[str],
    rng: np.random.Generator,
    tries: int = 20,
) -> tuple[Scene, Repair] | None:
    """A laid-out scene of the same region with the unedited positions drawn anew, or None.

    Never touches an ``edited`` factor: a scene that only an edit makes invalid is rejected.
    """
    family = get_family(scene.family)
    keep = set(edited)
    free = [
        f for f in family.space.active(scene.values) if f.group == "spatial" and f.path not in keep
    ]
    region = family.region(scene)
    for _ in range(tries):
        changed = {f.path: round(float(f.sample(rng, "generator")), 6) for f in free}
        if not changed:
            return None
        candidate = scene.edit_many(changed)
        if family.problem(candidate.values) is None and family.region(candidate) == region:
            return candidate, Repair(reason, changed)
    return None


def accept_for_training(scene: Scene) -> Scene:
    """The scene itself if it lies in the generator region.

    Raises :class:`HeldOutError` otherwise; every scene that training, controls, probes or stage
    resets use passes through here.
    """
    region = get_family(scene.family).region(scene)
    if region != "generator":
        raise HeldOutError(
            f"scene {scene.id[:8]} lies in the region {region!r}.",
            allowed="the region 'generator' for training, controls and probes",
            remedy="draw it with region='generator'",
        )
    return scene
