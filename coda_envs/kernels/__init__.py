"""The loops between two physics steps, compiled by numba: control, divergence, sensing.

A kernel treats *rows*: arrays ``[n, …]`` with one row an environment. The single environment is
the case n = 1, the vector environment the case n > 1, and both call the same machine code: what a
row gives depends neither on n nor on the other rows, so the two agree to the byte.

Two numberings meet here. ``envs [m]`` are the rows of what belongs to environments (``control``,
``features``, …), ``sims [m]`` those of MuJoCo's arrays (``qpos``, ``xpos``, …): simulation
``sims[k]`` belongs to environment ``envs[k]``, and no other row is read or written. All kernels
write into arrays that the caller keeps, take any strides, and release the interpreter's lock.

:mod:`coda_envs.kernels.control`
    ``act(arm, steps, actions, envs, poses, control, targets) -> int``: one action each → joint
    targets. ``solve`` and ``locate``: inverse and forward kinematics of one row.
:mod:`coda_envs.kernels.sense`
    ``sense(*layout, sims, envs, qpos, qvel, xpos, xmat, site_xpos, site_xmat, ends, motion, slots,
    commands, poses, features, proprio, objects, pairs)``: MuJoCo's arrays → state features and
    observations. ``diverged(kinds, warnings, qpos, qvel) -> bool``: one simulation;
    ``diverged_of``: several.
:mod:`coda_envs.kernels.volumes`
    ``volumes(ends, halves, poses, coms, boxes, shapes)``: bounding boxes of a scene that is written
    into a model.

Arrays of the environments, all kept from step to step:

``control [n, 15]`` float64
    What the controller remembers: target position (m), target quaternion (w, x, y, z), joint
    targets (7, rad), last gripper command. :func:`coda_envs.robot.home_control` is a fresh row.
``targets [n, blocks, 8]`` float64
    The actuators' controls for each block of physics steps, ``act``'s result.
``motion``, ``slots``, ``poses``, ``features``, ``proprio``, ``objects``
    :class:`coda_envs.sensing.SensorRows`, which also writes what is constant for a scene.

``layout`` is a :class:`coda_envs.sensing.SensorLayout`: one a topology, whatever the scene.

numba is imported with these modules, which is when the kernels are compiled or read from numba's
cache; so users of them import them inside functions, and ``import coda_envs`` stays light.
"""
