"""Reports of sweeps: every number of the headline by another route, a page that stands alone, and odd results."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_sweep import DELTA, ROUNDS, federation, make_sweep

from accounting import Relation, epsilon
from scenarios import load, run
from scenarios._errors import RunError
from scenarios.reports._study import read_studies
from scenarios.reports._sweep_plots import frontier, looks
from scenarios.reports._sweep_report import sections_of, write_report
from scenarios.sweeps._table import ROWS

EPSILONS = (0.5, 2.0)
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


class Page(HTMLParser):
    """A strict reader: every element is closed where it should be, no id occurs twice, nothing is loaded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.feed(path.read_text("utf-8"))
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "img", "object")
        self.links += [str(value) for name, value in attrs if name in ("href", "src", "xlink:href", "srcset")]
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def text_of(page: Path) -> str:
    """What a reader sees, on one line."""
    return " ".join(Page(page).text.split())


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame, str]:
    """A sweep, its results, and the text of its report."""
    folder = tmp_path_factory.mktemp("made") / "sweep"
    results = make_sweep(folder, epsilons=EPSILONS)
    return folder, results, text_of(write_report([folder], folder / "report"))


def kept(results: pd.DataFrame, method: str, at: float) -> np.ndarray:
    """Each seed's part of the gap, from the table alone."""
    whole = results[results["silo"] == "all"].pivot_table(index="seed", columns=["method", "epsilon"], values="auc")
    floor, ceiling = whole["majority", np.inf], whole["no-privacy", np.inf]
    return ((whole[method, at] - floor) / (ceiling - floor)).to_numpy()


def test_the_headlines_numbers_are_those_of_the_table(swept: tuple[Path, pd.DataFrame, str]) -> None:
    _, results, text = swept
    parts = {method: kept(results, method, 2.0) for method in ("fedavg", "fedavgm", "alone", "pooled")}
    assert parts["fedavg"].mean() > max(0.9, parts["fedavgm"].mean())
    assert max(kept(results, "fedavg", 0.5).mean(), kept(results, "fedavgm", 0.5).mean()) < 0.9
    said = re.search(
        r"At epsilon 2, fedavg keeps (\d+)% of the non-private gain \((\d+)% to (\d+)%\); alone, silos keep (\d+)%; "
        r"all data pooled with one trusted trainer would keep (\d+)%\.",
        text,
    )
    assert said is not None
    mean, low, high, alone, pooled = map(int, said.groups())
    assert mean == round(100 * parts["fedavg"].mean())
    assert (alone, pooled) == (round(100 * parts["alone"].mean()), round(100 * parts["pooled"].mean()))
    # The expanded interval of five values is near their range, and within it.
    assert 100 * parts["fedavg"].min() - 0.6 <= low < mean < high <= 100 * parts["fedavg"].max() + 0.6
    assert high - low > 0.6 * 100 * np.ptp(parts["fedavg"]) - 1


def test_the_gain_is_explained_by_its_ends(swept: tuple[Path, pd.DataFrame, str]) -> None:
    _, results, text = swept
    ends = results[results["silo"] == "all"].groupby("method")["auc"].mean()
    assert f"from AUC {ends['majority']:.4g} by predicting the majority to {ends['no-privacy']:.4g}" in text


def test_who_gains_is_counted_silo_by_silo(swept: tuple[Path, pd.DataFrame, str]) -> None:
    _, results, text = swept
    at = results[(results["epsilon"] == 2.0) & (results["silo"] != "all")]
    means = at.pivot_table(index="silo", columns="method", values="auc")
    gaining = int((means["fedavg"] > means["alone"]).sum())
    assert f"{gaining} of 4 silos do better with the others than alone" in text


