"""What a federation costs, against closed forms for Gaussians and against dp-accounting's loss distributions."""

import math
from collections.abc import Sequence
from itertools import combinations, product

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.stats import norm

import accounting._federation as federation_module
import accounting._worst as worst_module
from accounting import (
    ApproximateEpsilon,
    AtMost,
    Disjoint,
    Federation,
    Gaussian,
    InvalidValue,
    Laplace,
    Ledger,
    LedgerError,
    Mechanism,
    Membership,
    Method,
    MultiRecordSampledGaussian,
    PureEpsilon,
    Relation,
    Release,
    SampledGaussian,
    Sets,
    Unit,
    Unknown,
    Unsupported,
    ZeroConcentrated,
)
from accounting._exposures import Exposure
from accounting._questions import EpsilonAt

ADD_OR_REMOVE, ZERO_OUT, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT, Relation.REPLACE_ONE
DELTA = 1e-5


def gaussian(mu: float, steps: int = 1) -> Gaussian:
    """A Gaussian with the given ratio of sensitivity to noise."""
    return Gaussian(noise_multiplier=1 / mu, steps=steps)


def sampled(rate: float, sigma: float, steps: int) -> SampledGaussian:
    return SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)


def delta_of_mu(mu: float, epsilon: float) -> float:
    """Balle, Wang 2018, Theorem 8."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def epsilon_of_mu(mu: float, delta: float = DELTA) -> float:
    return float(brentq(lambda epsilon: delta_of_mu(mu, epsilon) - delta, 0, 100, xtol=1e-12))


def test_a_max_of_sums_is_the_known_value() -> None:
    """Case 149: two silos alternate 50 and 5 steps in opposite phase over 20 rounds; dp-accounting gives 2.9020."""
    silos = {
        "a": [sampled(0.02, 1.0, 50 if number % 2 else 5) for number in range(20)],
        "b": [sampled(0.02, 1.0, 5 if number % 2 else 50) for number in range(20)],
    }
    assert Federation(silos, Disjoint(), ADD_OR_REMOVE).epsilon(DELTA) == pytest.approx(2.9020424, abs=0.005)


def test_different_silos_cost_the_worst_of_them() -> None:
    """Case 153, with the values of each silo from dp-accounting."""
    silos = {"a": [sampled(0.01, 1.0, 2000)], "b": [sampled(0.1, 2.0, 500)], "c": [sampled(1.0, 20.0, 100)]}
    guarantee = Federation(silos, Disjoint(), ADD_OR_REMOVE).guarantee(delta=DELTA)
    assert guarantee.epsilon == pytest.approx(5.5556421, abs=0.005)
    assert guarantee.worst == ("b",)
    assert guarantee.per_silo == pytest.approx({"a": 2.5850, "b": 5.5556, "c": 1.9931}, abs=0.005)


def test_participation_is_priced_by_rounds_joined() -> None:
    """Case 158: 64 of 640 rounds of 6 steps."""
    silos = {"a": [Release(mechanism=sampled(1 / 6, 4.0, 6), round=10 * number) for number in range(64)]}
    assert Federation(silos, Disjoint(), ADD_OR_REMOVE).epsilon(9e-6) == pytest.approx(3.6152560, abs=0.005)


@pytest.mark.parametrize("relation", list(Relation))
def test_parallel_of_one_silo_is_that_silo(relation: Relation) -> None:
    releases = [gaussian(0.5, 3), gaussian(0.2)]
    factor = 2 if relation is REPLACE else 1
    mu = factor * math.sqrt(3 * 0.25 + 0.04)
    for membership in (Disjoint(), AtMost(1), Sets([["a"]]), Unknown()):
        federation = Federation({"a": releases}, membership, relation)
        assert federation.epsilon(DELTA) == pytest.approx(epsilon_of_mu(mu), rel=1e-3)
        assert federation.delta(2.0) == pytest.approx(delta_of_mu(mu, 2.0), rel=1e-2)


@pytest.mark.parametrize(
    ("membership", "squares"),
    [
        (Disjoint(), 0.25),
        (Sets([["a", "c"], ["b"], ["d"]]), 0.25 + 0.04),
        (AtMost(2), 0.25 + 0.16),
        (AtMost(3), 0.25 + 0.16 + 0.04),
        (Unknown(), 0.25 + 0.16 + 0.04 + 0.01),
    ],
)
def test_overlapping_gaussians_add_in_squares(membership: Disjoint, squares: float) -> None:
    silos = {"a": [gaussian(0.5)], "b": [gaussian(0.4)], "c": [gaussian(0.2)], "d": [gaussian(0.1)]}
    federation = Federation(silos, membership, ADD_OR_REMOVE)
    assert federation.epsilon(DELTA) == pytest.approx(epsilon_of_mu(math.sqrt(squares)), rel=1e-3)
    assert federation.epsilon(DELTA) >= epsilon_of_mu(math.sqrt(squares))


def test_knowing_less_about_membership_costs_more() -> None:
    silos = {name: [sampled(0.05, 1 + index / 4, 100)] for index, name in enumerate("abcd")}
    chain = (Disjoint(), Sets([["a", "b"], ["c"], ["d"]]), AtMost(2), AtMost(3), Unknown())
    prices = [Federation(silos, membership, ADD_OR_REMOVE).epsilon(DELTA) for membership in chain]
    assert prices == sorted(prices)
    assert prices[0] < prices[1]


def test_zero_out_costs_at_most_replace_one() -> None:
    silos = {"a": [sampled(0.1, 1.0, 20)], "b": [gaussian(0.3, 4)]}
    assert Federation(silos, Disjoint(), ZERO_OUT).epsilon(DELTA) < Federation(silos, Disjoint(), REPLACE).epsilon(
        DELTA
    )


def test_the_two_worst_alone_need_not_be_the_worst_together() -> None:
    """At delta 1e-5 a pure epsilon of 1 is the better one alone, and the worse one twice: Gaussian losses average."""
    mu = brentq(lambda value: epsilon_of_mu(value) - 1.0005, 0.1, 1.0)
    silos: dict[str, Sequence[Mechanism]] = {"g": [gaussian(mu)], "h": [gaussian(mu)]}
    silos |= {"p": [PureEpsilon(epsilon=1.0)], "q": [PureEpsilon(epsilon=1.0)]}
    federation = Federation(silos, AtMost(2), ADD_OR_REMOVE)
    guarantee = federation.guarantee(delta=DELTA)
    assert min(guarantee.per_silo["g"], guarantee.per_silo["h"]) > guarantee.per_silo["p"]
    assert set(guarantee.worst) == {"p", "q"}
    # Twice randomised response at 1: all heads has probability p^2, so delta(eps) = p^2 - e^eps (1 - p)^2 near eps = 2.
    p = math.e / (1 + math.e)
    together = math.log((p**2 - DELTA) / (1 - p) ** 2)
    assert guarantee.epsilon == pytest.approx(together, rel=1e-3)
    assert epsilon_of_mu(mu * math.sqrt(2)) < 0.8 * together


def test_silos_that_cost_nothing_alone_can_cost_everything_together() -> None:
    """Each reveals all with probability 0.9e-5, below delta; both together with nearly 1.8e-5."""
    silos = {name: [ApproximateEpsilon(epsilon=0.0, delta=0.9e-5)] for name in "ab"} | {"c": [gaussian(0.5)]}
    federation = Federation(silos, AtMost(2), ADD_OR_REMOVE)
    assert federation.epsilon(DELTA) == math.inf
    assert Federation(silos, Disjoint(), ADD_OR_REMOVE).epsilon(DELTA) == pytest.approx(epsilon_of_mu(0.5), rel=1e-3)


def test_a_record_that_moves_costs_its_removal_and_its_addition() -> None:
    """Case 154: mu = 1 and mu = 0.5 make sqrt(1.25), which dp-accounting and the analytic Gaussian price at 4.98331."""
    silos = {"a": [gaussian(1.0)], "b": [gaussian(0.5)]}
    federation = Federation(silos, Disjoint(), REPLACE, may_move=True)
    moved = Exposure(leaves=("a",), enters=("b",))
    assert moved in (federation.exposures() or ())
    assert federation.price(moved, delta=DELTA) == pytest.approx(4.983306405970682, rel=1e-3)
    assert federation.epsilon(DELTA) == pytest.approx(epsilon_of_mu(2.0), rel=1e-3)


def test_a_move_is_the_worst_where_replacing_changes_little() -> None:
    """Two Laplace counts of sensitivity 1; a replacement inside a silo changes the count by 0.1 at most."""
    count = Laplace(scale=1.0, replace_sensitivity=0.1)
    federation = Federation({"a": [count], "b": [count]}, Disjoint(), REPLACE, may_move=True)
    guarantee = federation.guarantee(delta=0.0)
    assert guarantee.epsilon == pytest.approx(2.0)
    assert guarantee.moved
    assert set(guarantee.worst) == {"a", "b"}
    assert Federation({"a": [count], "b": [count]}, Disjoint(), REPLACE).epsilon(0.0) == pytest.approx(0.1)


def test_moving_pairs_removal_with_addition_and_not_with_removal() -> None:
    """Sampled Gaussians are worse to remove from than to add to; dp-accounting composes the two directions."""
    first, second = (0.05, 0.7, 40), (0.1, 1.0, 60)
    silos = {"a": [sampled(*first)], "b": [sampled(*second)]}

    def direction(setting: tuple[float, float, int], adjacency: str) -> pld.PrivacyLossDistribution:
        rate, sigma, steps = setting
        found = pld.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=1e-3, use_connect_dots=True
        ).self_compose(steps)
        return getattr(found, f"_pmf_{adjacency}")

    def together(first_way: str, second_way: str) -> float:
        pmf = direction(first, first_way).compose(direction(second, second_way))
        return pmf.get_epsilon_for_delta(DELTA)

    expected = max(together("remove", "add"), together("add", "remove"))
    federation = Federation(silos, Disjoint(), REPLACE, may_move=True)
    found = federation.price(Exposure(leaves=("a",), enters=("b",)), delta=DELTA)
    assert found == pytest.approx(expected, rel=5e-3)
    assert found < 0.99 * together("remove", "remove")


def dominated(change: tuple[set[str], set[str]], exposure: Exposure) -> bool:
    """Whether a change of sets of silos is part of an exposure, in either order."""
    before, after = change
    for leaves, enters in ((exposure.leaves, exposure.enters), (exposure.enters, exposure.leaves)):
        parts = (before - after <= set(leaves), after - before <= set(enters), before & after <= set(exposure.stays))
        if all(parts):
            return True
    return False


@pytest.mark.parametrize("cap", [1, 2, 3, 4])
def test_every_move_within_a_cap_is_part_of_a_listed_exposure(cap: int) -> None:
    silos = {name: [gaussian(0.1 + index / 10)] for index, name in enumerate("abcd")}
    exposures = Federation(silos, AtMost(cap), REPLACE, may_move=True).exposures() or ()
    sets = [set(names) for size in range(1, cap + 1) for names in combinations("abcd", size)]
    assert all(any(dominated(change, each) for each in exposures) for change in product(sets, sets))
    for each in exposures:
        assert len(each.leaves) + len(each.stays) <= cap
        assert len(each.enters) + len(each.stays) <= cap
        assert len(set(each.silos)) == len(each.silos)


def test_every_move_between_declared_sets_is_part_of_a_listed_exposure() -> None:
    silos = {name: [gaussian(0.1 + index / 10)] for index, name in enumerate("abcd")}
    declared = [{"a", "b", "c"}, {"c", "d"}]
    exposures = Federation(silos, Sets([sorted(each) for each in declared]), REPLACE, may_move=True).exposures() or ()
    sets = [set(part) for whole in declared for size in (1, 2, 3) for part in combinations(sorted(whole), size)]
    assert all(any(dominated(change, each) for each in exposures) for change in product(sets, sets))


@pytest.mark.parametrize("may_move", [False, True])
def test_equal_silos_are_listed_once_and_priced_as_if_all_were(may_move: bool) -> None:
    many = {f"s{index:03}": [gaussian(0.3)] for index in range(200)} | {"t": [gaussian(0.1)]}
    federation = Federation(many, AtMost(2), REPLACE, may_move=may_move)
    assert len(federation.exposures() or ()) < 40
    assert federation.epsilon(DELTA) == pytest.approx(epsilon_of_mu(2 * 0.3 * math.sqrt(2)), rel=1e-3)


def test_a_cap_of_all_silos_is_no_cap() -> None:
    silos = {f"s{index}": [gaussian(0.01 + index / 1e4)] for index in range(60)}
    prices = [Federation(silos, each, ADD_OR_REMOVE).guarantee(delta=DELTA) for each in (AtMost(60), Unknown())]
    assert prices[0].epsilon == prices[1].epsilon
    assert not prices[0].upper_bound


def test_many_silos_and_large_caps_are_priced() -> None:
    """Two kinds of silos in hundreds, and hundreds of kinds: neither may take long or recurse too deep."""
    two = {f"s{index}": [gaussian(0.01 * (1 + index % 2))] for index in range(1200)}
    expected = epsilon_of_mu(0.02 * math.sqrt(30))
    assert Federation(two, AtMost(30), ADD_OR_REMOVE).epsilon(DELTA) == pytest.approx(expected, rel=1e-3)
    kinds = {f"s{index}": [gaussian(0.01 + index / 1e6)] for index in range(1200)}
    bound = Federation(kinds, AtMost(100), ADD_OR_REMOVE).worst(EpsilonAt(DELTA))
    largest = math.sqrt(sum((0.01 + index / 1e6) ** 2 for index in range(1100, 1200)))
    assert bound.upper_bound
    assert epsilon_of_mu(largest) <= bound.value <= 1.2 * epsilon_of_mu(largest)


@pytest.mark.parametrize("may_move", [False, True])
@pytest.mark.parametrize("method", ["auto", "pld", "rdp"])
def test_too_many_sets_are_bounded_from_above_and_say_so(
    may_move: bool, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = {name: [gaussian(0.1 + index / 20)] for index, name in enumerate("abcdef")}
    federation = Federation(silos, AtMost(3), REPLACE, may_move=may_move)
    exact = federation.guarantee(delta=DELTA)
    monkeypatch.setattr(federation_module, "MAX_EXPOSURES", 5)
    bound = federation.guarantee(delta=DELTA, method=method)
    assert (exact.method, exact.upper_bound) == ("pld", False)
    assert bound.upper_bound
    assert method in ("auto", bound.method)
    assert exact.epsilon < bound.epsilon < 1.3 * exact.epsilon
    assert federation.delta(exact.epsilon, method=method) > DELTA


def test_the_renyi_bound_adds_the_largest_at_each_order() -> None:
    """Two of three Gaussians by their zero-concentrated claims: the two largest rho, 0.125 and 0.08, add up."""
    silos = {name: [ZeroConcentrated(rho=rho)] for name, rho in (("a", 0.08), ("b", 0.02), ("c", 0.125))}
    federation = Federation(silos, AtMost(2), ADD_OR_REMOVE)
    together = Federation({"one": [ZeroConcentrated(rho=0.205)]}, Disjoint(), ADD_OR_REMOVE)
    assert federation._bound(EpsilonAt(DELTA), "auto").value == pytest.approx(together.epsilon(DELTA))


def test_like_silos_are_bounded_tightly_by_their_worst_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 1% of sampled Gaussians that differ by 1%; Renyi accounting alone is 8% too high."""
    silos = {f"s{index}": [sampled(0.05 + index * 1e-4, 1.0, 500)] for index in range(6)}
    federation = Federation(silos, AtMost(3), ADD_OR_REMOVE)
    exact = federation.epsilon(DELTA)
    monkeypatch.setattr(worst_module, "MAX_COMPOSED", 1)
    bound = federation.guarantee(delta=DELTA)
    assert (bound.method, bound.upper_bound) == ("pld", True)
    assert exact <= bound.epsilon <= 1.01 * exact
    assert federation.epsilon(DELTA, method="rdp") > 1.05 * exact
    assert set(bound.worst) == {"s3", "s4", "s5"}


