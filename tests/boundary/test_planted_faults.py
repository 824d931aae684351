"""Each property of the boundary holds, and each turns red when the fault that it is there for is planted."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import boundary_checks as checks
import numpy as np
import pytest
import torch
from flwr.app import Message, MetricRecord
from numpy.typing import NDArray
from taped import planted

import scenarios._frozen_shards
import scenarios._price
import scenarios._runner
import scenarios.data._encode
import server._rounds
import silos._client
import silos._gate
import silos._sample
from accounting import LAW_CHAIN, Ledger, Mechanism
from accounting._ledger_chain import Chain, Charge
from scenarios import Scenario
from scenarios.data._dataset import Dataset
from silos import OpacusEngine, Schedule, Shard, Silo, Size, Streams, Weights
from silos._optimizer import StreamOptimizer
from silos._sample import Sample
from silos._silo import Charged
from silos._streams import Purpose


class Place(NamedTuple):
    """What a check may need: the small scenario, and an empty folder."""

    scenario: Path
    folder: Path


Check = Callable[[Place], None]

CHECKS: dict[str, Check] = {
    "a run lets out nothing unpriced": lambda at: checks.check_a_run_lets_out_nothing_unpriced(*at),
    "the price is of all that was executed": lambda at: checks.check_the_price_is_of_all_that_was_executed(*at),
    "a second pass is priced": lambda at: checks.check_the_price_is_of_all_that_was_executed(*at, "ditto"),
    "a second pass without a charge never leaves": lambda at: checks.check_a_second_pass_without_a_charge_never_leaves(
        at.folder
    ),
    "a record moves the sum by at most the clip norm": lambda _: (
        checks.check_a_record_moves_the_sum_by_at_most_the_clip_norm()
    ),
    "noise has the declared deviation": lambda _: checks.check_noise_has_the_declared_deviation(),
    "noise is never shared": lambda _: checks.check_noise_is_never_shared(),
    "samples are Poisson at the scheduled rate": lambda _: checks.check_samples_are_poisson_at_the_scheduled_rate(),
    "an empty sample is a step": lambda at: checks.check_an_empty_sample_is_a_step(at.folder),
    "more steps than charged never leave": lambda at: checks.check_more_steps_than_charged_never_leave(at.folder),
    "a failed round is charged": lambda at: checks.check_a_failed_round_is_charged(at.folder),
    "inputs depend on their record alone": lambda _: checks.check_inputs_depend_on_their_record_alone(),
    "counts move as declared": lambda at: checks.check_counts_move_as_declared(*at),
    "only what is declared public leaves": lambda at: checks.check_only_what_is_declared_public_leaves(at.folder),
    "a guarantee names what is public": lambda at: checks.check_a_guarantee_names_what_is_public(*at),
    "a changed shard is refused": lambda at: checks.check_a_changed_shard_is_refused(*at),
    "a budget is never passed": lambda at: checks.check_a_budget_is_never_passed(*at),
}


@pytest.fixture
def place(scenario_file: Path, tmp_path: Path) -> Place:
    return Place(scenario_file, tmp_path)


@pytest.mark.parametrize("name", CHECKS)
def test_the_property_holds(name: str, place: Place) -> None:
    CHECKS[name](place)


Fault = tuple[object, str, object]


def loss_released_raw() -> list[Fault]:
    answer = silos._client._answer

    def leaky(message: Message, silo: Silo, outcome: Weights | Exception) -> Message:
        reply = answer(message, silo, outcome)
        if not reply.has_error():
            reply.content["metrics"] = MetricRecord({"loss": float(silo.shard.labels.mean())})
        return reply

    return [(silos._client, "_answer", leaky)]


def weight_is_the_true_size() -> list[Fault]:
    held: dict[str, int] = {}
    sizes = scenarios._runner.public_sizes

    def remember(scenario: Scenario, dataset: Dataset) -> dict[str, int]:
        held.update({name: len(shard) for name, shard in dataset.shards.items()})
        return sizes(scenario, dataset)

    def weigh(replies: Iterable[Message], _: Mapping[str, Schedule], names: Mapping[int, str], key: str) -> None:
        for reply in replies:
            reply.content["metrics"] = MetricRecord({key: held[names[reply.metadata.src_node_id]]})

    return [(scenarios._runner, "public_sizes", remember), (server._rounds, "_weigh", weigh)]


def true_sizes_are_public() -> list[Fault]:
    return [
        (scenarios._runner, "public_sizes", lambda _, data: {name: len(shard) for name, shard in data.shards.items()})
    ]


def divisor_is_the_realised_batch() -> list[Fault]:
    clip = StreamOptimizer._clip
    sizes: list[int] = []

    def counting(self: StreamOptimizer) -> torch.Tensor:
        sizes.append(len(self.grad_samples[0]))
        return clip(self)

    def scale(self: StreamOptimizer) -> None:
        for parameter in self._trained:
            if parameter.grad is not None:
                parameter.grad /= max(1, sizes[-1])

    return [(StreamOptimizer, "_clip", counting), (StreamOptimizer, "scale_grad", scale)]


def rate_from_the_loaders_length() -> list[Fault]:
    sample = silos._sample.poisson_sample

    def loader(records: int, rate: float, generator: np.random.Generator) -> NDArray[np.intp]:
        return sample(records, 1 / math.ceil(1 / rate), generator)

    return [(silos._sample, "poisson_sample", loader)]


def shuffled_batches() -> list[Fault]:
    def fixed(records: int, rate: float, generator: np.random.Generator) -> NDArray[np.intp]:
        return np.sort(generator.permutation(records)[: round(rate * records)])

    return [(silos._sample, "poisson_sample", fixed)]


def empty_samples_skipped() -> list[Fault]:
    step = OpacusEngine._step

    def skipping(self: OpacusEngine, features: torch.Tensor, labels: torch.Tensor, sample: Sample) -> None:
        if len(sample.rows):
            step(self, features, labels, sample)

    return [(OpacusEngine, "_step", skipping)]


def _streams_that_ignore(*, silo: bool = False, round: bool = False) -> list[Fault]:
    generator = Streams.generator

    def shared(self: Streams, name: str, number: int, purpose: Purpose, attempt: int = 0) -> np.random.Generator:
        return generator(self, "any" if silo else name, 1 if round else number, purpose, attempt)

    return [(Streams, "generator", shared)]


def clip_after_averaging() -> list[Fault]:
    def clip(self: StreamOptimizer) -> torch.Tensor:
        total = torch.cat([gradient.sum(dim=0).flatten() for gradient in self.grad_samples])
        return total * min(1.0, self.max_grad_norm / float(total.norm() + 1e-6))

    return [(StreamOptimizer, "_clip", clip)]


def _noise_times(factor: float) -> list[Fault]:
    add_noise = StreamOptimizer.add_noise

    def less(self: StreamOptimizer) -> None:
        self.noise_multiplier *= factor
        try:
            add_noise(self)
        finally:
            self.noise_multiplier = self.noise_multiplier / factor if factor else 0.0

    return [(StreamOptimizer, "add_noise", less)]


def accountant_reset_each_round() -> list[Fault]:
    charges = Ledger.charges

    def last_round(self: Ledger, silo: str, run: str | None = None) -> list[Charge]:
        found = charges(self, silo, run)
        return [one for one in found if one.key.round == max(each.key.round for each in found)]

    return [(Ledger, "charges", last_round)]


def second_pass_not_priced() -> list[Fault]:
    charges = Ledger.charges

    def one_a_round(self: Ledger, silo: str, run: str | None = None) -> list[Charge]:
        return [one for one in charges(self, silo, run) if one.key.attempt == 0]

    return [(Ledger, "charges", one_a_round)]


def second_pass_on_the_first_ones_charge() -> list[Fault]:
    return [(Ledger, "release", lambda _, charge, **__: charge)]


def plan_instead_of_execution() -> list[Fault]:
    release = Charged.release

    def planned(self: Charged, weights: Weights, _: int) -> Weights:
        return release(self, weights, self.request.schedule.steps)

    return [(Charged, "release", planned)]


def failed_rounds_not_charged() -> list[Fault]:
    charges = Ledger.charges

    def succeeded(self: Ledger, silo: str, run: str | None = None) -> list[Charge]:
        return [one for one in charges(self, silo, run) if one.reason is None]

    return [(Ledger, "charges", succeeded)]


def scaler_fitted_on_private_data() -> list[Fault]:
    def fitted(numbers: NDArray[np.float64], low: float, high: float) -> NDArray[np.float32]:
        del low, high
        return ((numbers - numbers.mean()) / numbers.std()).astype(np.float32)

    return [(scenarios.data._encode, "_scaled", fitted)]


def individuals_counted_by_their_records() -> list[Fault]:
    return [(Size, "sums", lambda _self, shard, _outputs: np.array([len(shard)]))]


def gate_asleep() -> list[Fault]:
    return [(silos._gate, "check_reply", lambda *_: None)]


def public_numbers_unsaid() -> list[Fault]:
    return [(scenarios._price, "not_covered", lambda _: ())]


def shards_thawed() -> list[Fault]:
    return [(scenarios._frozen_shards, "freeze", lambda *_, **__: None)]


def shards_frozen_by_the_run_key() -> list[Fault]:
    freeze = scenarios._frozen_shards.freeze

    def anew(ledger: Ledger, shard: Shard, _: bytes, **held: Shard | None) -> None:
        if ledger.fixed(shard.name + LAW_CHAIN, "shard") is None:
            freeze(ledger, shard, shard.fingerprint(b"run").encode()[:32], **held)

    return [(scenarios._frozen_shards, "freeze", anew)]


def budget_counts_no_law_under_an_allowance() -> list[Fault]:
    charged = Chain.charged

    def alone(self: Chain, run: str | None = None) -> list[Mechanism]:
        allowed = [one.mechanism for one in self.charges.values() if one.allowed]
        return [law for law in charged(self, run) if law not in allowed]

    return [(Chain, "charged", alone)]


FAULTS: dict[str, tuple[str, Callable[[], list[Fault]]]] = {
    "loss released raw": ("a run lets out nothing unpriced", loss_released_raw),
    "weight is the true size": ("a run lets out nothing unpriced", weight_is_the_true_size),
    "rate, weight and divisor from the true size": ("a run lets out nothing unpriced", true_sizes_are_public),
    "divisor is the realised batch": ("a run lets out nothing unpriced", divisor_is_the_realised_batch),
    "rate from the loader's length": ("samples are Poisson at the scheduled rate", rate_from_the_loaders_length),
    "shuffled batches priced as Poisson": ("samples are Poisson at the scheduled rate", shuffled_batches),
    "empty sample skipped": ("an empty sample is a step", empty_samples_skipped),
    "seed shared between silos": ("noise is never shared", lambda: _streams_that_ignore(silo=True)),
    "same seed in each round": ("noise is never shared", lambda: _streams_that_ignore(round=True)),
    "clip after averaging": ("a record moves the sum by at most the clip norm", clip_after_averaging),
    "half the noise": ("noise has the declared deviation", lambda: _noise_times(0.5)),
    "no noise": ("noise has the declared deviation", lambda: _noise_times(0.0)),
    "accountant reset each round": ("the price is of all that was executed", accountant_reset_each_round),
    "second pass not priced": ("a second pass is priced", second_pass_not_priced),
    "second pass on the first one's charge": (
        "a second pass without a charge never leaves",
        second_pass_on_the_first_ones_charge,
    ),
    "plan instead of execution": ("more steps than charged never leave", plan_instead_of_execution),
    "failed round not charged": ("a failed round is charged", failed_rounds_not_charged),
    "scaler fitted on private data": ("inputs depend on their record alone", scaler_fitted_on_private_data),
    "individuals counted by their records": ("counts move as declared", individuals_counted_by_their_records),
    "gate asleep": ("only what is declared public leaves", gate_asleep),
    "public numbers unsaid": ("a guarantee names what is public", public_numbers_unsaid),
    "shards not frozen": ("a changed shard is refused", shards_thawed),
    "shards compared with nothing": ("a changed shard is refused", shards_frozen_by_the_run_key),
    "budget blind under an allowance": ("a budget is never passed", budget_counts_no_law_under_an_allowance),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_planted_fault_turns_its_property_red(fault: str, place: Place) -> None:
    check, plant = FAULTS[fault]
    with planted(*plant()), pytest.raises(AssertionError):
        CHECKS[check](place)
