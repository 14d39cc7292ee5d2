"""The sampler in JavaScript is Python's: shared vectors in Node; fresh draws have the row's chances."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from scipy.stats import chisquare
from tests.statistical.checks import ALPHA
from tests.survey import vectors
from tests.survey.programs import node

VOPRF = Path(__file__).parents[1] / "vectors" / "oprf" / "ristretto255_sha512_voprf.json"


def test_node_meets_all_vectors_of_python(tmp_path):
    made = vectors.made()
    assert vectors.count(made) >= 10_000
    (tmp_path / "vectors.json").write_text(json.dumps(made))
    shutil.copy(VOPRF, tmp_path / "voprf.json")
    for name in ("masquerade", "tokens"):
        shutil.copy(str(files("masquerade.survey") / "assets" / f"{name}.js"), tmp_path / f"{name}.mjs")
    command = [node(), str(Path(__file__).with_name("sampler.mjs")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    told = json.loads(done.stdout)
    assert told["missed"] == 0
    assert told["met"] >= vectors.count(made)
    assert chisquare(told["counts"], [15_000, 5_000]).pvalue > ALPHA
