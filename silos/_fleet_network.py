"""One architecture in many copies: linear layers with elementwise functions between them, for many silos at once.

The weights of k silos are the rows of one matrix, in the model's own parameter order; each layer's matrix and bias are
views of it. A batch of records is a tensor (k, width, features), all silos of one width. Outputs are kept as
(k, outputs, width), so that sums over the outputs of a record run along the contiguous axis.

Per-record gradients are never formed. For a linear layer with input a and output gradient e a record's gradient is the
outer product e a^T and e itself for the bias, so that its squared norm is |e|^2 (|a|^2 + 1); and the clipped sum over
records, with clip factors c, is one product of (c e) and a (Goodfellow 2015, arXiv 1510.01799; Li et al. 2022, arXiv
2110.05679).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from silos._fleet_functions import Elementwise, elementwise
from silos._tasks import Task


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A linear layer and what follows it.

    Args:
        inputs, outputs: its widths.
        bias: whether it has one.
        start: where its parameters begin in a silo's row of weights: the matrix, then the bias.
        function: what follows; None after the last layer, or where nothing does.
    """

    inputs: int
    outputs: int
    bias: bool
    start: int
    function: Elementwise | None

    @property
    def end(self) -> int:
        """Where its parameters end."""
        return self.start + self.outputs * (self.inputs + self.bias)

    def views(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Matrix (k, outputs, inputs) and bias (k, outputs, 1) in rows of weights or of gradients."""
        middle = self.start + self.outputs * self.inputs
        matrix = rows[:, self.start : middle].unflatten(1, (self.outputs, self.inputs))
        return matrix, rows[:, middle : self.end].unsqueeze(2) if self.bias else None


@dataclass(frozen=True, kw_only=True)
class Network:
    """What `read` found a model to be.

    Args:
        layers: in the order in which they are applied.
    """

    layers: tuple[Layer, ...]

    @classmethod
    def read(cls, model: nn.Module) -> Self | None:
        """The model as layers; None where it is anything but a chain of linear layers with functions between them."""
        chain = list(_flat(model))
        if chain and type(chain[0]) is nn.Flatten and (chain[0].start_dim, chain[0].end_dim) == (1, -1):
            chain = chain[1:]
        if not chain or type(chain[0]) is not nn.Linear or type(chain[-1]) is not nn.Linear:
            return None
        layers: list[Layer] = []
        for part, following in pairwise([*chain, nn.Identity()]):
            if type(part) is nn.Linear and all(p.requires_grad for p in part.parameters()):
                layers.append(
                    Layer(
                        inputs=part.in_features,
                        outputs=part.out_features,
                        bias=part.bias is not None,
                        start=layers[-1].end if layers else 0,
                        function=elementwise(following),
                    )
                )
            elif elementwise(part) is None or type(following) is not nn.Linear:
                return None
        # A layer that is used twice has its parameters once.
        same = layers[-1].end == sum(p.numel() for p in model.parameters())
        return cls(layers=tuple(layers)) if same else None

    @property
    def parameters(self) -> int:
        """Number of weights of one silo."""
        return self.layers[-1].end

    @property
    def inputs(self) -> int:
        """Number of features of a record."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Number of outputs of a record."""
        return self.layers[-1].outputs

    @property
    def widest(self) -> int:
        """Most numbers that a record has in any layer."""
        return max(self.inputs, *(layer.outputs for layer in self.layers))


def _flat(model: nn.Module) -> Iterator[nn.Module]:
    # Whatever a subclass or a hook does is not seen here, so neither is taken for what it looks like.
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        yield nn.Module()
    elif type(model) is nn.Sequential:
        for part in model:
            yield from _flat(part)
    elif type(model) is not nn.Identity:
        yield model


class Room:
    """Memory that is used again: tensors of the shapes asked for, over buffers that only grow."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor with whatever the last holder of the name left in it."""
        size = 1
        for length in shape:
            size *= length
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[name] = torch.empty(size, dtype=dtype or self.dtype)
        return buffer[:size].view(shape)


class Pass:
    """The clipped gradient sums of k silos, one batch each, over buffers of a `Room`.

    Args:
        network: the architecture.
        task: what its outputs mean.
        room: where intermediate values are kept.
        weights: shape (k, parameters); read.
        gradients: shape (k, parameters); written.
        records: shape (k, width, columns), as in `columns`; read, and cleared where a record is not finite.
        clip_norms: shape (k, 1).
    """

    def __init__(
        self,
        network: Network,
        task: Task,
        *,
        room: Room,
        weights: Tensor,
        gradients: Tensor,
        records: Tensor,
        clip_norms: Tensor,
    ) -> None:
        silos, width, _ = records.shape
        self._layers = network.layers
        self._task = task
        self._clip_norms = clip_norms
        self._features = records[:, :, : network.inputs]
        self._targets = records[:, :, network.inputs : -1].transpose(1, 2)
        self._first_norms = records[:, :, -1]
        self._weights = [layer.views(weights) for layer in network.layers]
        self._gradients = [layer.views(gradients) for layer in network.layers]
        shapes = [(silos, layer.outputs, width) for layer in network.layers]
        self._errors = [room.take(f"errors {n}", *shape) for n, shape in enumerate(shapes)]
        self._outputs = [room.take(f"outputs {n}", *shape) for n, shape in enumerate(shapes)]
        self._inner = [
            room.take(f"inner {n}", *shape) if layer.function and layer.function.by_inputs else output
            for n, (layer, shape, output) in enumerate(zip(network.layers, shapes, self._outputs, strict=True))
        ]
        self._squares = [room.take("squares", *shape) for shape in shapes]
        self._norms, self._part, self._share = (
            room.take(name, silos, width) for name in ("norms", "part of norms", "share of norms")
        )

    def run(self, present: Tensor) -> None:
        """Write the sums.

        Args:
            present: shape (k, width); 1 for a record of the sample, 0 for padding.
        """
        self._forward()
        self._backward()
        # One nan or infinity anywhere makes the sum not finite, and only then are records looked at.
        if not math.isfinite(self._norms.sum().item()):
            self._clear_records()
        factors = torch.div(self._clip_norms, self._norms.sqrt_().add_(1e-6), out=self._part)
        factors = factors.clamp_(max=1.0).mul_(present).unsqueeze(1)
        for n, (matrix, bias) in enumerate(self._gradients):
            errors = self._errors[n].mul_(factors)
            inputs = self._features if n == 0 else self._outputs[n - 1].transpose(1, 2)
            torch.bmm(errors, inputs, out=matrix)
            if bias is not None:
                torch.sum(errors, 2, keepdim=True, out=bias)

    def _forward(self) -> None:
        inputs = self._features.transpose(1, 2)
        for n, (layer, (matrix, bias)) in enumerate(zip(self._layers, self._weights, strict=True)):
            inner = torch.bmm(matrix, inputs, out=self._inner[n])
            if bias is not None:
                inner.add_(bias)
            inputs = self._outputs[n]
            if layer.function is not None:
                layer.function.apply(inner, inputs)
        errors = self._errors[-1]
        if self._task == "multiclass":
            torch.softmax(inputs, 1, out=errors).sub_(self._targets)
        elif self._task == "binary":
            torch.sigmoid(inputs, out=errors).sub_(self._targets)
        else:
            torch.sub(inputs, self._targets, out=errors).mul_(2.0)

    def _backward(self) -> None:
        """Errors of every layer and, with them, the squared norm of each record's gradient."""
        for n in reversed(range(len(self._layers))):
            layer, errors, norms = self._layers[n], self._errors[n], self._norms
            self._sum_squares(errors, n, self._part)
            if n == 0:
                inputs = self._first_norms
            else:
                inputs = self._sum_squares(self._outputs[n - 1], n - 1, self._share)
                if layer.bias:
                    inputs.add_(1.0)
            if n == len(self._layers) - 1:
                torch.mul(self._part, inputs, out=norms)
            else:
                norms.addcmul_(self._part, inputs)
            if n > 0:
                torch.bmm(self._weights[n][0].transpose(1, 2), errors, out=self._errors[n - 1])
                if (function := self._layers[n - 1].function) is not None:
                    function.pull(self._errors[n - 1], self._inner[n - 1])

    def _sum_squares(self, values: Tensor, n: int, out: Tensor) -> Tensor:
        return torch.sum(torch.mul(values, values, out=self._squares[n]), 1, out=out)

    def _clear_records(self) -> None:
        """Let records with a nan or an infinity in their gradient contribute zero."""
        bad = ~torch.isfinite(self._norms)
        self._norms.masked_fill_(bad, 0.0)
        self._features.masked_fill_(bad.unsqueeze(2), 0.0)
        for values in (*self._errors, *self._outputs[:-1]):
            values.masked_fill_(bad.unsqueeze(1), 0.0)


def columns(features: Tensor, targets: Tensor, network: Network) -> Tensor:
    """Records as `Pass` reads them: features, targets, and the squared norm of the features (plus 1 with a bias)."""
    norms = features.square().sum(1, keepdim=True) + float(network.layers[0].bias)
    return torch.cat([features, targets, norms], dim=1)
