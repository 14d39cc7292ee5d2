"""Downloads against a server on this machine: what is not the published file never gets into the cache."""

from __future__ import annotations

import gzip
import io
import socket
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from threading import Barrier

import pandas as pd
import pytest
from tests.unit.data.originals import NOTHING, PACKAGES_ONLY, original
from tests.unit.data.server import fails, first, never_ends, origin, sends

from masquerade.core.errors import DataMissing, FileError, MasqueradeWarning
from masquerade.data import lookup
from masquerade.data.catalogue import BNLEARN, FILES, FIMI, NETWORKS, SETS, UCI, RawFile
from masquerade.data.load import frame_of, network_of, path_of
from masquerade.data.lookup import ORIGINS, NotFetched, Patience, fetch

QUICK = Patience(silence=5.0, whole=20.0, tries=2, pause=0.01)
CONTENT = b"1,2\n3,4\n" * 9000  # more than one chunk
PLAIN = RawFile("a.data", UCI, len(CONTENT), sha256(CONTENT).hexdigest(), ("old/a.data",))
TWICE = replace(PLAIN, addresses=("old/a.data", "new/a.zip"))
ASIA, ASIA_AT = "asia", "bnrepository/asia/asia.bif.gz"
IRIS_AT, IRIS_ZIP_AT = "ml/machine-learning-databases/iris/iris.data", "static/public/53/iris.zip"


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def site():
    with origin() as running:
        yield running


@pytest.fixture
def where(site, tmp_path):
    return replace(
        NOTHING,
        cache=tmp_path / "cache",
        origins=tuple((folder, site.base) for folder in (UCI, BNLEARN)),
        patience=QUICK,
    )


def kept(where):
    """Return every file in the cache, hidden ones too."""
    return sorted(str(path.relative_to(where.cache)) for path in where.cache.rglob("*") if path.is_file())