def test_epsilon_and_delta_are_inverse() -> None:
    federation = Federation({"a": [sampled(0.1, 1.2, 80)], "b": [gaussian(0.9)]}, Disjoint(), ADD_OR_REMOVE)
    for delta in (1e-7, 1e-4, 1e-2):
        assert federation.delta(federation.epsilon(delta)) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3])
def test_no_attack_on_a_gaussian_beats_its_trade_off_curve(rate: float) -> None:
    """Dong, Roth, Su 2022: the power at a false positive rate is Phi(Phi^-1(rate) + mu)."""
    silos = {"a": [gaussian(0.5, 4)], "b": [gaussian(0.7)]}
    expected = float(norm.cdf(norm.ppf(rate) + 1.0))
    federation = Federation(silos, Disjoint(), ADD_OR_REMOVE)
    assert expected <= federation.true_positive_rate(rate) <= 1.02 * expected
    assert federation.true_positive_rate(rate) <= federation.true_positive_rate(rate, method="rdp") <= 1


def test_nothing_released_costs_nothing() -> None:
    for federation in (
        Federation({}, Disjoint(), ADD_OR_REMOVE),
        Federation({"a": [], "b": [gaussian(1.0, 0)]}, Unknown(), REPLACE),
    ):
        assert federation.epsilon(0.0) == 0
        assert federation.delta(0.0) == 0
        assert federation.true_positive_rate(0.2) == 0.2