def test_selection_costs_all_runs_of_the_worst_silo(swept: tuple[Path, pd.DataFrame, str]) -> None:
    folder, _, text = swept
    assert "fedavg is named because it was the best of 2 methods at this epsilon" in text
    laws = {"fedavg": [], "fedavgm": [], "alone": []}
    for path in sorted((folder / "runs").glob("*")):
        if (method := path.name.partition("-")[0]) in laws and (path / "ledger.db").exists():
            laws[method] += [release.mechanism for release in federation(path).releases()["South"]]
    assert len(laws["fedavg"]) == len(EPSILONS) * 5 * ROUNDS
    federated = epsilon([*laws["fedavg"], *laws["fedavgm"]], relation=Relation.ZERO_OUT, delta=DELTA).epsilon
    with_alone = epsilon(
        [*laws["fedavg"], *laws["fedavgm"], *laws["alone"]], relation=Relation.ZERO_OUT, delta=DELTA
    ).epsilon
    costs = [float(each) for each in re.findall(r"cost epsilon ([\d.]+\d)", text)]
    assert costs == pytest.approx([federated, with_alone], rel=1e-2)
    assert costs[0] >= federated
    assert costs[1] >= with_alone
    assert "the server saw all 20 private runs of the federation" in text
    assert "all 20 runs" in pd.read_csv(folder / "report" / "budget.csv")["part"].tolist()


def test_the_single_runs_guarantee_is_labelled_as_such(swept: tuple[Path, pd.DataFrame, str]) -> None:
    folder, _, text = swept
    told = json.loads((folder / "runs" / "fedavg-epsilon=2-seed=1" / "guarantee.json").read_text())
    assert f"By one run alone, chosen in advance {told['sentence']}" in text
    spent = pd.read_csv(folder / "report" / "budget.csv").set_index("part")["epsilon"]
    assert spent["training"] == pytest.approx(told["epsilon"], rel=1e-9)
    assert spent["one run, all parts"] == told["epsilon"]


def test_the_report_says_that_baselines_and_the_page_itself_are_covered_by_nothing(
    swept: tuple[Path, pd.DataFrame, str],
) -> None:
    assert "The runs of no-privacy, pooled, majority are for comparison only" in swept[2]
    assert "over private data this page itself is a release that no guarantee here covers" in swept[2]


def test_the_page_stands_alone_and_its_pictures_are_files_too(swept: tuple[Path, pd.DataFrame, str]) -> None:
    folder = swept[0] / "report"
    page = Page(folder / "report.html")
    assert all(link.startswith(("#", "data:,")) for link in page.links)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", (folder / "report.html").read_text("utf-8"))
    for name in ("frontier", "silos", "rounds", "budget"):
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (folder / f"{name}.svg").read_text("utf-8")
        assert len(pd.read_csv(folder / f"{name}.csv")) > 1


def test_pictures_are_the_same_bytes_each_time(swept: tuple[Path, pd.DataFrame, str]) -> None:
    (section,) = sections_of([swept[0]])
    budget = section.pictures[-1]
    assert all((swept[0] / "report" / name).read_bytes() == content for name, content in budget.files().items())
    assert str(budget.inline()) in (swept[0] / "report" / "report.html").read_text("utf-8")


