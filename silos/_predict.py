"""A model's outputs on records."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


def predict(model: nn.Module, features: NDArray[np.float32], *, batch: int = 4096) -> NDArray[np.float64]:
    """The model's outputs on every record, shape (records, outputs)."""
    model.eval()
    with torch.no_grad():
        rows = [model(torch.from_numpy(features[i : i + batch])) for i in range(0, len(features), batch)]
    return torch.cat(rows).double().numpy()