def test_below_the_range_of_loss_distributions_renyi_answers_and_says_so() -> None:
    sampled = SampledGaussian(sampling_rate=1 - 1e-9, noise_multiplier=2.0)
    guarantee = Federation({"a": [sampled]}, Disjoint(), ADD_OR_REMOVE).guarantee(delta=1e-12)
    assert guarantee.method == "rdp"
    assert guarantee.epsilon >= epsilon_of_mu(0.5, 1e-12)


def test_a_mechanism_without_a_pair_is_priced_by_renyi_alone() -> None:
    """A Gaussian of mu = 0.5 is 0.125-zCDP, so that the claim costs what the Gaussian's Renyi bound does."""
    claim = Federation({"a": [ZeroConcentrated(rho=0.125)]}, Disjoint(), ADD_OR_REMOVE)
    same = Federation({"a": [gaussian(0.5)]}, Disjoint(), ADD_OR_REMOVE)
    assert claim.guarantee(delta=DELTA).method == "rdp"
    assert claim.epsilon(DELTA) == pytest.approx(same.epsilon(DELTA, method="rdp"))
    with pytest.raises(Unsupported):
        claim.epsilon(DELTA, method="pld")


def test_the_max_rule_is_refused_where_data_react() -> None:
    silos = {"a": [gaussian(0.5)], "b": [gaussian(0.4)]}
    for membership in (Disjoint(), Sets([["a"], ["b"]]), AtMost(1)):
        with pytest.raises(Unsupported, match=r"2411\.03299"):
            Federation(silos, membership, ADD_OR_REMOVE, data_may_react=True)
    composed = Federation(silos, Unknown(), ADD_OR_REMOVE, data_may_react=True)
    assert composed.epsilon(DELTA) == pytest.approx(epsilon_of_mu(math.sqrt(0.41)), rel=1e-3)
    with pytest.raises(Unsupported):
        Federation(silos, Unknown(), REPLACE, data_may_react=True, may_move=True)


