"""The file of the keys: private, whole at every moment, and without a token in it."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from reservation_service.access import Scope
from reservation_service.keys import key_file
from reservation_service.keys.key_file import KEYS_MAX, Key, KeyFile, KeyFileError, digest

NOW = 1_800_000_000_000


@pytest.fixture
def file(database: Path) -> KeyFile:
    return KeyFile(database)


def names(file: KeyFile) -> list[str]:
    return [key.name for key in file.read() or ()]


def test_there_is_no_file_before_the_first_key(file: KeyFile) -> None:
    assert file.read() is None
    assert file.signature() is None


def test_a_key_is_kept_without_its_token(file: KeyFile) -> None:
    token = file.add("shop", Scope.RESERVE, NOW)
    assert file.read() == (Key("shop", Scope.RESERVE, digest(token).hex(), NOW),)
    kept = b"".join(path.read_bytes() for path in file.path.parent.iterdir())
    assert token.encode() not in kept
    assert token.removeprefix("rsk_").encode() not in kept


def test_tokens_have_256_bits_and_are_all_different(file: KeyFile) -> None:
    tokens = {file.add(f"key-{n}", Scope.RESERVE, NOW) for n in range(20)}
    assert len(tokens) == 20
    assert {len(token.removeprefix("rsk_")) for token in tokens} == {43}


def test_the_file_is_its_owners_alone_also_after_a_change(file: KeyFile) -> None:
    for name in ("one", "two"):
        file.add(name, Scope.RESERVE, NOW)
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.revoke("one")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_an_open_umask_opens_nothing(file: KeyFile) -> None:
    before = os.umask(0)
    try:
        file.add("shop", Scope.RESERVE, NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_that_root_adds_is_the_services_to_read(file: KeyFile) -> None:
    os.chown(file.path.parent, 12_345, 12_346)
    file.add("shop", Scope.RESERVE, NOW)
    owner = file.path.stat()
    assert (owner.st_uid, owner.st_gid) == (12_345, 12_346)


def test_an_alias_of_the_database_has_the_same_keys(database: Path, file: KeyFile) -> None:
    database.touch()
    alias = database.with_name("alias.db")
    alias.symlink_to(database)
    KeyFile(alias).add("shop", Scope.RESERVE, NOW)
    assert names(file) == ["shop"]


def test_two_keys_have_two_names(file: KeyFile) -> None:
    file.add("shop", Scope.RESERVE, NOW)
    before = file.path.read_bytes()
    with pytest.raises(KeyFileError, match="There is a key called shop; revoke it"):
        file.add("shop", Scope.OPERATE, NOW)
    assert file.path.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["", "Shop", "a b", "a\n", "-a", "a-", "a" * 41, "ä", "a/b", "\x1b[m"]
)
def test_a_name_is_plain(file: KeyFile, name: str) -> None:
    with pytest.raises(KeyFileError, match=r"^A key's name is 1 to 40 lowercase letters"):
        file.add(name, Scope.RESERVE, NOW)
    assert file.read() is None


def test_a_key_is_revoked_once(file: KeyFile) -> None:
    for name in ("one", "two"):
        file.add(name, Scope.RESERVE, NOW)
    file.revoke("one")
    assert names(file) == ["two"]
    with pytest.raises(KeyFileError, match=r"^There is no key of that name"):
        file.revoke("one")
    file.revoke("two")
    assert file.read() == ()


def test_there_is_a_limit(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "KEYS_MAX", 2)
    file.add("one", Scope.RESERVE, NOW)
    file.add("two", Scope.RESERVE, NOW)
    with pytest.raises(KeyFileError, match="There are 2 keys"):
        file.add("three", Scope.RESERVE, NOW)
    assert names(file) == ["one", "two"]
    assert KEYS_MAX * 300 < key_file.FILE_BYTES_MAX


def test_parallel_writers_lose_no_key(file: KeyFile) -> None:
    def add(number: int) -> None:
        KeyFile(file.path.with_name("reservations.db")).add(f"k{number}", Scope.RESERVE, NOW)

    threads = [threading.Thread(target=add, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names(file)) == [f"k{number}" for number in range(8)]


GOOD = {"name": "shop", "scope": "reserve", "sha256": "0" * 64, "createdAt": NOW}


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"keys": {}},
        {"keys": [{}]},
        {"keys": [GOOD | {"scope": "admin"}]},
        {"keys": [GOOD | {"sha256": "0" * 63}]},
        {"keys": [GOOD | {"sha256": "0" * 64 + "\n"}]},
        {"keys": [GOOD | {"name": "Shop"}]},
        {"keys": [GOOD | {"name": "shop\n"}]},
        {"keys": [GOOD | {"more": 1}]},
        {"keys": [GOOD], "more": 1},
        {"keys": [GOOD, GOOD | {"sha256": "1" * 64}]},
    ],
)
def test_what_is_not_exactly_a_key_file_is_refused(file: KeyFile, document: object) -> None:
    write(file, json.dumps(document).encode())
    with pytest.raises(KeyFileError, match=r"^Cannot use the key file "):
        file.read()
    with pytest.raises(KeyFileError):
        file.add("other", Scope.RESERVE, NOW)
    assert json.loads(file.path.read_bytes()) == document


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"keys":' * 50_000, b"\xff\xfe", b"x" * 2_000_000]
)
def test_a_file_that_is_anything_at_all_is_refused(file: KeyFile, text: bytes) -> None:
    write(file, text)
    with pytest.raises(KeyFileError, match="torn or damaged"):
        file.read()


def test_every_torn_file_is_refused(file: KeyFile) -> None:
    file.add("shop", Scope.RESERVE, NOW)
    whole = file.path.read_bytes()
    for length in range(len(whole) - 2):  # the last byte ends the line
        write(file, whole[:length])
        with pytest.raises(KeyFileError, match="torn or damaged"):
            file.read()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_refused(file: KeyFile, mode: int) -> None:
    file.add("shop", Scope.RESERVE, NOW)
    file.path.chmod(mode)
    with pytest.raises(KeyFileError, match="others may write to it"):
        file.read()


def test_a_replacement_that_fails_leaves_the_old_file_and_nothing_else(
    file: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.add("shop", Scope.RESERVE, NOW)

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyFileError, match="No space left on device"):
        file.add("other", Scope.RESERVE, NOW)
    monkeypatch.undo()
    assert names(file) == ["shop"]
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_a_new_file_is_synced_before_it_takes_the_name_and_its_directory_after(
    file: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.add("shop", Scope.RESERVE, NOW)
    order: list[tuple[str, bool]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        order.append(("sync", stat.S_ISDIR(os.fstat(handle).st_mode)))
        fsync(handle)

    def replaced(path: Path, target: Path) -> Path:
        order.append(("replace", False))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    file.revoke("shop")
    assert order == [("sync", False), ("replace", False), ("sync", True)]


def test_a_change_is_seen_from_the_signature(file: KeyFile) -> None:
    seen = {file.signature()}
    for name in ("one", "two", "three"):
        file.add(name, Scope.RESERVE, NOW)
        seen.add(file.signature())
    file.revoke("one")
    seen.add(file.signature())
    assert len(seen) == 5


def write(file: KeyFile, text: bytes) -> None:
    file.path.write_bytes(text)
    file.path.chmod(0o600)