def test_one_seed_has_no_interval_and_says_so(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", seeds=1, epsilons=[2.0], strategies=["fedavg"], baselines=["majority", "no-privacy"])
    (section,) = sections_of([tmp_path / "sweep"])
    assert re.fullmatch(r"At epsilon 2, fedavg keeps \d+% of the non-private gain\.", section.words.headline)
    assert any("There is one seed: no interval" in line for line in section.words.warnings)
    assert section.selection[0].startswith("The server saw one run")


def test_runs_that_diverged_failed_or_did_not_end_are_told_and_not_averaged(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    make_sweep(folder, seeds=3, epsilons=[2.0], strategies=["fedavg"], baselines=["majority", "no-privacy"])
    runs = folder / "runs"
    diverged = runs / "fedavg-epsilon=2-seed=1" / ROWS
    pd.read_parquet(diverged).assign(auc=np.nan).to_parquet(diverged, index=False)
    (runs / "fedavg-epsilon=2-seed=2" / "failures.csv").write_text("round,silo,reason\n1,South,away\n3,West,crash\n")
    (runs / "fedavg-epsilon=2-seed=3" / ROWS).unlink()
    (folder / "failures.csv").write_text("run,reason\nfedavg-epsilon=2-seed=3,no room\n")
    (section,) = sections_of([folder])
    told = " ".join((*section.words.warnings, *section.selection))
    assert "1 of 8 runs have no AUC" in told
    assert "2 times a silo failed in a round" in told
    assert "1 runs of the sweep failed" in told
    assert "1 runs did not end" in told
    assert "the server saw all 3 private runs" in told
    row = section.table.set_index("label").loc["fedavg"]
    assert row["auc"] == pd.read_parquet(runs / "fedavg-epsilon=2-seed=2" / ROWS)["auc"][0]
    assert (row["seeds"], row["lost"], row["failed"]) == (1, 1, 2)


def test_a_regression_is_judged_by_r2(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", seeds=2, epsilons=[2.0], strategies=["fedavg"], metric="r2")
    (section,) = sections_of([tmp_path / "sweep"])
    assert section.pictures[0].title == "R² against epsilon"
    assert "from R² 0.503 by predicting the mean to" in section.words.meaning
    assert {"R²", "RMSE"} <= set(section.columns)
    assert "calibration error" not in section.columns
    assert "(range of seeds 9" in section.words.headline


def test_a_method_that_is_worse_than_the_mean_keeps_nothing_and_squeezes_no_picture(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", seeds=1, epsilons=[2.0], strategies=["fedavg"], metric="r2")
    alone = tmp_path / "sweep" / "runs" / "alone-epsilon=2-seed=1" / ROWS
    pd.read_parquet(alone).assign(r2=-1e5).to_parquet(alone, index=False)
    (section,) = sections_of([tmp_path / "sweep"])
    assert "alone, silos keep nothing of it;" in section.words.headline

    rows = [("fedavg", 0.16), ("alone", -1e5), ("majority", 0.0), ("no-privacy", 0.17)]
    table = pd.DataFrame([(name, name, 2.0, value, value, value) for name, value in rows])
    table.columns = ["label", "method", "epsilon", "r2", "r2_low", "r2_high"]
    axes = frontier(table, "r2", looks(["fedavg", "alone"]), narrow=False).axes[0]
    assert -1 < axes.get_ylim()[0] < 0
    assert 0.17 < axes.get_ylim()[1] < 1


def test_names_of_many_silos_are_whole_in_the_table(tmp_path: Path) -> None:
    names = [f"Regional hospital & clinics <{number}> of the northern counties" for number in range(20)]
    make_sweep(tmp_path / "sweep", seeds=1, epsilons=[2.0], strategies=["fedavg"], baselines=["alone"], silos=names)
    (section,) = sections_of([tmp_path / "sweep"])
    assert {row[0] for row in section.silo_rows} == set(names)
    assert "Without runs of both no privacy and majority there is no gain" in section.words.meaning
    assert re.fullmatch(
        r"At epsilon 2, fedavg reaches AUC 0\.\d+; alone, silos reach AUC 0\.\d+\.", section.words.headline
    )
    shown = section.pictures[1].inline()
    assert "Regional hospital" not in shown
    assert "silo Region" in shown


def test_one_silo_is_a_federation(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", seeds=1, epsilons=[2.0], strategies=["fedavg"], silos=["only"])
    (section,) = sections_of([tmp_path / "sweep"])
    assert section.study.counted().startswith("1 silo, ")
    assert "silos" not in {picture.name for picture in section.pictures}


def test_silos_dealt_by_the_seed_are_not_averaged_over_seeds(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", seeds=2, epsilons=[2.0], strategies=["fedavg"], scenario="digits-dirichlet")
    (section,) = sections_of([tmp_path / "sweep"])
    assert len(section.silo_rows) == 8
    assert "West, seed 2" in {row[0] for row in section.silo_rows}


def test_runs_over_the_same_data_share_a_price_and_others_do_not(
    scenario_file: Path, tmp_path: Path, swept: tuple[Path, pd.DataFrame, str]
) -> None:
    for seed in (3, 9):
        run(load(scenario_file, ["training.rounds=2"], seed=seed), out=tmp_path / str(seed))
    first, second, third = sections_of([swept[0], tmp_path / "3", tmp_path / "9"])
    assert (first.together.runs, second.together.runs, third.together.runs) == (20, 2, 2)
    assert second.together.guarantee == third.together.guarantee
    assert "all 2 private runs of the federation, 1 of them in other parts of this page" in second.selection[0]
    assert [picture.name for picture in second.pictures] == ["2-silos", "2-rounds", "2-budget"]
    assert second.words.headline.startswith("At epsilon 2, fedavg reaches AUC 0.")


def test_runs_without_noise_stand_at_infinity_and_are_in_no_price(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", seeds=2, epsilons=[2.0, np.inf], strategies=["fedavg"], baselines=["majority"])
    (section,) = sections_of([tmp_path / "sweep"])
    assert section.together.runs == 2
    assert section.together.guarantee is not None
    assert np.isfinite(section.together.guarantee.epsilon)
    assert "The runs of majority, epsilon = ∞ are for comparison only" in section.comparisons
    # The only strategy's own runs at infinity are what no privacy gains.
    assert section.words.headline.startswith("At epsilon 2, fedavg keeps 9")
    assert "∞" in section.pictures[0].inline()


def test_settings_that_were_swept_tell_methods_apart(tmp_path: Path) -> None:
    make_sweep(
        tmp_path / "sweep", seeds=1, epsilons=[2.0], strategies=["fedavg"], over={"training.local_steps": [1, 5]}
    )
    (section,) = sections_of([tmp_path / "sweep"])
    assert set(section.table["label"]) == {
        f"{method}, local steps {steps}"
        for method in ("fedavg", "no-privacy", "alone", "pooled", "majority")
        for steps in (1, 5)
    }
    assert section.table["utility"].notna().all()
    assert "the best of 2 methods" in section.selection[0]


def test_folders_without_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="neither a sweep nor a run"):
        write_report([tmp_path / "empty"], tmp_path / "report")
    make_sweep(tmp_path / "sweep", seeds=1, epsilons=[2.0], strategies=["fedavg"], baselines=[])
    for rows in (tmp_path / "sweep").glob(f"runs/*/{ROWS}"):
        rows.unlink()
    with pytest.raises(RunError, match="no run of the sweep is done"):
        write_report([tmp_path / "sweep"], tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("name", [ROWS, "metrics.csv", "guarantee.json", "timings.json", "failures.csv"])
@pytest.mark.parametrize("content", [b"", b"{", b"{}"])
def test_a_damaged_file_of_a_run_is_told_by_its_path(name: str, content: bytes, tmp_path: Path) -> None:
    make_sweep(tmp_path / "made", strategies=("fedavg",), baselines=(), epsilons=(2.0,), seeds=1, silos=("a", "b"))
    (path,) = (tmp_path / "made" / "runs").iterdir()
    if name.endswith(".csv") and content:
        content = b"\xff\xfe"
    (path / name).write_bytes(content)

    def look() -> None:
        (study,) = read_studies([tmp_path / "made"])
        _ = study.runs, study.failures(path.name), study.by_round(path.name), study.guarantee(path.name)

    with pytest.raises(RunError, match=re.escape(str(path / name))):
        look()


@pytest.mark.parametrize("name", ["scenario.toml", "metrics.csv", "guarantee.json"])
def test_a_damaged_file_of_a_single_run_is_told_by_its_path(name: str, tmp_path: Path, scenario_file: Path) -> None:
    run(load(scenario_file, ["training.rounds=1"]), out=tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(b"")
    with pytest.raises(RunError, match=re.escape(str(tmp_path / "run" / name))):
        read_studies([tmp_path / "run"])
