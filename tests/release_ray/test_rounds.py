"""The rounds that were planned, as a file."""

from release_ray.core.round_map import RoundMap
from release_ray.events import RoundPlanned, Stage
from release_ray.rounds import FILE, Rounds, read_rounds


def planned(number, drawn=None):
    return RoundPlanned("conv", number, 8, 1, 3, 0.123456, {"loss": 0.5}, drawn)


def test_a_line_a_round_and_nothing_of_other_events(tmp_path):
    rounds = Rounds(tmp_path)
    rounds(Stage("loading"))
    assert list(read_rounds(tmp_path)) == []
    rounds(planned(0))
    rounds(planned(1, RoundMap(((0.0, 1.0, 0.5, 2),), ((1.0, 2.0),))))
    first, second = read_rounds(tmp_path)
    assert first == {
        "task": "conv",
        "round": 0,
        "candidates": 8,
        "refused": 1,
        "clusters": 3,
        "search_cpu_s": 0.1235,
        "metrics": {"loss": 0.5},
    }
    assert second["map"] == {"candidates": [[0.0, 1.0, 0.5, 2]], "chosen": [[1.0, 2.0]]}


def test_a_later_run_goes_on_and_a_fresh_one_begins_anew(tmp_path):
    Rounds(tmp_path)(planned(0))
    Rounds(tmp_path)(planned(1))
    assert [entry["round"] for entry in read_rounds(tmp_path)] == [0, 1]
    fresh = Rounds(tmp_path, fresh=True)
    assert len(list(read_rounds(tmp_path))) == 2
    fresh(planned(0))
    fresh(planned(1))
    assert [entry["round"] for entry in read_rounds(tmp_path)] == [0, 1]


def test_torn_lines_are_left_out_and_a_file_that_cannot_be_written_stops_nothing(tmp_path):
    Rounds(tmp_path)(planned(0))
    with (tmp_path / FILE).open("a") as file:
        file.write('[1]\n{"task": "conv", "rou')
    assert [entry["round"] for entry in read_rounds(tmp_path)] == [0]
    Rounds(tmp_path)(planned(1))
    assert [entry["round"] for entry in read_rounds(tmp_path)] == [0, 1]
    Rounds(tmp_path / "missing")(planned(0))


def test_simulated_rounds_are_apart(tmp_path):
    Rounds(tmp_path)(planned(0))
    Rounds(tmp_path, simulated=True, fresh=True)(planned(7))
    assert [entry["round"] for entry in read_rounds(tmp_path)] == [0]
    assert [entry["round"] for entry in read_rounds(tmp_path, simulated=True)] == [7]
