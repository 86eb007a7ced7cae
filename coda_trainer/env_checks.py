"""The checks of ``coda envs check``: what users of an environment rely on, tried for real."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from coda_envs.env import ManipulationEnv

#: Observation modes under which the checkers of Gymnasium and of SB3 are run.
MODES = ("state", "rgb", "rgb+state", "privileged")
#: Pixels of the pictures; SB3 takes no smaller ones.
SIZE = 40
#: Steps of the wild rollout, and of each episode that is compared.
WILD = 300
STEPS = 25
#: Episodes of the expert, and how many of them must succeed.
EXPERT = 5
NEEDED = 4


@dataclass(frozen=True)
class EnvCheck:
    """One check of one id. ``status``: ``skipped`` where something that it needs is missing."""

    name: str
    status: Literal["ok", "FAIL", "skipped"]
    found: str


class _SkippedError(Exception):
    """Something that a check needs is not installed."""


class _FailedError(Exception):
    """The environment is not as it should be; says how."""


def examine_env(env_id: str) -> list[EnvCheck]:
    """Run every check on a registered id, warnings being errors. None stops the next."""
    return [_run(name, check, env_id) for name, check in CHECKS.items()]


def _run(name: str, check: Callable[[str], str], env_id: str) -> EnvCheck:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return EnvCheck(name, "ok", check(env_id))
    except _SkippedError as reason:
        return EnvCheck(name, "skipped", str(reason))
    except _FailedError as reason:
        return EnvCheck(name, "FAIL", str(reason))
    except Exception as error:
        # A family of somebody else's may raise anything: that is what the check has found.
        text = " ".join(str(error).split()) or "no message"
        return EnvCheck(name, "FAIL", f"{type(error).__name__}: {text}")


# The checks -------------------------------------------------------------------------------------


def gymnasium_checker(env_id: str) -> str:
    """Gymnasium's ``check_env`` in every observation mode."""
    for mode in MODES:
        env = gym.make(env_id, obs_mode=mode, image_size=SIZE, render_mode="rgb_array")
        check_env(env.unwrapped)
        env.close()
    return f"no complaint in {len(MODES)} observation modes"


def sb3_checker(env_id: str) -> str:
    """Stable-Baselines3's ``check_env`` in every observation mode."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise _SkippedError("stable-baselines3 is not installed: pip install coda-robotics[sb3]")
    with warnings.catch_warnings():
        # What its own imports warn of is not this environment's matter.
        warnings.simplefilter("ignore")
        from stable_baselines3.common.env_checker import check_env as sb3_check_env
    for mode in MODES:
        env = gym.make(env_id, obs_mode=mode, image_size=SIZE)
        sb3_check_env(env)
        env.close()
    return f"no complaint in {len(MODES)} observation modes"


def spaces(env_id: str) -> str:
    """Every observation of a wild rollout lies in its space, every reward is finite."""
    env = _make(env_id, obs_mode="privileged", reward_mode="shaped", max_steps=100)
    rng, push = np.random.default_rng(0), np.zeros(7)
    obs, _ = env.reset(seed=0)
    for step in range(WILD):
        _contained(env, obs, step)
        if step % 10 == 0:
            # Kept for a while, so that the arm gets somewhere.
            push = rng.uniform(-2.0, 2.0, 7)
        obs, reward, terminated, truncated, _ = env.step(push + rng.normal(0.0, 0.3, 7))
        if not np.isfinite(float(reward)):
            raise _FailedError(f"the reward of step {step} is {reward}")
        if terminated or truncated:
            _contained(env, obs, step)
            obs, _ = env.reset()
    env.close()
    return f"{WILD} wild steps in their spaces, rewards finite"


def seeds(env_id: str) -> str:
    """The same seed gives the same bytes, whatever ran before, from a spec's JSON too."""
    env = _make(env_id, obs_mode="privileged")
    first = _digest(_episode(env, seed=1))
    for seed in (2, 3):
        # Left in mid-episode.
        _digest(_episode(env, seed))
    if _digest(_episode(env, seed=1)) != first:
        raise _FailedError("seed 1 gives other bytes after two other episodes")
    spec = EnvSpec.from_json(gym.spec(env_id).to_json())
    fresh = _plain(gym.make(spec, obs_mode="privileged"))
    if _digest(_episode(fresh, seed=1)) != first:
        raise _FailedError("seed 1 gives other bytes in an environment made from the spec's JSON")
    env.close()
    fresh.close()
    return f"equal bytes over {STEPS} steps: used, and made from the spec's JSON"


