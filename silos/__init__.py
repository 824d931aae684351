"""What happens inside one silo: its shard, its model, its engine, its noise, and the gate to the outside.

Imports `accounting`, torch, opacus and flwr; never `server` or `scenarios` (except `silos.app`, the composition root
that `flwr run .` loads). Start with `Silo`, then `OpacusEngine`. Names are imported on first use: torch, opacus and
flwr take seconds, and a shard or a schedule needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from silos import _environment  # before the first import of flwr

if TYPE_CHECKING:
    from silos._check_model import check_model
    from silos._choose import EngineName, build_engine
    from silos._client import client_app, public_content, question_content, request_content, serve_together
    from silos._engine import OpacusEngine
    from silos._errors import Declined, ModelRefused, ReleaseRefused, WorkerLost
    from silos._fleet import FleetEngine
    from silos._frozen import freeze, silo_key
    from silos._gate import check_reply, open_gate
    from silos._job import FleetTrainer, Job, Outcome
    from silos._losses import loss
    from silos._models import build_model, load_weights, weights_of
    from silos._records import from_record, hash_weights, to_record
    from silos._schedule import Schedule
    from silos._shard import Shard
    from silos._silo import Charged, Engine, Question, Request, Silo, StreamSource
    from silos._statistics import Errors, Loss, Moments, Outcomes, Size, Statistic
    from silos._streams import Streams, poisson_sample
    from silos._system_streams import SystemStreams
    from silos._tasks import Task, check_task
    from silos._weights import Weights, check_same_layout
    from silos._worker_count import worker_count
    from silos._workers import Workers

del _environment

_HOME = {
    "check_model": "_check_model",
    "EngineName": "_choose",
    "build_engine": "_choose",
    "client_app": "_client",
    "public_content": "_client",
    "question_content": "_client",
    "request_content": "_client",
    "serve_together": "_client",
    "OpacusEngine": "_engine",
    "Declined": "_errors",
    "ModelRefused": "_errors",
    "ReleaseRefused": "_errors",
    "WorkerLost": "_errors",
    "FleetEngine": "_fleet",
    "freeze": "_frozen",
    "silo_key": "_frozen",
    "check_reply": "_gate",
    "open_gate": "_gate",
    "FleetTrainer": "_job",
    "Job": "_job",
    "Outcome": "_job",
    "loss": "_losses",
    "build_model": "_models",
    "load_weights": "_models",
    "weights_of": "_models",
    "from_record": "_records",
    "hash_weights": "_records",
    "to_record": "_records",
    "Schedule": "_schedule",
    "Shard": "_shard",
    "Charged": "_silo",
    "Engine": "_silo",
    "Question": "_silo",
    "Request": "_silo",
    "Silo": "_silo",
    "StreamSource": "_silo",
    "Errors": "_statistics",
    "Loss": "_statistics",
    "Moments": "_statistics",
    "Outcomes": "_statistics",
    "Size": "_statistics",
    "Statistic": "_statistics",
    "Streams": "_streams",
    "poisson_sample": "_streams",
    "SystemStreams": "_system_streams",
    "Task": "_tasks",
    "check_task": "_tasks",
    "Weights": "_weights",
    "check_same_layout": "_weights",
    "worker_count": "_worker_count",
    "Workers": "_workers",
}

__all__ = [
    "Charged",
    "Declined",
    "Engine",
    "EngineName",
    "Errors",
    "FleetEngine",
    "FleetTrainer",
    "Job",
    "Loss",
    "ModelRefused",
    "Moments",
    "OpacusEngine",
    "Outcome",
    "Outcomes",
    "Question",
    "ReleaseRefused",
    "Request",
    "Schedule",
    "Shard",
    "Silo",
    "Size",
    "Statistic",
    "StreamSource",
    "Streams",
    "SystemStreams",
    "Task",
    "Weights",
    "WorkerLost",
    "Workers",
    "build_engine",
    "build_model",
    "check_model",
    "check_reply",
    "check_same_layout",
    "check_task",
    "client_app",
    "freeze",
    "from_record",
    "hash_weights",
    "load_weights",
    "loss",
    "open_gate",
    "poisson_sample",
    "public_content",
    "question_content",
    "request_content",
    "serve_together",
    "silo_key",
    "to_record",
    "weights_of",
    "worker_count",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'silos' has no attribute {name!r}")
    return getattr(import_module(f"silos.{_HOME[name]}"), name)
