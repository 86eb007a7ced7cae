"""The checks: each takes an inspection and says what it found, or raises CheckFailedError.

They run in the order of :data:`coda_envs.validity.certificate.CHECKS`; from ``compiles`` on there
is a simulation, from ``settles`` on it is in its settled state. None simulates longer than its
constant says.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import mujoco
import numpy as np

from coda_envs import robot
from coda_envs.arena import TABLE, TABLE_X, compile_scene, divergence
from coda_envs.env import ManipulationEnv
from coda_envs.predicates import OPEN, SHUT
from coda_envs.props import COLORS
from coda_envs.sensing import Sensor
from coda_envs.validity.family_code import family_code
from coda_envs.validity.inspection import CheckFailedError, Inspection, Simulation
from coda_envs.validity.settling import Resting

#: Deepest overlap at the start (m).
PENETRATION = 0.001
#: Simulated time to settle (s), and for one try of the expert, however long an episode may be (s).
SETTLE_SECONDS = 1.0
SOLVE_SECONDS = 30.0
#: Rate at which the expert acts (Hz).
SOLVE_HZ = 20
#: Inverse kinematics must come this close (m + rad).
REACH_ERROR = 0.005
#: Heights over a thing that the fingertips must reach (m): to grasp or let go, and to come there.
REACH_HEIGHTS = (0.0, 0.12)
#: Lowest that the fingertips have to go (m).
REACH_FLOOR = 0.012
#: Share of the target's sample points that the main camera must see.
VISIBLE = 0.25

#: Openings that a goal asks a joint for, as shares of its travel: to be opened, to be shut.
_GOAL_OPENING = {"opened": (OPEN, OPEN), "shut": (SHUT, SHUT), "operated": (OPEN, SHUT)}
_DOWN = np.array([0.0, 1.0, 0.0, 0.0])


def factors(it: Inspection) -> str:
    """Every value is one that its factor allows, and the goal is the family's."""
    with family_code(it.family, "goal()"):
        it.family.checked(it.scene)
    return f"{len(it.scene.values)} values, all allowed"


def language(it: Inspection) -> str:
    """The family's words are true of exactly one object; others name no colour that is missing.

    A scene may have its user's own words, which nothing here understands. But one whose colour was
    changed in the file, and whose instruction was forgotten, can be told.
    """
    values, task = it.scene.values, it.scene.task
    with family_code(it.family, "ambiguity()"):
        problem = it.family.ambiguity(values)
    if problem:
        raise CheckFailedError(f"the scene {problem}")
    with family_code(it.family, "describe()"):
        instruction, paraphrases = it.family.describe(values)
        known = {instruction, *paraphrases, it.family.unseen_wording(values)}
    own = [text for text in (task.instruction, *task.paraphrases) if text not in known]
    if not own:
        return "the instruction fits one object"
    with family_code(it.family, "props()"):
        props = it.family.props(it.scene)
    colors = {g.color for prop in props for body in prop.body.walk() for g in body.geoms}
    for text in own:
        for word in re.findall(r"\w+", text.lower()):
            if word in COLORS and word not in colors:
                raise CheckFailedError(f"the words {text!r} fit nothing: no thing is {word}")
    return "the family's words fit one object; the scene has words of its own, not understood here"


def layout(it: Inspection) -> str:
    """The family finds room for everything."""
    with family_code(it.family, "problem()"):
        problem = it.family.problem(it.scene.values)
    if problem:
        raise CheckFailedError(f"the scene {problem}")
    return "there is room for everything"


def compiles(it: Inspection) -> str:
    """MuJoCo makes a model of the scene; the simulation starts like an episode."""
    with family_code(it.family, "props()"):
        compiled = compile_scene(it.scene)
        data = mujoco.MjData(compiled.model)
        sensor = Sensor(compiled, data, it.family.schema)
    compiled.reset(data)
    it.simulation = Simulation(compiled, data, sensor)
    return f"{compiled.model.nbody} bodies, {compiled.model.ngeom} geoms"


def penetration(it: Inspection) -> str:
    """No two shapes overlap at the start."""
    it.now.refresh()
    model, data = it.now.model, it.now.data
    deepest = float(-data.contact.dist.min()) if data.ncon else 0.0
    if deepest > PENETRATION:
        worst = data.contact[int(np.argmin(data.contact.dist))]
        one, two = (_geom_label(model, int(geom)) for geom in worst.geom)
        raise CheckFailedError(f"{one} and {two} overlap by {1000 * deepest:.1f} mm")
    return f"deepest overlap {1000 * max(0.0, deepest):.2f} mm"


def not_solved(it: Inspection) -> str:
    """The verifier does not hold before the robot moves."""
    features = it.now.features()
    with family_code(it.family, "success()"):
        solved = bool(it.family.success(it.scene, features))
    if solved:
        raise CheckFailedError("the goal holds before the robot moves")
    return "the goal does not hold yet"


def settles(it: Inspection) -> str:
    """Nothing falls, tips, slides, turns or drifts in one simulated second."""
    model, data = it.now.model, it.now.data
    before = Resting.of(it.now)
    steps = round(SETTLE_SECONDS / robot.TIMESTEP)
    mujoco.mj_step(model, data, steps)
    it.simulated += steps
    if divergence(data)():
        raise CheckFailedError("physics diverged")
    found = before.compare(Resting.of(it.now))
    it.settled = tuple(round(float(q), 6) for q in data.qpos)
    return found