def state(env_id: str) -> str:
    """A restored state has the same future: in the same instance, in a fresh one, in a copy."""
    env = _make(env_id, obs_mode="privileged")
    env.reset(seed=4)
    expert = env.family.expert(4)
    for _ in range(STEPS):
        _, _, terminated, _, _ = env.step(expert.act(env))
        if terminated:
            break
    kept, third = env.get_state(), copy.deepcopy(env)
    first = _digest(_future(env))
    env.set_state(kept)
    if _digest(_future(env)) != first:
        raise _FailedError("set_state() in the same instance leads to another future")
    other = _make(env_id, obs_mode="privileged")
    other.reset(seed=9)
    other.set_state(kept)
    if _digest(_future(other)) != first:
        raise _FailedError("set_state() in a fresh instance leads to another future")
    if _digest(_future(third)) != first:
        raise _FailedError("a copy of the environment has another future")
    for each in (env, other, third):
        each.close()
    return f"equal futures of {STEPS} steps: same instance, fresh instance, copy"


def expert(env_id: str) -> str:
    """The family's expert succeeds."""
    env = _make(env_id)
    solved, reasons = 0, []
    for seed in range(EXPERT):
        env.reset(seed=seed)
        policy, ended = env.family.expert(seed), False
        while not ended:
            _, _, terminated, truncated, info = env.step(policy.act(env))
            ended = terminated or truncated
        solved += bool(info["success"])
        if not info["success"]:
            reasons.append(f"seed {seed}: {info['failure'] or 'out of time'}")
    env.close()
    if solved < NEEDED:
        raise _FailedError(f"the expert solves {solved} of {EXPERT} ({'; '.join(reasons)})")
    return f"the expert solves {solved} of {EXPERT}"


#: The checks in order, by the name they are reported under.
CHECKS: dict[str, Callable[[str], str]] = {
    "gymnasium": gymnasium_checker,
    "stable-baselines3": sb3_checker,
    "spaces": spaces,
    "seeds": seeds,
    "state": state,
    "expert": expert,
}


# What they share --------------------------------------------------------------------------------


def _make(env_id: str, **options: Any) -> ManipulationEnv:
    return _plain(gym.make(env_id, **options))


def _plain(env: gym.Env[Any, Any]) -> ManipulationEnv:
    """The environment without Gymnasium's wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    return inner


def _contained(env: ManipulationEnv, obs: Mapping[str, np.ndarray], step: int) -> None:
    if env.observation_space.contains(obs):
        return
    assert isinstance(env.observation_space, gym.spaces.Dict)
    outside = [n for n, space in env.observation_space.items() if not space.contains(obs.get(n))]
    raise _FailedError(f"step {step}: {', '.join(outside) or 'a key'} lies outside its space")


def _episode(env: ManipulationEnv, seed: int) -> Iterator[object]:
    """Everything that an episode with this seed and fixed random actions gives."""
    rng = np.random.default_rng(seed)
    yield env.reset(seed=seed)
    for _ in range(STEPS):
        yield env.step(rng.uniform(-1.0, 1.0, 7))
        yield env.get_state()


def _future(env: ManipulationEnv) -> Iterator[object]:
    """Everything that the next steps with fixed random actions, and the next reset, give."""
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        yield env.step(rng.uniform(-1.0, 1.0, 7))
        yield env.get_state()
    yield env.reset()


def _digest(parts: Iterator[object]) -> str:
    """A hash over all bytes of nested results."""
    sha = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value):
                sha.update(str(key).encode())
                add(value[key])
        elif isinstance(value, np.ndarray):
            sha.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for part in value:
                add(part)
        else:
            sha.update(repr(value).encode())

    for part in parts:
        add(part)
    return sha.hexdigest()
