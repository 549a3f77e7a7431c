"""One file that runs without this library: the same numbers as `predict_at`, in two runtimes."""

import hashlib
import json

import pytest
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv.calibration import Intervals, Sets, Spread, Temperature
from bayesdiv.export import Exported
from bayesdiv.outliers import Threshold, mutual_information
from bayesdiv.serving import files
from bayesdiv.serving.graph import Category, Number, Rounded, Units
from serving.running import assert_equal, expected, runner

SUFFIXES = (".pt2", ".onnx")
OFFSET = 500_000_037.0  # no number of single precision
# The search for quantiles makes a graph that takes long to become ONNX.
SLOW = (".pt2", pytest.param(".onnx", marks=pytest.mark.slow))
COLUMNS = (Number("when", 1.7e9, 1e3, unit="s"), Category("colour", ("red", "green", "blue")))


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.SiLU(), nn.Linear(16, outputs))


def bayesian(inputs: int, outputs: int) -> bd.Bayesian:
    torch.manual_seed(0)
    return bd.bayesianize(network(inputs, outputs), bd.FanIn(), start=0.3)


class Files:
    """A model with its draws and calibration; a file of each kind is written when it is needed."""

    def __init__(self, net, likelihood, example, calibration, weights, folder, **named):
        self.net, self.likelihood, self.weights = net, likelihood, weights
        self.calibration, self.folder = calibration, folder
        self.made, self.runners = {}, {}
        self.named = {"example": example, **named}

    def __getitem__(self, suffix: str) -> Exported:
        if suffix not in self.made:
            self.made[suffix] = bd.export(
                self.net,
                self.likelihood,
                path=self.folder / f"net{suffix}",
                calibration=self.calibration,
                weights=self.weights,
                **self.named,
            )
        return self.made[suffix]

    def run(self, suffix: str, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if suffix not in self.runners:
            self.runners[suffix] = runner(self[suffix].path)
        return self.runners[suffix](x)

    def predictive(self, x):
        return bd.predict_at(self.net, self.likelihood, x, self.weights)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A model of raw columns with conformal intervals and a threshold."""
    net, likelihood, folder = bayesian(4, 2), bd.HeteroscedasticGaussian(), tmp_path_factory
    weights, held, y = bd.draw_weights(net, 3), torch.randn(50, 4), torch.randn(50)
    predictive = bd.predict_at(net, likelihood, held, weights)
    intervals = Intervals.fit(predictive, y, level=0.8)
    calibration = (intervals, Threshold.fit(mutual_information(predictive)))
    units = Units(OFFSET, 10.0, "m")
    place = folder.mktemp("table")
    return Files(
        net, likelihood, held, calibration, weights, place, columns=COLUMNS, units=units
    )  # fmt: skip


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """A model with a temperature and sets."""
    net, likelihood, folder = bayesian(3, 4), bd.Classes(), tmp_path_factory.mktemp("classes")
    weights, held, y = bd.draw_weights(net, 3), torch.randn(60, 3), torch.randint(4, (60,))
    cooler = Temperature.fit(bd.predict_at(net, likelihood, held, weights), y)
    sets = Sets.fit(cooler(bd.predict_at(net, likelihood, held, weights)), y, share=1.0)
    return Files(net, likelihood, held[:1], (cooler, sets), weights, folder, classes=list("abcd"))


def raw_and_encoded(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    when = 1.7e9 + 1e3 * torch.randn(rows, dtype=torch.float64)
    colour = torch.randint(3, (rows,))
    standard = ((when - 1.7e9) / 1e3).float()
    hot = nn.functional.one_hot(colour, 3).float()
    return torch.stack([when, colour.double()], 1), torch.cat([standard[:, None], hot], 1)


@pytest.mark.parametrize("suffix", SLOW)
@pytest.mark.parametrize("rows", [1, 7, 512])
def test_raw_columns_give_what_predict_at_gives_in_the_units_of_the_target(table, suffix, rows):
    intervals, limit = table.calibration
    raw, x = raw_and_encoded(rows)
    predictive = table.predictive(x)
    wanted = expected(predictive)
    low, high = intervals(predictive)
    wanted |= {"conformal_low": low, "conformal_high": high}
    found = table.run(suffix, raw)
    assert set(found) == {*wanted, "unusual"}
    for name in ("mean", "low", "high", "conformal_low", "conformal_high"):
        # OFFSET + 10 y keeps seven digits of y in double precision, and none in single.
        found[name] = (found[name] - OFFSET) / 10
    found["scale"] = found["scale"] / 10
    found |= {name: found[name] / 100 for name in ("epistemic", "aleatoric")}
    assert_equal(found, wanted, 1e-5)
    assert torch.equal(found["unusual"], limit.flags(found["outlier_score"]))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [1, 7, 512])
def test_classes_give_what_predict_at_gives(classes, suffix, rows):
    cooler, sets = classes.calibration
    x = torch.randn(rows, 3)
    predictive = cooler(classes.predictive(x))
    found = classes.run(suffix, x)
    assert_equal(found, expected(predictive), 1e-5)
    assert (found["conformal_set"] != sets(predictive)).float().mean() < 0.01  # but for ties


@pytest.mark.parametrize("suffix", SLOW)
def test_rows_that_cannot_be_encoded_get_nan_and_leave_the_others_alone(table, suffix):
    raw, _ = raw_and_encoded(5)
    wrong = raw.clone()
    wrong[1, 1], wrong[2, 1], wrong[3, 0] = 3.0, 0.5, torch.inf
    before, after = table.run(suffix, raw), table.run(suffix, wrong)
    for name in ("mean", "low", "scale", "outlier_score"):
        assert after[name].isnan().tolist() == [False, True, True, True, False]
        assert torch.equal(after[name][[0, 4]], before[name][[0, 4]])


def test_metadata_describe_inputs_columns_units_and_weights(table):
    extra = {"bayesdiv.json": ""}
    torch.export.load(table[".pt2"].path, extra_files=extra)
    told = json.loads(extra["bayesdiv.json"])
    assert told == table[".pt2"].metadata
    assert told["bayesdiv"] == bd.__version__
    assert told["inputs"] == {"columns": {"shape": ["rows", 2], "dtype": "float64"}}
    assert told["columns"][1]["categories"] == ["red", "green", "blue"]
    assert told["target"] == {"loc": OFFSET, "scale": 10.0, "name": "m"}
    assert told["calibration"] == [saved.state() for saved in table.calibration]
    assert len(told["weights_sha256"]) == 64


def test_an_onnx_file_holds_the_same_metadata(classes):
    import onnxruntime

    session = onnxruntime.InferenceSession(classes[".onnx"].path)
    told = json.loads(session.get_modelmeta().custom_metadata_map["bayesdiv"])
    assert told == classes[".onnx"].metadata
    assert told["weights_sha256"] == classes[".pt2"].metadata["weights_sha256"]
    assert told["classes"] == list("abcd")


def test_the_checksum_is_that_of_the_tensors_in_the_file(classes):
    found = hashlib.sha256()
    for name, tensor in sorted(torch.export.load(classes[".pt2"].path).state_dict.items()):
        found.update(name.encode())
        found.update(tensor.detach().numpy().tobytes())
    assert found.hexdigest() == classes[".pt2"].metadata["weights_sha256"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"path": "net.txt"}, r"path must end in .onnx or .pt2, got net.txt"),
        ({"level": 1.0}, r"level must lie inside \(0, 1\), got 1.0"),
        ({"columns": COLUMNS[1:]}, r"columns fill 3 inputs of the network, got an example of"),
        ({"example": "rows"}, r"example must be a tensor"),
        ({"calibration": (Sets(0.9, None, torch.ones(1)),)}, r"fit them with share=1.0"),
        ({"calibration": (Sets(0.9, 1.0, torch.ones(2)),)}, r"one threshold for all rows, got 2"),
        ({"calibration": ("spread",)}, r"calibration must hold what"),
        ({"weights": (torch.full((2, 114), torch.nan),)}, r"weights must be finite, got draws"),
        ({"weights": (torch.zeros(2, 3, 114),)}, r"one network, got a stack of trials"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_sentence(changes, sentence):
    given = {"example": torch.zeros(1, 4), "path": "net.pt2", **changes}
    with pytest.raises((ValueError, TypeError), match=sentence):
        bd.export(bayesian(4, 2), bd.Classes(), **given)


def test_a_named_input_of_the_network_may_come_from_raw_columns(tmp_path):
    net = bd.bayesianize(nn.Linear(2, 1), bd.FanIn())
    kept = bd.draw_weights(net, 2)
    example = {"input": torch.zeros(2, 2)}
    columns = [Number("a", loc=1.0), Number("b", scale=2.0)]
    path = tmp_path / "net.pt2"
    bd.export(net, bd.Gaussian(), example, path, columns=columns, weights=kept)
    raw = torch.tensor([[3.0, 4.0], [1.0, 0.0]], dtype=torch.float64)
    found = torch.export.load(path).module()(raw)["mean"]
    wanted = bd.predict_at(net, bd.Gaussian(), torch.tensor([[2.0, 2.0], [0.0, 0.0]]), kept).mean
    assert torch.allclose(found, wanted.double(), atol=1e-6)


@pytest.mark.parametrize("inside", [False, True])
def test_a_network_with_one_posterior_per_tensor_is_exported(inside, tmp_path):
    net = bd.bayesianize(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), bd.FanIn(), by=str)
    net = nn.Sequential(nn.Linear(3, 3), net, nn.Linear(4, 1)) if inside else net
    likelihood, x, kept = bd.Gaussian(), torch.randn(5, 3), bd.draw_weights(net, 2)
    bd.export(net, likelihood, x, tmp_path / "net.pt2", weights=kept)
    found = torch.export.load(tmp_path / "net.pt2").module()(x)["mean"]
    wanted = bd.predict_at(net, likelihood, x, kept).mean
    assert torch.allclose(found, wanted.double(), atol=1e-6)


def test_a_spread_moves_the_draws_of_a_file(tmp_path):
    net, path, x = bayesian(3, 2), tmp_path / "net.pt2", torch.randn(5, 3)
    made = bd.export(net, bd.Classes(), x, path, samples=3, calibration=[Spread(0.0)])
    found = runner(made.path)(x)
    with bd.at_mean(net):
        wanted = net(x).softmax(-1)
    assert torch.allclose(found["probabilities"], wanted, atol=1e-6)
    assert found["epistemic"].abs().max() < 1e-12
    assert made.metadata["calibration"] == [{"kind": "Spread", "factor": 0.0}]


class Traced(Exception):
    """What comes after the look at the size."""


@pytest.mark.parametrize(
    ("precision", "each"),
    [
        (None, 4 * 114),
        (Rounded(torch.float16), 2 * 114),
        (Rounded(torch.int8), 96 + 4 * 18 + 4 * 18),
    ],
    ids=["float32", "float16", "int8"],  # 8 bits of each weight, with 18 scales and 18 biases
)
def test_as_much_as_one_onnx_file_holds_is_written_and_one_byte_more_refused(
    monkeypatch, tmp_path, precision, each
):
    def traced(*_):
        raise Traced

    monkeypatch.setattr(files, "traced", traced)
    size, path = 7 * each + 16, tmp_path / "net.onnx"  # draws, and two doubles of the units
    given = (bayesian(4, 2), bd.Classes(), torch.zeros(1, 4))
    monkeypatch.setattr(files, "LARGEST_ONNX", size)
    with pytest.raises(Traced):
        bd.export(*given, path, samples=7, precision=precision)
    monkeypatch.setattr(files, "LARGEST_ONNX", size - 1)
    with pytest.raises(
        ValueError, match=r"at most 2 GB, got .* precision=Rounded\(torch.int8\) or fewer"
    ):
        bd.export(*given, path, samples=7, precision=precision)
    with pytest.raises(Traced):
        bd.export(*given, path.with_suffix(".pt2"), samples=7, precision=precision)
    assert not list(tmp_path.iterdir())


def test_all_but_the_weights_of_an_onnx_file_has_room_beside_them(classes):
    weights = sum(drawn.nbytes for drawn in classes.weights)
    assert weights < classes[".onnx"].size < weights + files.ROOM
    assert files.LARGEST_ONNX + files.ROOM == 2**31  # what a message of protobuf may have


@pytest.mark.slow
def test_more_than_two_gigabytes_of_draws_are_refused(tmp_path):
    net = bd.bayesianize(nn.Linear(1000, 1000, bias=False), bd.FanIn())
    weights = (torch.randn(1, 10**6).expand(540, 10**6),)
    with pytest.raises(ValueError, match=r"holds at most 2 GB, got 2\.2 GB of weights"):
        bd.export(net, bd.Classes(), torch.zeros(1, 1000), tmp_path / "n.onnx", weights=weights)


def test_without_the_extra_a_sentence_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr("bayesdiv.serving.files.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bayesdiv\[export\]', or write a"):
        bd.export(bayesian(4, 2), bd.Classes(), torch.zeros(1, 4), tmp_path / "net.onnx", 1)
