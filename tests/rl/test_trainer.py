"""The trainer: it learns, repeats itself bit for bit, goes on where it was killed, and says what is damaged."""

from pathlib import Path
from typing import Any

import pytest

from harness.adapters import FILES, named
from harness.errors import StoreError, UsageError
from rl.dataset import Row
from rl.recipe import Point, Recipe, training
from tests.rl.toys import rows, weights

RECIPE = Recipe(rank=2, alpha=4, rate=0.05, steps=12, batch=4, every=2)


class Killed(Exception):
    """The process died after a step."""


def train(folder: Path, *, recipe: Recipe = RECIPE, some: list[Row] | None = None, dies_at: int = 0, **more: Any) -> Any:
    from rl.trainer import train as real

    def on(point: Point) -> None:
        if point.step == dies_at:
            raise Killed

    taught = rows(20) if some is None else some
    return real(weights(), taught, recipe, work=folder / "work", adapters=folder / "adapters", on=on, **more)


def test_the_loss_falls_and_the_kept_step_is_the_best_of_the_held_out_ones(tmp_path: Path) -> None:
    made = train(tmp_path)
    assert made.curve[-1].loss < made.curve[0].loss - 0.3
    assert [point.step for point in made.curve] == list(range(1, 13))
    assert [point.step for point in made.held] == [2, 4, 6, 8, 10, 12]
    assert made.kept == min(made.held, key=lambda point: point.loss).step
    assert named(tmp_path / "adapters" / made.adapter) == made.adapter


def test_killed_after_any_step_it_ends_in_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    for step in range(1, 13):
        folder = tmp_path / str(step)
        with pytest.raises(Killed):
            train(folder, dies_at=step)
        again = train(folder)
        assert (again.adapter, again.curve, again.held) == (whole.adapter, whole.curve, whole.held)


def test_killed_again_and_again_it_repeats_no_finished_part(tmp_path: Path) -> None:
    seen: list[int] = []
    for dies_at in (3, 5, 8):
        with pytest.raises(Killed):
            train(tmp_path, dies_at=dies_at)
    from rl.trainer import train as real

    real(
        weights(), rows(20), RECIPE, work=tmp_path / "work", adapters=tmp_path / "adapters",
        on=lambda point: seen.append(point.step),
    )  # fmt: skip
    assert seen == [7, 8, 9, 10, 11, 12]


def test_a_training_that_ended_and_was_not_recorded_is_only_published_again(tmp_path: Path) -> None:
    first = train(tmp_path)
    assert train(tmp_path, dies_at=12) == first.replace(seconds=first.seconds)


@pytest.mark.parametrize("damage", ["cut", "changed", "no facts"])
def test_a_damaged_checkpoint_is_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    with pytest.raises(Killed):
        train(tmp_path, dies_at=5)
    [tensors] = (tmp_path / "work").glob("*/step-*/tensors.safetensors")
    data = tensors.read_bytes()
    match damage:
        case "cut":
            tensors.write_bytes(data[: len(data) // 2])
        case "changed":
            tensors.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case _:
            (tensors.parent / "state.json").write_text("{")
    with pytest.raises(StoreError, match=r"damaged.*rm -r .*step-000004"):
        train(tmp_path)


def test_a_full_disk_is_said_and_training_goes_on_when_there_is_space(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    whole = train(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tmp_path, dies_at=5)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StoreError, match=r"could not be written.*Free some space"):
            train(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "adapters").exists() or not list((tmp_path / "adapters").iterdir())
    assert train(tmp_path).adapter == whole.adapter


def test_a_half_written_checkpoint_is_never_looked_at(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tmp_path, dies_at=5)
    [folder] = (tmp_path / "work").iterdir()
    (folder / ".making-1").mkdir()
    (folder / ".making-1" / "tensors.safetensors").write_bytes(b"half")
    assert train(tmp_path).adapter == whole.adapter


def test_training_goes_on_from_a_parent(tmp_path: Path) -> None:
    first = train(tmp_path)
    parent = tmp_path / "adapters" / first.adapter
    second = train(tmp_path, parent=parent)
    assert second.adapter != first.adapter
    assert second.curve[0].loss < first.curve[0].loss - 0.3
    with pytest.raises(UsageError, match=r"rank 2 and alpha 4, the recipe 3"):
        train(tmp_path, parent=parent, recipe=RECIPE.replace(rank=3))


def test_rows_that_teach_nothing_are_refused(tmp_path: Path) -> None:
    mute = [row.replace(mask=(False,) * len(row.ids)) for row in rows(5)]
    with pytest.raises(UsageError, match="nothing to learn"):
        train(tmp_path, some=mute)
    with pytest.raises(UsageError, match="nothing to learn"):
        train(tmp_path, some=[])


def test_an_adapter_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    made = train(tmp_path)
    assert [path.name for path in (tmp_path / "adapters").iterdir()] == [made.adapter]
    assert sorted(path.name for path in (tmp_path / "adapters" / made.adapter).iterdir()) == sorted(FILES)


def test_a_training_is_named_by_all_that_decides_its_weights() -> None:
    some = rows(4)
    name = training(RECIPE, some, "base")
    assert training(RECIPE, [row.replace(run="other") for row in some], "base") == name
    others = [
        training(RECIPE.replace(seed=1), some, "base"), training(RECIPE, some[:3], "base"), training(RECIPE, some, "other"),
        training(RECIPE, some, "base", "parent"), training(RECIPE, some[::-1], "base"),
    ]  # fmt: skip
    assert len({name, *others}) == 6
