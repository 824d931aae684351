"""Which models DP-SGD can train, found out by looking and by trying.

The whole guarantee rests on one fact: the gradient of a record depends on that record alone. Some layers break it by
their nature (batch normalisation); those are known by type. For the rest a few random records are tried: an output
must not move when another record moves, nor from one pass to the next, and the per-record gradients that Opacus gives
must be those of plain autograd, record by record.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from silos._errors import ModelRefused

ALLOWED = (
    "Allowed: layers in which a record's output depends on that record alone, such as Linear, Conv, Embedding, "
    "GroupNorm, LayerNorm, pooling and elementwise activations"
)
PROBES = 3


def check_model(model: nn.Module, *, input_shape: Sequence[int], outputs: int) -> None:
    """Refuse a model that cannot be trained with per-record clipping and averaged over silos.

    Args:
        model: left as it was.
        input_shape: shape of one record.
        outputs: expected number of outputs of a record.

    Raises:
        ModelRefused: saying which layer, parameter or buffer, and what is allowed instead.
    """
    probe, records = _checked(model, input_shape, outputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        _check_gradients(probe, records)


def check_outputs(model: nn.Module, *, input_shape: Sequence[int], outputs: int) -> None:
    """The part of `check_model` that asks nothing of Opacus, for an engine with gradients of its own.

    Raises:
        ModelRefused: as `check_model`.
    """
    _checked(model, input_shape, outputs)


def _checked(model: nn.Module, input_shape: Sequence[int], outputs: int) -> tuple[nn.Module, torch.Tensor]:
    """A copy of a model whose layers, parameters and outputs are as they must be, and the records it was tried on."""
    _check_layers(model)
    _check_parameters(model)
    probe = copy.deepcopy(model).double().train()
    records = torch.rand(PROBES, *input_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        _check_outputs(probe, records, outputs)
    return probe, records


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Silence two remarks of torch: features need no gradient, and may lie in read-only memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing when gradients")
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        yield


def _check_layers(model: nn.Module) -> None:
    for name, layer in model.named_modules():
        if isinstance(layer, _NormBase) and (layer.track_running_stats or "BatchNorm" in type(layer).__name__):
            raise ModelRefused(f"Layer {name!r} ({type(layer).__name__}) mixes the records of a batch. {ALLOWED}.")
        trainable = any(p.requires_grad for p in layer.parameters(recurse=False))
        if trainable and next(layer.buffers(), None) is not None:
            raise ModelRefused(f"Layer {name!r} has trainable parameters and buffers. Allowed: a layer for each.")
    for name, buffer in model.named_buffers():
        if not buffer.is_floating_point():
            raise ModelRefused(f"Buffer {name!r} of {buffer.dtype} cannot be trained. Allowed: constant float buffers.")


def _check_parameters(model: nn.Module) -> None:
    trainable = [(name, p) for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]
    if not trainable:
        raise ModelRefused("The model has no trainable parameter. Allowed: at least one with requires_grad.")
    names: dict[int, str] = {}
    for name, parameter in trainable:
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ModelRefused(f"Parameter {name!r} is {parameter.dtype}. Allowed: float32 and float64.")
        other = names.setdefault(parameter.data_ptr(), name)
        if other != name and parameter.numel():
            raise ModelRefused(f"Parameters {other!r} and {name!r} share memory. Allowed: one name for each.")


def _check_outputs(probe: nn.Module, records: torch.Tensor, outputs: int) -> None:
    constants = [buffer.clone() for buffer in probe.buffers()]
    with torch.no_grad():
        first = _forward(probe, records)
        again = _forward(probe, records)
        moved = _forward(probe, torch.cat([records[:-1], records[-1:] + 1]))
    if first.shape != (len(records), outputs):
        raise ModelRefused(
            f"The model maps {len(records)} records of shape {tuple(records.shape[1:])} to outputs of shape "
            f"{tuple(first.shape)}. Allowed: ({len(records)}, {outputs})."
        )
    if not torch.equal(first, again):
        raise ModelRefused(f"The model's outputs are random (dropout?), so that no run can be repeated. {ALLOWED}.")
    if not torch.allclose(first[:-1], moved[:-1], rtol=1e-9, atol=1e-12):
        raise ModelRefused(f"A record's output moves when another record of the batch does. {ALLOWED}.")
    if not all(map(torch.equal, constants, probe.buffers())):
        raise ModelRefused("A buffer of the model changes in training. Allowed: constant float buffers.")


def _forward(probe: nn.Module, records: torch.Tensor) -> torch.Tensor:
    try:
        result = probe(records)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        shape = tuple(records.shape[1:])
        raise ModelRefused(f"The model fails on float records of shape {shape}: {error}") from error
    if not isinstance(result, torch.Tensor):
        raise ModelRefused(f"The model returns a {type(result).__name__}. Allowed: one tensor.")
    return result


def _check_gradients(probe: nn.Module, records: torch.Tensor) -> None:
    from silos._per_record import PerRecord  # loads Opacus, which takes seconds, and fleets need none

    named = {name: p for name, p in probe.named_parameters() if p.requires_grad}
    direct = [
        torch.autograd.grad(probe(records[i : i + 1]).square().sum(), list(named.values()), allow_unused=True)
        for i in range(len(records))
    ]
    for name, gradient in zip(named, direct[0], strict=True):
        if gradient is None:
            raise ModelRefused(f"Parameter {name!r} does not reach the outputs. Allowed: freeze it, or use it.")
    try:
        with quiet_torch():
            computed = PerRecord(probe).gradients(records, records, lambda outputs, _: outputs.square().sum())
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise ModelRefused(f"Opacus finds no per-record gradients for the model: {error}. {ALLOWED}.") from error
    for name, found, *expected in zip(named, computed, *direct, strict=True):
        # Opacus leaves None where it overlooked a parameter, whatever types say.
        if not isinstance(found, torch.Tensor) or not torch.allclose(
            found, torch.stack(expected), rtol=1e-6, atol=1e-9
        ):
            raise ModelRefused(f"Parameter {name!r} has wrong per-record gradients in Opacus. {ALLOWED}.")
