"""Elementwise functions between linear layers, written to and differentiated in buffers that are there already.

They are torch's own kernels, the ones that autograd calls, so that the engines agree to the last bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_aten = torch.ops.aten


@dataclass(frozen=True, kw_only=True)
class Elementwise:
    """A function of each output by itself.

    Args:
        apply: writes the function of its first argument to its second.
        pull: turns gradients by the function's outputs, its first argument, into gradients by its inputs, in place,
            given the inputs or the outputs.
        by_inputs: which of the two.
    """

    apply: Callable[[Tensor, Tensor], object]
    pull: Callable[[Tensor, Tensor], object]
    by_inputs: bool = False


def elementwise(module: nn.Module) -> Elementwise | None:
    """The function that a module computes; None where it is none of those known."""
    make = _MAKERS.get(type(module))
    return None if make is None else make(module)


def _elu(layer: nn.ELU) -> Elementwise:
    alpha = layer.alpha
    return Elementwise(
        apply=lambda z, a: _aten.elu.out(z, alpha, out=a),
        pull=lambda e, z: _aten.elu_backward.grad_input(e, alpha, 1, 1, False, z, grad_input=e),
        by_inputs=True,
    )


def _gelu(layer: nn.GELU) -> Elementwise:
    how = layer.approximate
    return Elementwise(
        apply=lambda z, a: _aten.gelu.out(z, approximate=how, out=a),
        pull=lambda e, z: _aten.gelu_backward.grad_input(e, z, approximate=how, grad_input=e),
        by_inputs=True,
    )


_RELU = Elementwise(
    apply=lambda z, a: _aten.relu.out(z, out=a),
    pull=lambda e, a: _aten.threshold_backward.grad_input(e, a, 0, grad_input=e),
)
_SIGMOID = Elementwise(
    apply=lambda z, a: torch.sigmoid(z, out=a),
    pull=lambda e, a: _aten.sigmoid_backward.grad_input(e, a, grad_input=e),
)
_TANH = Elementwise(
    apply=lambda z, a: torch.tanh(z, out=a),
    pull=lambda e, a: _aten.tanh_backward.grad_input(e, a, grad_input=e),
)

_MAKERS: dict[type[nn.Module], Callable[..., Elementwise]] = {
    nn.ELU: _elu,
    nn.GELU: _gelu,
    nn.ReLU: lambda _: _RELU,
    nn.Sigmoid: lambda _: _SIGMOID,
    nn.Tanh: lambda _: _TANH,
}
