"""PotentialReward: adds the shaping of a staged potential to a CoDA environment's reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from coda_envs.errors import ProgramError
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential.evaluate import compile_potential


def shaping(
    phi_t: ArrayLike, phi_next: ArrayLike, gamma: float, k: ArrayLike, done: ArrayLike
) -> np.ndarray:
    """F = γᵏ·(0 if done else Φ(s_{t+k})) − Φ(s_t), broadcast over any shape ``[...]``.

    ``phi_t``, ``phi_next``: Φ before and after. ``gamma``: discount per environment step. ``k``:
    steps in between. ``done``: ended by termination; a truncated episode passes False and keeps its
    Φ. Potential-based shaping (Ng, Harada and Russell, 1999), for options of k steps.
    """
    after = np.where(np.asarray(done, dtype=bool), 0.0, phi_next)
    return np.asarray(np.power(float(gamma), k) * after - np.asarray(phi_t))


class PotentialReward(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Reward r' = r + γΦ(s') − Φ(s) around an environment with sparse rewards.

    Φ counts as 0 after termination of either kind, success or declared failure; truncation keeps
    Φ(s'), since the learner bootstraps there. ``info`` gains ``sparse_reward`` (r), ``potential``
    (Φ(s') before it is zeroed) and ``stage`` (index of the current stage, the number of stages at
    the goal). Φ(s) is read from the state just before the step, so that a state restored with
    ``set_state`` is paid for rightly.

    ``program``: a potential program as plain data, the family's template where None. ``gamma``:
    discount per environment step. Raises :class:`ProgramError` where the program does not fit the
    environment's family, gamma is not in (0, 1], or the environment shapes its rewards already.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        program: Mapping[str, Any] | None = None,
        gamma: float = 0.99,
    ) -> None:
        plain = None if program is None else dict(program)
        gymnasium.utils.RecordConstructorArgs.__init__(self, program=plain, gamma=gamma)
        gymnasium.Wrapper.__init__(self, env)
        if not 0.0 < gamma <= 1.0:
            raise ProgramError(f"gamma is {gamma!r}.", allowed="a number in (0, 1]")
        if env.get_wrapper_attr("potential") is not None:
            raise ProgramError(
                "the environment shapes its rewards already.",
                remedy="make it with reward_mode='sparse'",
            )
        family = env.get_wrapper_attr("family")
        parsed = family.template if plain is None else PotentialProgram.parse(plain, "program")
        if parsed.family != family.name:
            raise ProgramError(
                f"the potential program is for the family {parsed.family!r}.",
                allowed=repr(family.name),
            )
        self.gamma = gamma
        self.potential = compile_potential(parsed, family.schema)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset, with the first state's potential and stage in ``info``."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._read(info)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, with the shaped reward."""
        before = self.potential(self._features())
        obs, reward, terminated, truncated, info = self.env.step(action)
        info["sparse_reward"] = sparse = float(reward)
        after = self._read(info)
        shaped = sparse + float(shaping(before, after, self.gamma, 1, terminated))
        return obs, shaped, terminated, truncated, info

    def _features(self) -> np.ndarray:
        """The state features ``[F]`` of the wrapped environment."""
        return np.asarray(self.env.get_wrapper_attr("features"))

    def _read(self, info: dict[str, Any]) -> float:
        """Φ of the current state, which goes into ``info`` with the stage."""
        row = self._features()[None]
        stage = self.potential.stage(row)
        phi = float(self.potential.of_stage(row, stage)[0])
        info["potential"] = phi
        info["stage"] = int(stage[0])
        return phi
