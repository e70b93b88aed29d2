"""What a stopped run finds when it is started again."""

import numpy as np
import pytest

from experiments.frame import kept


def test_what_was_kept_comes_back_for_the_same_settings_only(tmp_path):
  path, settings = tmp_path / "kept" / "a-0", {"steps": 3, "sizes": (1, 2)}
  assert kept.restore(path, settings) is None
  arrays = {"C2, GSP": np.arange(3.0), "a/b": np.zeros((0, 2), np.int32)}
  done = kept.Finished({"MAP@R": 0.5, "curve": [1.0, 2.0]}, arrays)
  kept.keep(path, settings, done)
  found = kept.restore(path, settings)
  assert found is not None
  assert found.figures == done.figures
  assert set(found.arrays) == set(arrays)
  for name, array in arrays.items():
    np.testing.assert_array_equal(found.arrays[name], array)
  assert kept.restore(path, settings | {"steps": 4}) is None


def test_arrays_without_their_other_half_do_not_count(tmp_path, monkeypatch):
  path = tmp_path / "a"
  kept.keep(path, {"steps": 1}, kept.Finished({"x": 1}, {}))

  def killed(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(kept.results, "write_json", killed)
  with pytest.raises(KeyboardInterrupt):
    kept.keep(path, {"steps": 2}, kept.Finished({"x": 2}, {}))
  assert kept.restore(path, {"steps": 1}) is None
  assert kept.restore(path, {"steps": 2}) is None


def test_a_fingerprint_depends_on_values_shapes_and_types():
  x = np.arange(6.0)
  others = [x + 1, x.reshape(2, 3), x.astype("f"), np.zeros(0)]
  found = [kept.fingerprint([array]) for array in (x, *others)]
  found += [kept.fingerprint(pair) for pair in ([x, x], [x[:3], x[3:]])]
  assert len(set(found)) == len(found)
  by_columns = np.asfortranarray(x.reshape(2, 3))
  assert kept.fingerprint([by_columns]) == found[2]


def test_names_that_end_in_numbers_with_points_are_kept_apart(tmp_path):
  paths = [
    tmp_path / name for name in ("margin-0.5", "margin-0.7", "margin-0", "a.b.c")
  ]
  for number, path in enumerate(paths):
    kept.keep(path, {}, kept.Finished({"x": number}, {"y": np.ones(number)}))
  for number, path in enumerate(paths):
    done = kept.restore(path, {})
    assert done is not None
    assert done.figures == {"x": number}
    assert len(done.arrays["y"]) == number
