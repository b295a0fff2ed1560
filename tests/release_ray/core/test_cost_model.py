import numpy as np

from release_ray.core.cost_model import CostModel
from release_ray.core.settings import CostModelSettings


def _data(count, seed):
    features = np.random.default_rng(seed).random((count, 5)).astype(np.float32)
    return features, 1 - (features[:, 0] - 0.3) ** 2


def test_it_ranks_unseen_configurations():
    model = CostModel(CostModelSettings())
    model.fit(*_data(200, 0))
    features, fitness = _data(200, 1)
    assert np.corrcoef(model.predict(features), fitness)[0, 1] > 0.9


def test_it_predicts_nothing_before_it_has_learnt():
    assert CostModel(CostModelSettings()).predict(np.ones((3, 5), np.float32)).tolist() == [0, 0, 0]


def test_the_same_data_and_seed_give_the_same_predictions():
    features, fitness = _data(64, 0)
    first, second = CostModel(CostModelSettings(), seed=3), CostModel(CostModelSettings(), seed=3)
    first.fit(features, fitness)
    second.fit(features, fitness)
    np.testing.assert_array_equal(first.predict(features), second.predict(features))


def test_saved_trees_are_a_model_file(tmp_path):
    import xgboost

    model = CostModel(CostModelSettings())
    model.save(tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()
    features, fitness = _data(64, 0)
    model.fit(features, fitness)
    model.save(tmp_path / "model.json")
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    np.testing.assert_allclose(booster.inplace_predict(features), model.predict(features))
