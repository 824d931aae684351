"""Per-record gradients against plain autograd, one record at a time."""

import copy

import pytest
import torch
from torch import Tensor, nn

from silos._check_model import quiet_torch
from silos._per_record import PerRecord


class Twice(nn.Module):
    """Its middle layer is applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, records: Tensor) -> Tensor:
        inner = torch.tanh(self.middle(torch.tanh(self.first(records))))
        return self.last(torch.tanh(self.middle(inner)))


class Scaled(nn.Module):
    """Its scale is a parameter of its own, which Opacus has no rule for."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(6)), nn.Linear(6, 2)

    def forward(self, records: Tensor) -> Tensor:
        return self.layer(records * self.scale)


def half_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    return model


MODELS = {
    "twice": Twice,
    "in place": lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(24, 2)
    ),
    "norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2, bias=False)),
    "half frozen": half_frozen,
    "own parameter": Scaled,
}


@pytest.mark.parametrize("name", MODELS)
def test_each_record_has_the_gradient_of_its_own_loss(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    plain = copy.deepcopy(model)
    records, labels = torch.rand(5, 6, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])

    def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, wanted, reduction="sum")

    per_record = PerRecord(model)
    with quiet_torch():
        per_record.gradients(records, labels, loss)
        found = per_record.gradients(records, labels, loss)
    for row in range(len(records)):
        plain.zero_grad()
        loss(plain(records[row : row + 1]), labels[row : row + 1]).backward()
        expected = [p.grad for p in plain.parameters() if p.requires_grad]
        for gradient, own in zip(found, expected, strict=True):
            torch.testing.assert_close(gradient[row], own)