def workspace(it: Inspection) -> str:
    """Every thing lies on the table with all its shapes."""
    it.now.refresh()
    model, data = it.now.model, it.now.data
    for prop in it.now.compiled.props:
        for body in prop.body.walk():
            for geom in np.flatnonzero(model.geom_bodyid == model.body(body.name).id):
                turned = data.geom_xmat[geom].reshape(3, 3)
                box = model.geom_aabb[geom]
                x, y, z = data.geom_xpos[geom] + turned @ box[:3]
                reach_x, reach_y, _ = np.abs(turned) @ box[3:]
                if abs(x - TABLE_X) + reach_x > TABLE[0] or abs(y) + reach_y > TABLE[1] or z < 0:
                    raise CheckFailedError(
                        f"{body.name} stands over the table's edge at ({x:.2f}, {y:.2f})"
                    )
    return "everything lies on the table"


def reachable(it: Inspection) -> str:
    """The fingertips, pointing down, come to everything the goal names, and to where it moves."""
    view, worst = it.view(), 0.0
    for role in it.scene.task.goal.roles:
        places = {role: view.position(role)}
        openings = _GOAL_OPENING.get(it.scene.task.goal.predicate)
        if openings is not None and it.entity(role).joint:
            opening = openings[it.entity(role).to_shut]
            places[f"the goal of {role}"] = _opened(it, role, opening)
        for label, place in places.items():
            for above in REACH_HEIGHTS:
                at = place + np.array([0.0, 0.0, above])
                at[2] = max(at[2], REACH_FLOOR)
                controller = robot.Controller()
                controller.reset(np.array(robot.HOME))
                error = controller.solve_pose(at, _DOWN)
                worst = max(worst, error)
                if error > REACH_ERROR:
                    raise CheckFailedError(
                        f"the gripper misses {label} by {1000 * error:.0f} mm (+ mrad)"
                    )
    return f"largest inverse-kinematics error {1000 * worst:.2f} mm"


def visible(it: Inspection) -> str:
    """Enough of the goal's first thing is in the main camera's line of sight.

    Measured at eight points inside its half extents: a point counts as seen where the first thing
    on the way there is the thing itself.
    """
    it.now.refresh()
    model, data = it.now.model, it.now.data
    mujoco.mj_camlight(model, data)
    camera = data.cam_xpos[model.camera("agentview").id]
    role = it.scene.task.goal.roles[0]
    body = data.body(role)
    own = _with_children(model, int(model.body(role).id))
    # Inside a cylinder too.
    points = np.array([[x, y, z] for x in (-0.6, 0.6) for y in (-0.6, 0.6) for z in (0.2, 0.9)])
    points = body.xpos + (points * it.entity(role).half) @ body.xmat.reshape(3, 3).T
    geom, normal, seen = np.zeros(1, dtype=np.int32), np.zeros(3), 0
    for point in points:
        mujoco.mj_ray(model, data, camera, point - camera, None, 1, -1, geom, normal)
        seen += geom[0] >= 0 and int(model.geom_bodyid[geom[0]]) in own
    share = seen / len(points)
    if share < VISIBLE:
        raise CheckFailedError(f"the main camera sees {100 * share:.0f}% of {role}")
    return f"the main camera sees {100 * share:.0f}% of {role}"


def solvable(it: Inspection) -> str:
    """The family's expert solves the scene in one of its tries."""
    limit = round(min(it.family.max_seconds, SOLVE_SECONDS) * SOLVE_HZ)
    with family_code(it.family, "goal()"):
        env = ManipulationEnv(
            it.family.name, scene=it.scene, control_hz=SOLVE_HZ, max_steps=max(limit, 1)
        )
    failure = ""
    try:
        for attempt in range(it.tries):
            with family_code(it.family, "the expert"):
                env.reset(seed=attempt)
                expert = it.family.expert(attempt)
                done = False
                while not done:
                    _, _, terminated, truncated, info = env.step(expert.act(env))
                    it.simulated += round(1.0 / SOLVE_HZ / robot.TIMESTEP)
                    done = terminated or truncated
            if info["success"]:
                return f"the expert solves it in try {attempt + 1}"
            failure = info["failure"] or "out of time"
    finally:
        env.close()
    raise CheckFailedError(f"the expert fails in {it.tries} tries: {failure}")


def _geom_label(model: mujoco.MjModel, geom: int) -> str:
    """A shape's name, or that of its body."""
    return str(model.geom(geom).name or model.body(int(model.geom_bodyid[geom])).name)


def _opened(it: Inspection, role: str, opening: float) -> np.ndarray:
    """Where a thing on a joint is ``[3]`` (m) with the joint at a share of its travel."""
    entity, data = it.entity(role), it.now.data
    address = int(it.now.model.joint(entity.joint).qposadr[0])
    before = float(data.qpos[address])
    data.qpos[address] = opening * entity.travel
    mujoco.mj_kinematics(it.now.model, data)
    place = data.body(role).xpos.copy()
    data.qpos[address] = before
    mujoco.mj_kinematics(it.now.model, data)
    return place  # type: ignore[no-any-return]


def _with_children(model: mujoco.MjModel, body: int) -> set[int]:
    """Ids of a body and of all below it."""
    own = {body}
    # Children come after their parents.
    for child in range(body + 1, model.nbody):
        if int(model.body_parentid[child]) in own:
            own.add(child)
    return own


#: The checks by name.
FUNCTIONS: dict[str, Callable[[Inspection], str]] = {
    check.__name__: check
    for check in (
        factors,
        language,
        layout,
        compiles,
        penetration,
        not_solved,
        settles,
        workspace,
        reachable,
        visible,
        solvable,
    )
}
