"""The sampler in JavaScript is Python's: shared vectors in Node; fresh draws have the row's chances."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import segno
from scipy.stats import chisquare
from tests.statistical.checks import ALPHA
from tests.survey import vectors
from tests.survey.programs import node, packages

VOPRF = Path(__file__).parents[1] / "vectors" / "oprf" / "ristretto255_sha512_voprf.json"


def test_node_meets_all_vectors_of_python(tmp_path):
    made = vectors.made()
    assert vectors.count(made) >= 10_000
    (tmp_path / "vectors.json").write_text(json.dumps(made))
    shutil.copy(VOPRF, tmp_path / "voprf.json")
    for name in ("masquerade", "tokens"):
        shutil.copy(str(files("masquerade.survey.page") / "assets" / f"{name}.js"), tmp_path / f"{name}.mjs")
    command = [node(), str(Path(__file__).with_name("sampler.mjs")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    told = json.loads(done.stdout)
    assert told["missed"] == 0
    assert told["met"] >= vectors.count(made)
    # 20,000 draws of fresh words; and of 20,000 keys, each of which draws the same again
    assert chisquare(told["fresh"], [15_000, 5_000]).pvalue > ALPHA
    assert chisquare(told["keyed"], [15_000, 5_000]).pvalue > ALPHA
    assert told["changed"] == 0


def test_the_qr_code_of_a_recovery_code_is_the_standard_s(tmp_path):
    """Against segno module by module, and read back by jsQR."""
    script = tmp_path / "qr.mjs"
    shutil.copy(str(files("masquerade.survey.page") / "assets" / "qr.js"), script)
    words = [
        "".join(secrets.choice(letters) for letters in ("bdfgz", "aiou") * 2 + ("klmnp",)) for _ in range(90)
    ]
    texts = [" ".join(words[i : i + 9]) for i in range(0, 90, 9)]
    command = [node(), str(Path(__file__).with_name("qr_codes.mjs")), str(packages()), str(script)]
    done = subprocess.run(  # noqa: S603
        command, input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    for text, told in zip(texts, json.loads(done.stdout), strict=True):
        code = segno.make_qr(text, error="l", version=3, mask=0, mode="byte", boost_error=False)
        assert told["modules"] == [list(row) for row in code.matrix]
        assert told["read"] == text
