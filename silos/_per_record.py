"""Per-record gradients, as Opacus computes them.

Opacus' `GradSampleModule` collects them in hooks of the backward pass, which also computes the gradient of the whole
batch for every parameter, for nobody. Where all trainable layers are of kinds that Opacus has a rule for, the backward
pass here goes to the outputs of these layers alone, and the same rules turn them into gradients of each record. Every
other model is left to `GradSampleModule`.
"""

import torch
from opacus import GradSampleModule
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from silos._losses import Loss

_KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.GroupNorm, nn.LayerNorm, nn.Linear)


class PerRecord:
    """The per-record gradients of a model.

    Args:
        model: to be used through this object alone from now on.

    Raises:
        NotImplementedError: for a layer that Opacus cannot handle.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        layers = [layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))]
        self._direct = all(type(layer) in _KINDS for layer in layers)
        self._passed: list[tuple[nn.Module, list[Tensor], GradientEdge]] = []
        self._model = model if self._direct else GradSampleModule(model, loss_reduction="sum")
        if self._direct:
            for layer in layers:
                layer.register_forward_hook(self._remember)

    def gradients(self, records: Tensor, labels: Tensor, loss: Loss) -> list[Tensor]:
        """The gradient of each record's own loss by each parameter, shape (records, *parameter).

        Args:
            records: at least one.
            labels: theirs.
            loss: of outputs and labels: the sum over records of each record's own.
        """
        if self._direct:
            return self._by_rules(records, labels, loss)
        loss(self._model(records), labels).backward()
        found: list[Tensor] = [p.grad_sample for p in self.parameters]  # pyright: ignore  # Opacus hangs it there
        for parameter in self.parameters:
            parameter.grad = parameter.grad_sample = None  # pyright: ignore
        return found

    def _by_rules(self, records: Tensor, labels: Tensor, loss: Loss) -> list[Tensor]:
        self._passed.clear()
        total = loss(self._model(records), labels)
        pulled = torch.autograd.grad(total, [edge for _, _, edge in self._passed])
        found: dict[nn.Parameter, Tensor] = {}
        for (layer, inputs, _), gradient in zip(self._passed, pulled, strict=True):
            # A layer that is applied twice has the sum of both.
            for parameter, one in GradSampleModule.GRAD_SAMPLERS[type(layer)](layer, inputs, gradient).items():
                found[parameter] = found[parameter] + one if parameter in found else one
        self._passed.clear()
        return [found[parameter] for parameter in self.parameters]

    def _remember(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # An edge and not the output itself, which a function that follows may overwrite.
        self._passed.append((layer, [each.detach() for each in inputs], get_gradient_edge(output)))
