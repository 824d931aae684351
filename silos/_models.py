"""Models: the shipped architectures, the user's own, and weights as named arrays.

Weights are the trainable parameters by name, in the model's order. Frozen parameters and constant buffers are part of
the architecture: they are the same wherever the model is built, and never travel.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from accounting import InvalidValue
from accounting._validate import check_count
from silos._errors import ModelRefused
from silos._weights import Weights, check_same_layout

ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


def build_model(
    kind: str,
    *,
    input_shape: Sequence[int],
    outputs: int,
    hidden: Sequence[int] = (32,),
    activation: str = "tanh",
    seed: int,
) -> nn.Module:
    """A model with its initial weights.

    Args:
        kind: ``linear``, ``mlp``, ``cnn`` (the tanh network of Papernot et al. 2021 and Tramer and Boneh 2021; about
            26,000 parameters on 1 x 28 x 28) or ``module:factory``, a callable of keywords `input_shape` and `outputs`
            that returns a `torch.nn.Module`.
        input_shape: shape of one record; (channels, height, width) for ``cnn``.
        outputs: number of outputs: 1 for binary tasks and regression, else the number of classes.
        hidden: widths of the hidden layers of ``mlp``.
        activation: of ``mlp``: ``elu``, ``gelu``, ``relu``, ``sigmoid`` or ``tanh``.
        seed: of the initial weights. The same seed gives the same weights, and torch's own generator is left as it was.

    Raises:
        InvalidValue: for a kind, width or activation that is not known.
        ModelRefused: where the factory cannot be imported or does not return a module.
    """
    check_count(low=1, outputs=outputs)
    shape = tuple(input_shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in kind:
            return _own(kind, shape, outputs)
        if kind == "linear":
            return _mlp(shape, outputs, (), activation)
        if kind == "mlp":
            return _mlp(shape, outputs, hidden, activation)
        if kind == "cnn":
            return _cnn(shape, outputs)
    raise InvalidValue(f"Unknown model kind {kind!r}; known: linear, mlp, cnn, or module:factory.")


def weights_of(model: nn.Module) -> Weights:
    """A copy of the model's trainable parameters, by name."""
    named = model.named_parameters()
    return {name: p.detach().cpu().numpy().copy() for name, p in named if p.requires_grad}


def load_weights(model: nn.Module, weights: Mapping[str, NDArray[np.generic]]) -> None:
    """Write the weights into the model, in place.

    Raises:
        InvalidValue: where names or shapes are not those of the model.
    """
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    check_same_layout({name: tuple(p.shape) for name, p in own.items()}, weights)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.from_numpy(np.array(weights[name])))


def _mlp(input_shape: tuple[int, ...], outputs: int, hidden: Sequence[int], activation: str) -> nn.Module:
    if activation not in ACTIVATIONS:
        raise InvalidValue(f"Unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}.")
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if len(input_shape) > 1:
        layers["flatten"] = nn.Flatten()
    width = int(np.prod(input_shape))
    for number, size in enumerate(hidden, start=1):
        check_count(low=1, hidden=size)
        layers[f"hidden{number}"] = nn.Linear(width, size)
        layers[f"{activation}{number}"] = ACTIVATIONS[activation]()
        width = size
    layers["output"] = nn.Linear(width, outputs)
    return nn.Sequential(layers)


def _cnn(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    if len(input_shape) != 3 or min(input_shape[1:]) < 18:
        raise InvalidValue(f"Expected input_shape={input_shape} of a cnn to be (channels, height, width) from 18 x 18.")
    channels, height, width = input_shape
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        convolution1=nn.Conv2d(channels, 16, kernel_size=8, stride=2, padding=2),
        tanh1=nn.Tanh(),
        pool1=nn.MaxPool2d(kernel_size=2, stride=1),
        convolution2=nn.Conv2d(16, 32, kernel_size=4, stride=2),
        tanh2=nn.Tanh(),
        pool2=nn.MaxPool2d(kernel_size=2, stride=1),
        flatten=nn.Flatten(),
        hidden=nn.Linear(32 * _pooled(height) * _pooled(width), 32),
        tanh3=nn.Tanh(),
        output=nn.Linear(32, outputs),
    )
    return nn.Sequential(layers)


def _pooled(size: int) -> int:
    first = (size + 2 * 2 - 8) // 2 + 1 - 1
    return (first - 4) // 2 + 1 - 1


def _own(kind: str, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    module, _, name = kind.partition(":")
    try:
        factory = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelRefused(f"Model {kind!r} cannot be imported: {error}.") from error
    try:
        model = factory(input_shape=input_shape, outputs=outputs)
    except Exception as error:  # the user's code may raise anything
        raise ModelRefused(f"Model {kind!r} cannot be built: {type(error).__name__}: {error}.") from error
    if not isinstance(model, nn.Module):
        raise ModelRefused(f"Model {kind!r} returned a {type(model).__name__}, expected a torch.nn.Module.")
    return model