def test_a_mechanism_that_does_not_cover_the_unit_is_refused() -> None:
    unit = Unit(individual=True, records=3)
    covering = [MultiRecordSampledGaussian(sampling_rate=0.1, noise_multiplier=2.0, records=3)]
    Federation({"a": covering}, Disjoint(), ADD_OR_REMOVE, unit)
    with pytest.raises(Unsupported, match="'b' released by sampled-gaussian"):
        Federation({"a": covering, "b": [sampled(0.1, 2.0, 1)]}, Disjoint(), ADD_OR_REMOVE, unit)


def test_moving_needs_replace_one() -> None:
    with pytest.raises(InvalidValue, match="replace-one"):
        Federation({"a": [gaussian(1.0)]}, Disjoint(), ADD_OR_REMOVE, may_move=True)


def test_a_silo_outside_every_declared_set_is_refused() -> None:
    silos = {"a": [gaussian(1.0)], "b": [gaussian(1.0)]}
    with pytest.raises(InvalidValue, match="'b' is in no declared set"):
        Federation(silos, Sets([["a"]]), ADD_OR_REMOVE)
    with pytest.raises(InvalidValue, match="'c' has no releases"):
        Federation(silos, Sets([["a", "b", "c"]]), ADD_OR_REMOVE)


def test_reading_changes_nothing() -> None:
    federation = Federation({"a": [sampled(0.1, 1.0, 30)], "b": [gaussian(0.3)]}, AtMost(2), ADD_OR_REMOVE)
    before = federation.guarantee(delta=DELTA)
    federation.ladder(DELTA)
    assert federation.guarantee(delta=DELTA) == before


