"""SlotReader: from an object table and an instruction to the geometry of the objects it names.

Slots come in any order and no flag marks the target. Each phrase of the instruction becomes a
query that points at slots by colour, shape and, for words of other meaning, by size. A colour word
speaks of colour only and a shape word of shape only, and their scores add, so a pair of words that
was never seen together still finds its object.

Horizontal positions are read relative to the hand only, never from the table's frame: the arm is
commanded in displacements, so what to do does not depend on where on the table it happens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from coda_envs.props import COLORS, SHAPES
from coda_envs.sensing import SLOT_COLUMNS
from coda_trainer.policies.language import COLOUR_WORDS, N_PHRASES, N_WORDS, SHAPE_WORDS
from coda_trainer.policies.scaling import Scaling


def _span(first: str, last: str) -> slice:
    """The columns of a slot from ``first`` to ``last``."""
    return slice(SLOT_COLUMNS.index(first), SLOT_COLUMNS.index(last) + 1)


_POSITION, _ROTATION, _HALF = _span("x", "z"), _span("r00", "r21"), _span("half_x", "half_z")
_HEIGHT, _HEADING = _span("z", "z"), _span("r00", "r10")
_SHAPE, _COLOUR = _span(f"is_{SHAPES[0]}", f"is_{SHAPES[-1]}"), _span("red", "blue")
_PRESENT = SLOT_COLUMNS.index("present")

#: Keys beside colour and shape: what size and place of a slot say to words of other meaning.
_OTHER_KEYS = 8
#: Score of a word that matches its slot, before training. Two matching words beat one by e⁵.
_MATCH = 5.0
#: Squared RGB distance over which a colour stops being called by its name.
_COLOUR_SPREAD = 0.02
#: Distance (m) within which the policy needs to see millimetres.
_FINE = 0.03
_SPEECH = 8
_CONTEXT = 32


def rotation_columns(axis_angle: Tensor) -> Tensor:
    """First two columns of the rotation matrix, ``[..., 3]`` → ``[..., 6]`` (Rodrigues' formula).

    Continuous where the axis-angle vector flips its sign, near a half turn: the hand points down
    there all the time.
    """
    angle = axis_angle.norm(dim=-1, keepdim=True)
    axis = axis_angle / angle.clamp_min(1e-8)
    sine, versine = torch.sin(angle), 1 - torch.cos(angle)
    columns = []
    for i in range(2):
        unit = torch.zeros_like(axis)
        unit[..., i] = 1.0
        # R e = e cos + (k × e) sin + k (k·e) (1 - cos)
        turned = unit * (1 - versine) + torch.linalg.cross(axis, unit, dim=-1) * sine
        columns.append(turned + axis * axis[..., i : i + 1] * versine)
    return torch.cat(columns, dim=-1)


def _double(heading: Tensor) -> Tensor:
    """Cosine and sine of twice an angle, from those of the angle, ``[..., 2]``."""
    cosine, sine = heading[..., :1], heading[..., 1:]
    return torch.cat((cosine * cosine - sine * sine, 2 * cosine * sine), dim=-1)


def _turned_back(heading: Tensor, by: Tensor) -> Tensor:
    """Cosine and sine of the difference of two angles, each given as cosine and sine."""
    cosine = heading[..., :1] * by[..., :1] + heading[..., 1:] * by[..., 1:]
    sine = heading[..., 1:] * by[..., :1] - heading[..., :1] * by[..., 1:]
    return torch.cat((cosine, sine), dim=-1)


class SlotReader(nn.Module):
    """``proprio [B, 8]``, ``objects [B, N, D]``, word counts → features ``[B, size]``.

    ``match [B, N_PHRASES, N]`` is a softmax over the slots that are present. The features hold, for
    each phrase, the matched slot's geometry; the hand's own pose; what stands around; and what the
    instruction's other words say.
    """

    palette: Tensor
    speaks: Tensor
    unnamed: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.height = Scaling(1, floor=0.01)
        self.fingers = Scaling(2, floor=0.002)
        self.offset = Scaling(3, floor=0.01)
        self.extent = Scaling(3, floor=0.002)
        n_named = len(COLORS) + len(SHAPES)
        n_keys = n_named + _OTHER_KEYS

        self.register_buffer("palette", torch.tensor(list(COLORS.values())))
        # What a word may speak of: a colour word of colours, a shape word of shapes, others of all.
        speaks = torch.ones(N_WORDS, n_keys)
        meaning = torch.zeros(N_WORDS, n_keys)
        for row in range(len(COLOUR_WORDS) + len(SHAPE_WORDS)):
            span = slice(0, len(COLORS)) if row < len(COLOUR_WORDS) else slice(len(COLORS), n_named)
            speaks[row] = 0.0
            speaks[row, span] = 1.0
            meaning[row, row] = _MATCH  # the words' order is the keys' order
        self.register_buffer("speaks", speaks)
        # Training starts with every colour and shape word meaning what a dictionary says.
        self.meaning = nn.Parameter(meaning)
        self.hearing = nn.Parameter(torch.eye(N_PHRASES))
        self.other_keys = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, _OTHER_KEYS))
        self.speech = nn.Parameter(torch.zeros(N_WORDS, _SPEECH))
        unnamed = torch.ones(N_WORDS, 1)
        unnamed[: len(COLOUR_WORDS) + len(SHAPE_WORDS)] = 0.0
        self.register_buffer("unnamed", unnamed)

        n_geometry = 3 + 3 + 1 + 6 + 2 + 2 + 2 + 2 + 3 + len(SHAPES)
        self.around = nn.Sequential(
            nn.Linear(n_geometry + 3 + N_PHRASES, 48), nn.ReLU(), nn.Linear(48, _CONTEXT), nn.ReLU()
        )
        self.size = N_PHRASES * n_geometry + 6 + 1 + 6 + 2 + _CONTEXT + _SPEECH

    def fit(self, proprio: Tensor, objects: Tensor) -> None:
        """Take the statistics of ``proprio [B, 8]`` and the present slots of ``objects``."""
        self.height.fit(proprio[:, 2:3])
        self.fingers.fit(proprio[:, 6:])
        slots = objects[objects[..., _PRESENT] > 0.5]
        offsets = objects[..., _POSITION] - proprio[:, None, :3]
        self.offset.fit(offsets[objects[..., _PRESENT] > 0.5])
        self.extent.fit(slots[:, _HALF])

    def match(self, objects: Tensor, counts: Tensor) -> Tensor:
        """How strongly each phrase points at each slot."""
        # A softmax over minus squared distances; what all of a slot's colours share cancels in it.
        nearness = 2 * objects[..., _COLOUR] @ self.palette.T - self.palette.square().sum(1)
        colour = functional.softmax(nearness / _COLOUR_SPREAD, dim=-1)
        # Not by where it is: in a narrow range of scenes place and role go together, and a reader
        # that took to it would point at the wrong object everywhere else.
        other = self.other_keys(self.extent(objects[..., _HALF]))
        keys = torch.cat((colour, objects[..., _SHAPE], other), dim=-1)
        # All phrases as rows of one product; a batched one would copy the vocabulary B times.
        spoken = counts.flatten(0, 1) @ (self.meaning * self.speaks)
        spoken = spoken.reshape(-1, N_PHRASES, spoken.shape[1])
        queries = torch.einsum("hp,bpk->bhk", self.hearing, spoken)
        present = objects[..., _PRESENT][:, None]
        scores = queries @ keys.transpose(1, 2) + (present - 1) * 1e4
        return functional.softmax(scores, dim=-1) * present

    def forward(self, proprio: Tensor, objects: Tensor, counts: Tensor) -> Tensor:
        """Features ``[B, size]``."""
        hand, rotation = proprio[:, :3], rotation_columns(proprio[:, 3:6])
        match = self.match(objects, counts)
        geometry = self._geometry(hand, rotation, objects)
        named = match @ geometry
        places = match @ objects[..., _POSITION]
        way = places[:, 1] - places[:, 0]
        features = (
            named.flatten(1),
            self.offset(way),
            torch.tanh(way / _FINE),
            self.height(hand[:, 2:]),
            rotation,
            self.fingers(proprio[:, 6:]),
            self._surroundings(geometry, objects, match, places),
            counts.sum(1) @ (self.speech * self.unnamed),
        )
        return torch.cat(features, dim=-1)

    def _geometry(self, hand: Tensor, rotation: Tensor, objects: Tensor) -> Tensor:
        """What the policy needs of each slot, colour left out: it must not steer a motion."""
        offset = objects[..., _POSITION] - hand[:, None]
        # Headings in the table plane. Twice and four times the angle are what an object that looks
        # the same after a half or a quarter turn has; the hand's own heading is taken off too.
        heading = objects[..., _HEADING]
        of_hand = rotation[:, None, :2].expand_as(heading)
        half_turn = _double(heading)
        half_turn_hand = _turned_back(half_turn, _double(of_hand))
        quarter_turn, quarter_turn_hand = _double(half_turn), _double(half_turn_hand)
        return torch.cat(
            (
                self.offset(offset),
                torch.tanh(offset / _FINE),
                self.height(objects[..., _HEIGHT]),
                objects[..., _ROTATION],
                half_turn,
                half_turn_hand,
                quarter_turn,
                quarter_turn_hand,
                self.extent(objects[..., _HALF]),
                objects[..., _SHAPE],
            ),
            dim=-1,
        )

    def _surroundings(
        self, geometry: Tensor, objects: Tensor, match: Tensor, places: Tensor
    ) -> Tensor:
        """What stands around, seen from the hand and from what is to be moved: a maximum over the
        present slots, so that their order and number do not matter."""
        from_target = torch.tanh((objects[..., _POSITION] - places[:, :1]) / (2 * _FINE))
        each = self.around(torch.cat((geometry, from_target, match.transpose(1, 2)), dim=-1))
        most: Tensor = (each * objects[..., _PRESENT, None]).amax(dim=1)
        return most
