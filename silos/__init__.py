"""What happens inside one silo: its shard, its model, its engine, its noise, and the gate to the outside.

Imports `accounting`, torch, opacus and flwr; never `server` or `scenarios` (except `silos.app`, the composition root
that `flwr run .` loads). Start with `Silo`, then `OpacusEngine`. Importing this package takes seconds: import it late.
"""

from silos import _environment  # isort: skip  # before the first import of flwr

from silos._check_model import check_model
from silos._choose import EngineName, build_engine
from silos._client import client_app, question_content, request_content, serve_together
from silos._engine import OpacusEngine
from silos._errors import Declined, ModelRefused, ReleaseRefused
from silos._fleet import FleetEngine
from silos._frozen import freeze, silo_key
from silos._gate import check_reply, open_gate
from silos._job import Job, Outcome
from silos._models import Weights, build_model, check_same_layout, load_weights, weights_of
from silos._records import from_record, hash_weights, to_record
from silos._schedule import Schedule
from silos._shard import Shard
from silos._silo import Charged, Engine, Question, Request, Silo, StreamSource
from silos._statistics import Errors, Loss, Moments, Outcomes, Size, Statistic
from silos._streams import Streams, poisson_sample
from silos._system_streams import SystemStreams
from silos._tasks import Task, check_task, loss

del _environment

__all__ = [
    "Charged",
    "Declined",
    "Engine",
    "EngineName",
    "Errors",
    "FleetEngine",
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
    "question_content",
    "request_content",
    "serve_together",
    "silo_key",
    "to_record",
    "weights_of",
]
