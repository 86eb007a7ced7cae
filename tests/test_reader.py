"""How the frozen base reads observations for the residual."""

from __future__ import annotations

import numpy as np
import pytest

from coda_envs.errors import CodaError, PluginError
from coda_trainer.backbone import BackboneSpec
from coda_trainer.learning.reader import backbone_reader


class StateOnly:
    """A backbone that cannot encode."""

    def __init__(self, **spec):
        options = {"state_keys": ("proprio", "objects"), **spec}
        self.spec = BackboneSpec("state-only", 8, 4, **options)

    def reset(self, env_ids=None): ...

    def close(self): ...

    def sample(self, obs, n=1, *, seed=None):
        return np.full((len(obs["proprio"]), n, 8, 7), 0.5)


def test_a_backbone_without_an_encoding_lends_its_state():
    obs = {"proprio": np.ones((3, 8)), "objects": np.full((3, 2, 5), 2.0), "other": np.ones(3)}
    encoding, base = backbone_reader(StateOnly(), 4, seed=0)(obs)
    assert encoding.shape == (3, 18)
    assert encoding.dtype == np.float32
    assert encoding.sum() == 3 * (8 + 20)
    assert base.shape == (3, 4, 7)


@pytest.mark.parametrize(
    ("spec", "execute", "says"), [({"state_keys": ()}, 4, "nothing to read"), ({}, 9, "predicts 8")]
)
def test_a_backbone_that_cannot_be_a_base_says_why(spec, execute, says):
    with pytest.raises(PluginError, match=says) as caught:
        backbone_reader(StateOnly(**spec), execute, seed=0)
    assert isinstance(caught.value, CodaError)
