"""The one reader of text and JSON from outside: what it takes, and what it refuses in one sentence."""

import gzip
import json
import tracemalloc
import zlib
from pathlib import Path

import pytest

from infoflow import reading
from infoflow.errors import InfoFlowError

MIB = 1 << 20


def bomb(path: Path, mebibytes: int) -> Path:
    """A gzip file of so many mebibytes of zeros: a thousandth of that on the disk."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(mebibytes):
            file.write(bytes(MIB))
    return path


def test_plain_gzipped_and_marked_texts_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one é\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("one é\n", encoding="utf-8-sig")
    (tmp_path / "c").write_bytes(gzip.compress("one é\n".encode()))  # whatever its name
    (tmp_path / "d.gz").write_bytes(gzip.compress(b"one ") + gzip.compress("é\n".encode()))
    assert {reading.text(tmp_path / name) for name in ("a.txt", "b.txt", "c", "d.gz")} == {"one é\n"}
    (tmp_path / "empty").write_bytes(b"")
    assert reading.text(tmp_path / "empty") == ""


def test_a_bomb_is_refused_at_the_cap_and_takes_no_more_memory(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.gz", 64)
    assert path.stat().st_size < MIB
    tracemalloc.start()
    with reading.limit(8 * MIB), pytest.raises(InfoFlowError, match="at most 8 MiB of text") as said:
        reading.text(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 * MIB
    assert "--text-limit" in str(said.value)
    with reading.limit(64 * MIB):
        assert len(reading.text(path)) == 64 * MIB
    with reading.limit(64 * MIB - 1), pytest.raises(InfoFlowError):
        reading.text(path)


def test_the_cap_is_128_mebibytes(tmp_path: Path) -> None:
    assert reading.LARGEST_TEXT == 128 * MIB
    with pytest.raises(InfoFlowError, match="at most 128 MiB"):
        reading.text(bomb(tmp_path / "bomb.gz", 129))


whole = gzip.compress(bytes(range(256)) * 64, mtime=0)  # the same in every worker of the suite


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe no UTF-8",
        whole[:40],  # cut off
        whole[:30] + bytes(20) + whole[50:],  # damaged inside
        whole[:-6] + b"......",  # another checksum
        b"\x1f\x8b",
        b"\x1f\x8b\x08\x00" + bytes(6) + zlib.compress(b"no gzip"),
    ],
    ids=["no UTF-8", "cut off", "damaged inside", "another checksum", "two bytes", "no gzip inside"],
)
def test_damaged_files_are_one_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(InfoFlowError, match="expected a text in UTF-8, plain or gzipped, could not read"):
        reading.text(tmp_path / "a")


def test_what_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "a\0b", tmp_path / ("long" * 200)):
        with pytest.raises(InfoFlowError, match="expected"):
            reading.text(path)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{",
        "nul",
        "[NaN]",
        "[Infinity]",
        "-Infinity",
        "[1e999]",
        "[" * 100_000,
        '{"a":' * 50_000,
        "9" * 5000,
        "[1,]",
        "\0",
    ],
)
def test_json_that_is_none_is_one_sentence(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.json").write_text(written)
    for read in (reading.json_of, reading.data_of):
        with pytest.raises(InfoFlowError, match="does not parse"):
            read(tmp_path / "a.json")


def test_a_record_is_small(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps("a" * reading.LARGEST_JSON))
    with pytest.raises(InfoFlowError, match="characters of JSON"):
        reading.json_of(tmp_path / "a.json")
    assert len(reading.data_of(tmp_path / "a.json")) == reading.LARGEST_JSON