def test_the_order_of_silos_and_releases_is_irrelevant() -> None:
    first = {"a": [gaussian(0.3), sampled(0.1, 1.0, 30)], "b": [gaussian(0.2, 7)]}
    second = {"b": [gaussian(0.2, 3), gaussian(0.2, 4)], "a": [sampled(0.1, 1.0, 30), gaussian(0.3)]}
    prices = [Federation(silos, Unknown(), ADD_OR_REMOVE).epsilon(DELTA) for silos in (first, second)]
    assert prices[0] == pytest.approx(prices[1], rel=1e-3)


@pytest.fixture
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Two rounds declared for each of two silos; north executed 3 of 5 steps once, south joined one round."""
    path = tmp_path_factory.mktemp("ledgers") / "run.db"
    opened = Ledger.open(path, create=True)
    step = sampled(0.1, 1.0, 5)
    for silo, rounds in (("north", 2), ("south", 1)):
        opened.declare(silo, "run", 2, step)
        for number in range(rounds):
            charge = opened.charge(
                silo=silo, run="run", round=number, attempt=0, item="update", mechanism=step, request=f"{number}"
            )
            opened.release(charge, executed=3 if number else 5, output="bytes")
    return opened


def test_a_ledger_is_priced_at_executed_steps_and_carries_its_heads(ledger: Ledger) -> None:
    federation = Federation.from_ledger(ledger, Disjoint(), ADD_OR_REMOVE)
    direct = Federation({"north": [sampled(0.1, 1.0, 8)], "south": [sampled(0.1, 1.0, 5)]}, Disjoint(), ADD_OR_REMOVE)
    guarantee = federation.guarantee(delta=DELTA)
    assert guarantee.per_silo == direct.guarantee(delta=DELTA).per_silo
    assert guarantee.heads == {"north": ledger.head("north"), "south": ledger.head("south")}
    assert "rounds-basic" in {rung.method for rung in federation.ladder(DELTA)}


def test_where_participation_reacts_the_declared_schedule_is_the_price(ledger: Ledger) -> None:
    federation = Federation.from_ledger(ledger, Disjoint(), ADD_OR_REMOVE, participation_reacts=True)
    direct = Federation({"all": [sampled(0.1, 1.0, 10)]}, Disjoint(), ADD_OR_REMOVE).epsilon(DELTA)
    assert federation.guarantee(delta=DELTA).per_silo == {"north": direct, "south": direct}
    ledger.charge(silo="south", run="other", round=0, attempt=0, item="update", mechanism=gaussian(1.0), request="x")
    with pytest.raises(LedgerError, match="other"):
        Federation.from_ledger(ledger, Disjoint(), ADD_OR_REMOVE, participation_reacts=True)


def test_a_silo_in_two_ledgers_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidValue, match="two ledgers"):
        Federation.from_ledger([ledger, ledger], Disjoint(), ADD_OR_REMOVE)


@pytest.mark.parametrize("membership", [Disjoint(), AtMost(2)])
def test_delta_never_grows_with_epsilon_even_where_renyi_takes_over(membership: Membership) -> None:
    federation = Federation({"a": [sampled(0.01, 1.0, 500)], "b": [sampled(0.01, 1.1, 500)]}, membership, ADD_OR_REMOVE)
    guarantees = [federation.guarantee(epsilon=2.0 + 0.25 * step) for step in range(14)]
    deltas = [guarantee.delta for guarantee in guarantees]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] > 1e-9 > deltas[-1]
    assert all(one.upper_bound for one in guarantees if one.delta <= 1e-9)
