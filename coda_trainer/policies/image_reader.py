"""ImageReader: from two cameras, the hand's pose and an instruction to features.

The images go through a small convolutional stem. What the instruction says steers it twice: at the
input, as one map for each phrase of where its colours are seen, and in the middle, by a scale and
a shift of each channel (FiLM, Perez et al. 2018). A spatial softmax then gives the image point of
each channel (Levine et al. 2016): places, which is what the actions depend on.

The cameras do not move with the scene, so the hand's position is read in the table's frame, unlike
the :class:`SlotReader`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from coda_envs.cameras import CAMERAS
from coda_envs.errors import ConfigError
from coda_envs.props import COLORS
from coda_envs.sensing import PROPRIO
from coda_trainer.backbone import ObsBatch
from coda_trainer.policies.language import COLOUR_WORDS, N_PHRASES, N_WORDS, count_words
from coda_trainer.policies.observations import (
    ObservationReader,
    observed,
    observed_numbers,
    rotation_columns,
)
from coda_trainer.policies.scaling import Scaling

#: Smallest image whose middle layers still have places to tell apart.
_LEAST_SIZE = 16
#: Channels of the stem's two halves; the second has as many image points as channels.
_EARLY, _POINTS = 16, 32
#: What a phrase says, in so many numbers, to the layers that it steers.
_SPEECH = 16
#: Squared RGB distance over which a colour stops being called by its name. Light and shade move
#: colours more in an image than in a table of objects.
_COLOUR_SPREAD = 0.05
#: Images that the stem sees at a time, which bounds what it holds at once.
_BLOCK = 256


class CameraStem(nn.Module):
    """Image points of one camera: ``[B, 3 + N_PHRASES, S, S]`` and speech → ``[B, 2 · points]``."""

    def __init__(self, n_speech: int) -> None:
        super().__init__()
        self.early = nn.Sequential(
            nn.Conv2d(3 + N_PHRASES, _EARLY, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv2d(_EARLY, _POINTS, 3, stride=2, padding=1),
        )
        self.steer = nn.Linear(n_speech, 2 * _POINTS)
        self.late = nn.Sequential(
            nn.Conv2d(_POINTS, _POINTS, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(_POINTS, _POINTS, 3, padding=1),
        )
        self.sharpness = nn.Parameter(torch.ones(()))

    def forward(self, image: Tensor, speech: Tensor) -> Tensor:
        """Each channel's mean place, x and y in [-1, 1]."""
        scale, shift = self.steer(speech)[:, :, None, None].chunk(2, dim=1)
        seen = functional.silu(self.early(image) * (1 + scale) + shift)
        maps = seen + self.late(seen)
        weight = functional.softmax(self.sharpness * maps.flatten(2), dim=-1).view_as(maps)
        ys, xs = (torch.linspace(-1, 1, n) for n in maps.shape[2:])
        return torch.cat(((weight.sum(2) * xs).sum(2), (weight.sum(3) * ys).sum(2)), dim=1)


class ImageReader(ObservationReader):
    """``agentview``, ``wrist``, ``proprio`` and ``instruction`` → features ``[B, size]``."""

    palette: Tensor

    def __init__(self, image_size: int) -> None:
        """Raises :class:`ConfigError` for images too small to be told apart."""
        super().__init__()
        if image_size < _LEAST_SIZE:
            raise ConfigError(
                f"image_size is {image_size}.", allowed=f"at least {_LEAST_SIZE} pixels"
            )
        shape = (image_size, image_size, 3)
        self.images: Mapping[str, tuple[int, int, int]] = dict.fromkeys(CAMERAS, shape)
        self.state_keys = ("proprio", "instruction")
        self.place = Scaling(3, floor=0.01)
        self.fingers = Scaling(2, floor=0.002)
        self.register_buffer("palette", torch.tensor(list(COLORS.values())))
        self.words = nn.Parameter(0.1 * torch.randn(N_WORDS, _SPEECH))
        n_speech = N_PHRASES * _SPEECH
        self.stems = nn.ModuleDict({camera: CameraStem(n_speech) for camera in CAMERAS})
        self.size = len(CAMERAS) * 2 * _POINTS + 3 + 6 + 2 + n_speech

    def fit(self, obs: ObsBatch) -> None:
        """Take the statistics of ``proprio``; images are scaled by what a pixel can be."""
        proprio = observed_numbers(obs, "proprio", len(PROPRIO))
        self.place.fit(proprio[:, :3])
        self.fingers.fit(proprio[:, 6:])

    def forward(self, obs: ObsBatch) -> Tensor:
        """Features ``[B, size]``."""
        proprio = observed_numbers(obs, "proprio", len(PROPRIO))
        counts = torch.from_numpy(count_words(observed(obs, "instruction", None)))
        speech = (counts @ self.words).flatten(1)
        features = [
            self.place(proprio[:, :3]),
            rotation_columns(proprio[:, 3:6]),
            self.fingers(proprio[:, 6:]),
            speech,
        ]
        for camera, stem in self.stems.items():
            images = torch.as_tensor(observed(obs, camera, *self.images[camera]))
            blocks = (slice(i, i + _BLOCK) for i in range(0, len(images), _BLOCK))
            points = [stem(self._coloured(images[b], counts[b]), speech[b]) for b in blocks]
            features.append(torch.cat(points))
        return torch.cat(features, dim=-1)

    def _coloured(self, images: Tensor, counts: Tensor) -> Tensor:
        """``[B, S, S, 3]`` uint8 → ``[B, 3 + N_PHRASES, S, S]``: the colours, and for each phrase
        where the colours that it names are seen."""
        pixels = images.float() / 255
        # A softmax over minus squared distances; what all of a pixel's colours share cancels.
        nearness = 2 * pixels @ self.palette.T - self.palette.square().sum(1)
        colour = functional.softmax(nearness / _COLOUR_SPREAD, dim=-1)
        named = counts[:, :, : len(COLOUR_WORDS)].clamp_max(1.0)
        where = torch.einsum("bhwc,bpc->bphw", colour, named)
        return torch.cat((pixels.permute(0, 3, 1, 2) - 0.5, where), dim=1)
