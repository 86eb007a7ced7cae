"""Text2potential: staged potentials as data, compiled against a family's state features."""

from coda_envs.text2potential.compiler import compile_program
from coda_envs.text2potential.evaluate import Potential, compile_potential
from coda_envs.text2potential.wrapper import PotentialReward, shaping

__all__ = ["Potential", "PotentialReward", "compile_potential", "compile_program", "shaping"]
