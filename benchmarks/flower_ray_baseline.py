"""The rival: Flower's Ray simulation with Opacus in every silo, as Flower's own Opacus example does it.

    python benchmarks/flower_ray_baseline.py --silos 10 --rounds 50 --records 500 --steps 10

A privacy engine is built for every message, so each silo's epsilon is that of its last round; that is how it is done,
and what a round costs there. Needs the extra ``ray``. Prints seconds of the rounds as JSON.
"""

import argparse
import json
import time

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 20

parser = argparse.ArgumentParser()
for name, default in (("silos", 10), ("rounds", 50), ("records", 500), ("steps", 10)):
    parser.add_argument(f"--{name}", type=int, default=default)
WORK = parser.parse_args()

client, server = ClientApp(), ServerApp()


def build_model() -> nn.Module:
    """Two layers, the same everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 2))


def make_loader(silo: int) -> DataLoader:
    """The silo's table in batches of `records / steps`."""
    generator = torch.Generator().manual_seed(silo)
    features = torch.randn(WORK.records, FEATURES, generator=generator)
    noise = 0.3 * torch.randn(WORK.records, generator=generator)
    labels = (features @ (torch.arange(FEATURES) / FEATURES) + noise > 0).long()
    return DataLoader(TensorDataset(features, labels), batch_size=WORK.records // WORK.steps)


@client.train()
def train(message: Message, context: Context) -> Message:
    """One epoch of DP-SGD."""
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    model = build_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=make_loader(int(context.node_config["partition-id"])),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for features, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(features), labels).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(private._module.state_dict()),
        "metrics": MetricRecord({"num-examples": WORK.records}),
    }
    return Message(RecordDict(content), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    del context
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=WORK.silos, min_available_nodes=WORK.silos, min_evaluate_nodes=0
    )
    began = time.perf_counter()
    strategy.start(grid=grid, initial_arrays=ArrayRecord(build_model().state_dict()), num_rounds=WORK.rounds)
    TIMES["rounds_seconds"] = time.perf_counter() - began


TIMES: dict[str, float] = {}

if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=WORK.silos,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    print(json.dumps(TIMES))