def zipped(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return packed.getvalue()


def refusal(file, site, patience=QUICK):
    with pytest.raises(NotFetched) as caught:
        fetch(file, site.base, patience)
    return str(caught.value)


def test_a_good_file_is_verified_and_kept(site, where):
    site.answers[IRIS_AT] = sends(original("iris.data"))
    frame = frame_of("iris", where)
    assert frame.attrs["source"] == {"name": "iris", "kind": "download", "place": site.base + IRIS_AT}
    assert kept(where) == ["uci/iris.data"]
    assert (where.cache / "uci/iris.data").read_bytes() == original("iris.data")
    pd.testing.assert_frame_equal(frame, frame_of("iris", PACKAGES_ONLY))
    again = frame_of.__wrapped__("iris", where)
    assert again.attrs["source"]["kind"] == "cache"
    assert site.asked[IRIS_AT] == 1


def test_an_archive_serves_where_the_old_address_is_gone(site, where):
    site.answers[IRIS_ZIP_AT] = sends(zipped(iris_data=original("iris.data"), Index="x"))
    assert frame_of("iris", where).attrs["source"]["place"] == site.base + IRIS_ZIP_AT
    assert site.asked == {IRIS_AT: 1, IRIS_ZIP_AT: 1}  # status 404 is not asked twice


def test_a_table_of_two_files_takes_each_from_where_it_is(site, where, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "adult.data").write_bytes(original("adult.data"))
    site.answers["ml/machine-learning-databases/adult/adult.test"] = sends(original("adult.test"))
    frame = frame_of("adult-all", replace(where, directory=tmp_path / "own"))
    assert frame.attrs["source"]["kind"] == "directory, download"
    pd.testing.assert_frame_equal(frame, frame_of("adult-all", PACKAGES_ONLY))


def test_a_network_is_unpacked(site, where):
    site.answers[ASIA_AT] = sends(gzip.compress(original("asia.bif")))
    assert list(network_of(ASIA, where).schema) == list(network_of(ASIA, PACKAGES_ONLY).schema)
    assert kept(where) == ["bif/asia.bif"]


def test_a_wrong_checksum_is_refused_with_what_was_expected(site, where):
    altered = original("asia.bif").replace(b"0.01", b"0.02")
    site.answers[ASIA_AT] = sends(gzip.compress(altered))
    with pytest.raises(DataMissing) as caught:
        network_of(ASIA, where)
    assert sha256(altered).hexdigest() in str(caught.value)
    assert FILES["asia.bif"].sha256 in str(caught.value)
    assert kept(where) == []
    assert site.asked[ASIA_AT] == 1  # a whole wrong file will not get better


def test_every_address_is_accounted_for(site, where):
    site.answers[IRIS_AT] = fails(500)
    with pytest.raises(DataMissing) as caught:
        frame_of("iris", where)
    assert f"{site.base}{IRIS_AT} (HTTP status 500); {site.base}{IRIS_ZIP_AT} (HTTP status 404)" in str(
        caught.value
    )
    assert site.asked == {IRIS_AT: 2, IRIS_ZIP_AT: 1}
    assert kept(where) == []


def test_what_may_pass_is_asked_again(site):
    site.answers["old/a.data"] = first(fails(503), then=sends(CONTENT))
    assert fetch(PLAIN, site.base, QUICK) == (CONTENT, f"{site.base}old/a.data")
    site.answers["old/a.data"] = first(sends(CONTENT[:70_000], claimed=len(CONTENT)), then=sends(CONTENT))
    assert fetch(PLAIN, site.base, QUICK)[0] == CONTENT


def test_a_truncated_file_is_refused(site, where):
    content = original("iris.data")
    site.answers[IRIS_AT] = sends(content[:1000], claimed=len(content))
    with pytest.raises(DataMissing, match=r"only 1,000 of 4,551 bytes arrived"):
        frame_of("iris", where)
    assert kept(where) == []
    site.answers[IRIS_AT] = sends(content[:1000])  # the server itself has half a file
    with pytest.raises(DataMissing, match=r"1,000 bytes with SHA-256 \w+, expected 4,551 with"):
        frame_of("iris", where)
    assert kept(where) == []


def test_a_huge_file_is_not_read_to_its_end(site, monkeypatch):
    site.answers["old/a.data"] = never_ends
    assert f"more than the expected {len(CONTENT):,} bytes" in refusal(PLAIN, site)
    monkeypatch.setattr(lookup, "MOST_PACKED", 100_000)
    site.answers["new/a.zip"] = never_ends
    assert "more than the expected 100,000 bytes" in refusal(TWICE, site)
    assert site.asked["old/a.data"] == 2  # once for each call


def test_an_archive_that_swells_is_not_unpacked_to_its_end(site):
    swelling = bytes(50_000_000)
    site.answers["a.gz"] = sends(gzip.compress(swelling))
    site.answers["a.zip"] = sends(zipped(a_data=swelling))
    for address in ("a.gz", "a.zip"):
        assert f"{PLAIN.size + 1:,} bytes with SHA-256" in refusal(replace(PLAIN, addresses=(address,)), site)


@pytest.mark.parametrize(
    ("address", "content", "complaint"),
    [
        ("a.zip", zipped(b_data=CONTENT), "the archive has no a.data"),
        ("a.zip", b"PK nonsense", "not a readable archive"),
        ("a.gz", b"nonsense", "not a readable archive"),
        ("a.gz", gzip.compress(CONTENT)[:-200], "expected 72,000"),
    ],
)
def test_archives_that_are_none_are_refused(site, address, content, complaint):
    site.answers[address] = sends(content)
    assert complaint in refusal(replace(PLAIN, addresses=(address,)), site)


def test_a_server_that_is_down_is_named_once(tmp_path):
    with socket.socket() as held:  # a port where nobody listens
        held.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{held.getsockname()[1]}/"
        where = replace(NOTHING, cache=tmp_path, origins=((UCI, base),), patience=QUICK)
        with pytest.raises(DataMissing) as caught:
            frame_of("lenses", where)
    assert str(caught.value).count("no connection: ") == 1  # the second address is at the same host
    assert "put lenses.data as published into a directory and name it in MASQUERADE_DATA" in str(caught.value)
    assert "install subgroups" in str(caught.value)
    assert list(tmp_path.rglob("*")) == []


def test_a_silent_server_is_not_waited_for(site):
    site.answers["old/a.data"] = site.silent
    assert "silent for 0.2 s" in refusal(TWICE, site, replace(QUICK, silence=0.2))


def test_a_slow_server_is_not_waited_for(site):
    site.answers["old/a.data"] = sends(CONTENT)
    assert "too slow" in refusal(PLAIN, site, replace(QUICK, whole=0.0))


def test_loads_at_the_same_time_do_not_disturb_each_other(site, where):
    site.answers[ASIA_AT] = sends(gzip.compress(original("asia.bif")))
    start = Barrier(8)

    def one():
        start.wait()
        return path_of.__wrapped__(FILES["asia.bif"], where).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        found = [job.result() for job in [pool.submit(one) for _ in range(8)]]
    assert found == [original("asia.bif")] * 8
    assert kept(where) == ["bif/asia.bif"]


def test_a_damaged_cache_is_repaired(site, where):
    damaged = where.cache / "bif" / "asia.bif"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"half")
    with pytest.raises(DataMissing, match=r"the cache: .*asia\.bif: not the file as published: 4 bytes"):
        network_of(ASIA, where)
    site.answers[ASIA_AT] = sends(gzip.compress(original("asia.bif")))
    network_of(ASIA, where)
    assert damaged.read_bytes() == original("asia.bif")


def test_a_cache_that_cannot_be_written_is_told(site, where, tmp_path):
    (tmp_path / "cache").write_text("a file where the directory should be")
    site.answers[ASIA_AT] = sends(gzip.compress(original("asia.bif")))
    with pytest.warns(MasqueradeWarning, match="MASQUERADE_CACHE"):
        assert len(network_of(ASIA, where).schema) == 8
    with pytest.warns(MasqueradeWarning), pytest.raises(FileError, match="cannot be written"):
        path_of(FILES["asia.bif"], where)


def test_the_addresses_are_of_the_known_origins_and_name_the_files():
    assert dict(ORIGINS) == {UCI: "https://archive.ics.uci.edu/", BNLEARN: "https://www.bnlearn.com/"}
    for table in SETS.values():
        for file in table.files:
            alone, archive = file.addresses
            assert alone.startswith("ml/machine-learning-databases/")
            assert alone.endswith(f"/{file.name}")
            assert archive.startswith("static/public/")
            assert archive.endswith(".zip")
    for network in NETWORKS.values():
        assert network.files[0].addresses == (f"bnrepository/{network.name}/{network.name}.bif.gz",)
    assert all(not file.addresses for file in FILES.values() if file.folder == FIMI)
