"""The fastest other simulator, doing the same work without any privacy: Apple's pfl 0.6.

    python benchmarks/pfl_nonprivate_baseline.py --silos 10 --rounds 50 --records 500 --steps 10

Needs an environment of its own (``pip install 'pfl[pytorch]==0.6.0'``). Prints seconds of the rounds as JSON.
"""

import argparse
import json
import time

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

FEATURES = 20


class Classifier(nn.Module):
    """Two layers, with the loss where pfl looks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 2))

    def loss(self, features: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> torch.Tensor:
        """Cross-entropy."""
        self.train(not eval)
        return nn.functional.cross_entropy(self.layers(features), labels)

    @torch.no_grad()
    def metrics(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
        """The loss again."""
        return {"loss": Weighted(self.loss(features, labels, True).item() * len(labels), len(labels))}


def make_table(silo: int, records: int) -> list[torch.Tensor]:
    """The silo's features and labels."""
    generator = torch.Generator().manual_seed(silo)
    features = torch.randn(records, FEATURES, generator=generator)
    noise = 0.3 * torch.randn(records, generator=generator)
    return [features, (features @ (torch.arange(FEATURES) / FEATURES) + noise > 0).long()]


def main() -> None:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser()
    for name, default in (("silos", 10), ("rounds", 50), ("records", 500), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    work = parser.parse_args()
    torch.set_num_threads(1)
    network = Classifier()
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    tables = {silo: make_table(silo, work.records) for silo in range(work.silos)}
    data = FederatedDataset(
        lambda silo: Dataset(raw_data=tables[silo], user_id=silo), get_user_sampler("minimize_reuse", list(tables))
    )
    began = time.perf_counter()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=work.silos,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None, postprocessors=[]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=0.5, local_batch_size=work.records // work.steps
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=work.records),
        callbacks=[],
    )
    print(json.dumps({"rounds_seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
