"""SlotReader: from an object table and an instruction to the geometry of the objects it names.

Slots come in any order and no flag marks the target. Each phrase of the instruction becomes a
query that points at slots by colour, shape, comparison with others of the same shape and, for words
of other meaning, by size. A colour word speaks of colour only, a shape word of shape only and so
on, and their scores add, so a pair of words that was never seen together still finds its object.

Horizontal positions are read relative to the hand only, never from the table's frame: the arm is
commanded in displacements, so what to do does not depend on where on the table it happens. Turns
are read against the hand, and capped: a policy that saw things hardly turned then starts to turn
towards one that is turned further as towards the most turned ones that it saw.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from coda_envs.props import COLORS, SHAPES
from coda_envs.sensing import N_SLOTS, PROPRIO, SLOT_COLUMNS, object_table
from coda_trainer.backbone import ObsBatch
from coda_trainer.policies.language import (
    BESIDES,
    COLOUR_WORDS,
    MOVED,
    N_PHRASES,
    N_WORDS,
    PLACE,
    RELATION_WORDS,
    SHAPE_WORDS,
    count_words,
)
from coda_trainer.policies.observations import (
    ObservationReader,
    observed,
    observed_numbers,
    rotation_columns,
)
from coda_trainer.policies.scaling import Scaling


def _span(first: str, last: str) -> slice:
    """The columns of a slot from ``first`` to ``last``."""
    return slice(SLOT_COLUMNS.index(first), SLOT_COLUMNS.index(last) + 1)


_POSITION, _HALF = _span("x", "z"), _span("half_x", "half_z")
_HEIGHT, _HEADING = _span("z", "z"), _span("r00", "r10")
#: How far the first two axes of a thing lean out of the table's plane.
_TILT = [SLOT_COLUMNS.index("r20"), SLOT_COLUMNS.index("r21")]
_SHAPE, _COLOUR = _span(f"is_{SHAPES[0]}", f"is_{SHAPES[-1]}"), _span("red", "blue")
_PRESENT = SLOT_COLUMNS.index("present")

#: Further keys: what a slot's size says to words of other meaning.
_OTHER_KEYS = 8
#: Score of a word that matches its slot, before training. Two matching words beat one by e⁵.
_MATCH = 5.0
#: Score of pointing at nothing.
_NOTHING = 1.0
#: Squared RGB distance over which a colour stops being called by its name.
_COLOUR_SPREAD = 0.02
#: Distance (m) within which the policy needs to see millimetres.
_FINE = 0.03
#: Turn (rad) beyond which one looks no larger, of a thing against the hand and of the hand itself.
_TURN, _HAND_TURN = 0.4, 0.5
#: Things whose heading says where to push, pull or put. The others can be grasped; how they are
#: turned matters to the fingers alone.
_FIXTURES = ("plate", "tray", "box", "bowl", "lid", "drawer", "door", "socket")
_ROUND = ("cylinder", "disc")
#: Difference of the half extents (m) from which a thing can be grasped across one way only.
_LONG = 0.003
_SPEECH = 8
_CONTEXT = 32


def _double(heading: Tensor) -> Tensor:
    """Cosine and sine of twice an angle, from those of the angle, ``[..., 2]``."""
    cosine, sine = heading[..., :1], heading[..., 1:]
    return torch.cat((cosine * cosine - sine * sine, 2 * cosine * sine), dim=-1)


def _angle(heading: Tensor) -> Tensor:
    """The angle (rad) in (-π, π] of a cosine and sine ``[..., 2]``: ``[..., 1]``."""
    return torch.atan2(heading[..., 1:], heading[..., :1])


def _turned_back(heading: Tensor, by: Tensor) -> Tensor:
    """Cosine and sine of the difference of two angles, each given as cosine and sine."""
    cosine = heading[..., :1] * by[..., :1] + heading[..., 1:] * by[..., 1:]
    sine = heading[..., 1:] * by[..., :1] - heading[..., :1] * by[..., 1:]
    return torch.cat((cosine, sine), dim=-1)


def _relations(objects: Tensor) -> Tensor:
    """Which of :data:`RELATION_WORDS` are true of each slot, ``[B, N, D]`` → ``[B, N, R]`` of 0
    and 1. Each compares with the other slots of the same shape; without any, none is true."""
    shape = objects[..., _SHAPE] * objects[..., _PRESENT, None]
    peers = shape @ shape.transpose(1, 2) * (1 - torch.eye(objects.shape[1]))
    x, y, z = objects[..., _POSITION].unbind(-1)
    size = objects[..., SLOT_COLUMNS.index("half_y")]
    # In the words' order: small, large, left, right, front, back, top, bottom.
    quantity = torch.stack((-size, size, y, -y, -x, x, z, -z), dim=-1)
    best = quantity[:, None].masked_fill(peers[..., None] < 0.5, -torch.inf).amax(2)
    others = peers.sum(2)[..., None]
    most = (quantity > best) & (others > 0.5)
    middle = ~most[..., -2:].any(-1, keepdim=True) & (others > 1.5)
    return torch.cat((most, middle), dim=-1).float()


class SlotReader(ObservationReader):
    """``proprio``, ``objects`` and ``instruction`` → features ``[B, size]``.

    The features hold, for each phrase, the matched slot's geometry; the ways from one to the other;
    the hand's own pose; what stands around; and what the instruction's other words say.
    """

    palette: Tensor
    speaks: Tensor
    unnamed: Tensor
    fixtures: Tensor
    round: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.images = {}
        self.state_keys = ("proprio", "objects", "instruction")
        self.height = Scaling(1, floor=0.01)
        self.fingers = Scaling(2, floor=0.002)
        self.offset = Scaling(3, floor=0.01)
        self.extent = Scaling(3, floor=0.002)
        n_named = len(COLORS) + len(SHAPES) + len(RELATION_WORDS)
        n_keys = n_named + _OTHER_KEYS

        self.register_buffer("palette", torch.tensor(list(COLORS.values())))
        # What a word may speak of: a colour word of colours, and so on; others of all.
        speaks = torch.ones(N_WORDS, n_keys)
        first = 0
        for words in (COLOUR_WORDS, SHAPE_WORDS, RELATION_WORDS):
            span = slice(first, first + len(words))
            speaks[span] = 0.0
            speaks[span, span] = 1.0
            first = span.stop
        self.register_buffer("speaks", speaks)
        # Training starts with each of them meaning what a dictionary says.
        meaning = torch.zeros(N_WORDS, n_keys)
        meaning[:n_named, :n_named] = _MATCH * torch.eye(n_named)
        self.meaning = nn.Parameter(meaning)
        self.hearing = nn.Parameter(torch.eye(N_PHRASES))
        self.other_keys = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, _OTHER_KEYS))
        self.speech = nn.Parameter(torch.zeros(N_WORDS, _SPEECH))
        unnamed = torch.ones(N_WORDS, 1)
        unnamed[:n_named] = 0.0
        self.register_buffer("unnamed", unnamed)

        for name, shapes in (("fixtures", _FIXTURES), ("round", _ROUND)):
            self.register_buffer(name, torch.tensor([[float(s in shapes)] for s in SHAPES]))

        n_geometry = 6 + 1 + 2 + 2 + 1 + 2 + 3 + len(SHAPES)
        self.around = nn.Sequential(
            nn.Linear(n_geometry + 3 + N_PHRASES, 48), nn.ReLU(), nn.Linear(48, _CONTEXT), nn.ReLU()
        )
        self.size = N_PHRASES * n_geometry + 2 * 6 + 1 + 3 + 2 + _CONTEXT + _SPEECH

    def fit(self, obs: ObsBatch) -> None:
        """Take the statistics of the hand and of the slots that are present."""
        proprio, objects, _ = self._tensors(obs)
        self.height.fit(proprio[:, 2:3])
        self.fingers.fit(proprio[:, 6:])
        slots = objects[objects[..., _PRESENT] > 0.5]
        offsets = objects[..., _POSITION] - proprio[:, None, :3]
        self.offset.fit(offsets[objects[..., _PRESENT] > 0.5])
        self.extent.fit(slots[:, _HALF])

    def match(self, objects: Tensor, counts: Tensor) -> Tensor:
        """How strongly each phrase points at each slot of ``objects [B, N, D]``, from word counts
        ``[B, N_PHRASES, N_WORDS]``: ``[B, N_PHRASES, N]``, at most 1 in total.

        A phrase points at nothing as far as no slot fits it, and one that was not said not at all.
        """
        # A softmax over minus squared distances; what all of a slot's colours share cancels in it.
        nearness = 2 * objects[..., _COLOUR] @ self.palette.T - self.palette.square().sum(1)
        colour = functional.softmax(nearness / _COLOUR_SPREAD, dim=-1)
        # Not by where it is: in a narrow range of scenes place and role go together, and a reader
        # that took to it would point at the wrong object everywhere else.
        other = self.other_keys(self.extent(objects[..., _HALF]))
        keys = torch.cat((colour, objects[..., _SHAPE], _relations(objects), other), dim=-1)
        # All phrases as rows of one product; a batched one would copy the vocabulary B times.
        spoken = counts.flatten(0, 1) @ (self.meaning * self.speaks)
        spoken = spoken.reshape(-1, N_PHRASES, spoken.shape[1])
        queries = torch.einsum("hp,bpk->bhk", self.hearing, spoken)
        said = counts.sum(2, keepdim=True) > 0
        present = objects[..., _PRESENT][:, None]
        scores = queries @ keys.transpose(1, 2) + (present - 1) * 1e4
        nothing = torch.full_like(scores[..., :1], _NOTHING)
        shares = functional.softmax(torch.cat((scores, nothing), dim=-1), dim=-1)
        return shares[..., :-1] * present * said

    def forward(self, obs: ObsBatch) -> Tensor:
        """Features ``[B, size]``."""
        proprio, objects, counts = self._tensors(obs)
        hand, rotation = proprio[:, :3], rotation_columns(proprio[:, 3:6])
        match = self.match(objects, counts)
        geometry = self._geometry(hand, rotation[:, None, :2], objects)
        named = match @ geometry
        # What points at nothing is taken to be at the hand: no way leads to the table's origin.
        missing = 1 - match.sum(2, keepdim=True)
        places = match @ objects[..., _POSITION] + missing * hand[:, None]
        features = (
            named.flatten(1),
            self._way(places[:, PLACE] - places[:, MOVED]),
            self._way(places[:, MOVED] - places[:, BESIDES]),
            self.height(hand[:, 2:]),
            (_angle(rotation[:, :2]) / _HAND_TURN).clamp(-1, 1),
            rotation[:, 2::3],
            self.fingers(proprio[:, 6:]),
            self._surroundings(geometry, objects, match, places),
            counts.sum(1) @ (self.speech * self.unnamed),
        )
        return torch.cat(features, dim=-1)

    @staticmethod
    def _tensors(obs: ObsBatch) -> tuple[Tensor, Tensor, Tensor]:
        """``proprio [B, 8]``, the object table's rows ``[B, N, D]``, and word counts."""
        objects = observed(obs, "objects", N_SLOTS * len(SLOT_COLUMNS))
        return (
            observed_numbers(obs, "proprio", len(PROPRIO)),
            torch.as_tensor(object_table(objects), dtype=torch.float32),
            torch.from_numpy(count_words(observed(obs, "instruction", None))),
        )

    def _way(self, offset: Tensor) -> Tensor:
        """A way ``[..., 3]`` (m) at two scales, ``[..., 6]``: as a whole, and to millimetres."""
        return torch.cat((self.offset(offset), torch.tanh(offset / _FINE)), dim=-1)

    def _geometry(self, hand: Tensor, of_hand: Tensor, objects: Tensor) -> Tensor:
        """What the policy needs of each slot, colour left out: it must not steer a motion.

        ``hand [B, 3]``; ``of_hand [B, 1, 2]``: cosine and sine of its heading.
        """
        heading, half, shape = objects[..., _HEADING], objects[..., _HALF], objects[..., _SHAPE]
        fixture = shape @ self.fixtures
        half_turn = _double(_turned_back(heading, of_hand.expand_as(heading)))
        quarter_turn = _double(half_turn)
        # The turn that lines the fingers up: a long thing looks the same after half a turn, others
        # after a quarter, round ones after any.
        long = (half[..., :1] - half[..., 1:2]).abs() > _LONG
        turn = torch.where(long, _angle(half_turn) / 2, _angle(quarter_turn) / 4)
        return torch.cat(
            (
                self._way(objects[..., _POSITION] - hand[:, None]),
                self.height(objects[..., _HEIGHT]),
                heading * fixture,
                objects[..., _TILT],
                (turn / _TURN).clamp(-1, 1) * (1 - shape @ self.round),
                half_turn * fixture,
                self.extent(half),
                shape,
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
