"""The ledger of noise: copies and restores are noticed, what it contains stays, nothing is drawn again."""

import shutil

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.services.common.noise_ledger import AGREEMENT

FIRST, SECOND = mq.Query(by=("exams", "pills")), mq.Query(by=("year", "sleep"))


def source(ledger, tables=3):
    return mq.Noisy(mq.tally(mq.data.students()), epsilon=1, tables=tables, ledger=ledger)


def ask(folder, query, **options):
    with mq.NoiseLedger(folder, **options) as ledger:
        return source(ledger).answer([query])[0].values


def restore(folder, copy):
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def overwrite(folder, copy):
    for path in copy.rglob("*"):
        if path.is_file():
            (folder / path.relative_to(copy)).write_bytes(path.read_bytes())


def restore_keys(folder, copy):
    """Put back the file of spent tables alone."""
    for path in (copy / "once").glob("burnt.sqlite*"):
        (folder / "once" / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("put_back", [restore, overwrite, restore_keys])
def test_restored_ledgers_draw_no_noise_again(tmp_path, put_back):
    folder, copy = tmp_path / "budget", tmp_path / "copy"
    before = ask(folder, FIRST)
    shutil.copytree(folder, copy)
    second = ask(folder, SECOND)
    put_back(folder, copy)
    assert np.array_equal(ask(folder, FIRST), before)
    with pytest.raises(QueryRefused, match="restored from a copy"):
        ask(folder, SECOND)
    with mq.NoiseLedger(folder) as ledger:  # the doubt outlives the process that noticed
        assert ledger.doubted
        assert source(ledger).tables_spent == 1
    with pytest.raises(InputError, match="repeat these words exactly"):
        mq.NoiseLedger(folder, agree="yes")
    drawn = ask(folder, SECOND, agree=AGREEMENT)
    assert drawn.shape == second.shape
    with mq.NoiseLedger(folder) as ledger:
        assert not ledger.doubted


def test_a_copy_elsewhere_draws_nothing(tmp_path):
    before = ask(tmp_path / "budget", FIRST)
    shutil.copytree(tmp_path / "budget", tmp_path / "other")
    with pytest.raises(QueryRefused, match="restored from a copy"):
        ask(tmp_path / "other", SECOND)
    assert np.array_equal(ask(tmp_path / "other", FIRST), before)
    ask(tmp_path / "budget", SECOND)  # the original goes on


def test_one_process_at_a_time(tmp_path):
    with mq.NoiseLedger(tmp_path / "budget"), pytest.raises(FileError, match="is in use"):
        mq.NoiseLedger(tmp_path / "budget")


def test_terms_are_promised_once(tmp_path):
    with mq.NoiseLedger(tmp_path / "budget") as ledger:
        assert ledger.terms is None
        ledger.promise(mq.NoiseTerms(1, 3))
        with pytest.raises(InputError, match="already has its terms"):
            ledger.promise(mq.NoiseTerms(2, 3))
        assert ledger.terms == mq.NoiseTerms(1, 3)
        source(ledger).answer([FIRST])
        assert [entry["tables"] for entry in ledger.entries] == [1]


def test_other_terms_than_promised_are_refused(tmp_path):
    with mq.NoiseLedger(tmp_path / "budget") as ledger:
        ledger.promise(mq.NoiseTerms(0.5, 3))
        with pytest.raises(InputError, match=r"promises epsilon = 0\.5"):
            source(ledger)
