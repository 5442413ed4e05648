"""Files of the data folder: lock, logs, ports, credentials, modes."""

import os
import socket
import subprocess
import sys
import threading
import venv
from pathlib import Path

import pytest

from fastvideo.local.credentials import Credentials, load_credentials, make_credentials
from fastvideo.local.errors import DataDamaged, DataUnreachable, PortTaken, StackRunning
from fastvideo.local.folder import DataFolder
from fastvideo.local.lock import StackLock, holder
from fastvideo.local.logs import cap_log, follow, lines_end, open_log, tail
from fastvideo.local.ports import assign_ports, find_free
from fastvideo.local.programs import PostgresPrograms, find_postgres
from fastvideo.local.servers import postgres_parts
from fastvideo.local.state import read_state


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    return folder


def test_folders_are_closed_to_others(folder: DataFolder) -> None:
    modes = {path.name: path.stat().st_mode & 0o077 for path in folder.root.iterdir()}

    assert set(modes.values()) == {0}
    assert folder.root.stat().st_mode & 0o066 == 0


def test_the_mode_of_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)

    DataFolder(tmp_path).prepare()

    assert tmp_path.stat().st_mode & 0o777 == 0o775


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DataUnreachable, match="file/data cannot be made"):
        DataFolder(tmp_path / "file" / "data").prepare()


def test_the_lock_has_one_holder_which_it_names(folder: DataFolder) -> None:
    assert holder(folder) is None
    with StackLock(folder):
        assert holder(folder) == os.getpid()
        with pytest.raises(StackRunning, match=f"pid {os.getpid()}") as raised:
            StackLock(folder)
    assert raised.value.attributes == {"pid": str(os.getpid())}
    assert holder(folder) is None


def test_the_lock_ends_with_its_process(folder: DataFolder) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from fastvideo.local.folder import DataFolder\n"
        "from fastvideo.local.lock import StackLock\n"
        "lock = StackLock(DataFolder(Path(sys.argv[1])))\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder.root)], check=False, timeout=30)

    assert done.returncode == -9
    assert holder(folder) is None
    StackLock(folder).close()


def test_a_log_over_the_limit_is_moved_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with open(open_log(log, 100), "ab", buffering=0) as writer:
        writer.write(b"x" * 101)
        cap_log(log, 100)
        writer.write(b"after\n")

    assert log.read_bytes() == b"after\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 101


def test_a_log_is_rotated_when_it_is_opened(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 101)

    os.close(open_log(log, 100))

    assert log.read_bytes() == b""


@pytest.mark.parametrize(
    ("lines", "since", "shown"),
    [(2, 0, ("b", "c")), (0, 0, ()), (9, 2, ("b", "c")), (9, 99, ("a", "b", "c"))],
)
def test_the_tail_of_a_log(tmp_path: Path, lines: int, since: int, shown: tuple[str, ...]) -> None:
    log = tmp_path / "a.log"
    log.write_text("a\nb\nc\n")

    assert tail(log, lines, since) == shown
    assert tail(tmp_path / "none.log", 5) == ()


def test_following_gives_whole_lines_and_survives_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("old\n")
    lines = follow({"a": log}, {"a": lines_end(log)}, poll_s=0.01)

    def write() -> None:
        with log.open("a") as file:
            file.write("one\ntw")
            file.flush()
            file.write("o\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert [next(lines), next(lines)] == [("a", "one"), ("a", "two")]
    writer.join()
    log.write_text("new\n")
    assert next(lines) == ("a", "new")


def test_what_is_written_between_the_tail_and_the_following_is_told_once(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert lines_end(log) == 0
    log.write_text("old\nunfin")
    end = lines_end(log)
    with log.open("a") as file:
        file.write("ished\n")
    lines = follow({"a": log}, {"a": end}, poll_s=0.01)
    assert tail(log, 9, until=end) == ("old",)
    assert next(lines) == ("a", "unfinished")


def test_ports_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randint", lambda least, most: least)
    first = assign_ports(tmp_path / "ports.json", ["a", "b"], {})

    # Together, so that two stacks which start at once do not choose among each other's.
    assert 0 < first["b"] - first["a"] < 100
    assert assign_ports(tmp_path / "ports.json", ["a", "b"], {}) == first


def test_a_fixed_port_wins_and_stays(tmp_path: Path) -> None:
    port = find_free()
    assign_ports(tmp_path / "ports.json", ["a"], {})

    assert assign_ports(tmp_path / "ports.json", ["a"], {"a": port}) == {"a": port}
    assert assign_ports(tmp_path / "ports.json", ["a"], {}) == {"a": port}


def test_a_taken_port_is_replaced_unless_others_rely_on_it(tmp_path: Path) -> None:
    port = assign_ports(tmp_path / "ports.json", ["a"], {})["a"]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(PortTaken, match=f"port {port} "):
            assign_ports(tmp_path / "ports.json", ["a"], {}, kept=["a"])
        assert assign_ports(tmp_path / "ports.json", ["a"], {})["a"] != port


def test_one_port_for_two_is_refused(tmp_path: Path) -> None:
    port = find_free()

    with pytest.raises(PortTaken, match=f"port {port} is asked for twice"):
        assign_ports(tmp_path / "ports.json", ["a", "b"], {"a": port, "b": port})


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first <= 16_000:
        pytest.skip("this machine gives all ports to outgoing connections")

    assert find_free() < first


def test_credentials_are_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    assert load_credentials(path) is None
    made = make_credentials(path)

    assert load_credentials(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert len({made.postgres_superuser, made.postgres_app, made.nats, made.redis}) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"postgres_app": "hunter2", "more": 1}'])
def test_damaged_credentials_are_told_without_what_they_hold(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(text)

    with pytest.raises(DataDamaged, match="holds no credentials") as caught:
        load_credentials(path)
    assert "hunter2" not in repr(caught.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "[1", "[1]", "null", '{"a": "x"}', '{"a": 99999}', '{"a": -1}']
)
def test_damaged_ports_are_chosen_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ports.json"
    path.write_text(text)

    chosen = assign_ports(path, ["a"], {})
    assert assign_ports(path, ["a"], {}) == chosen


def test_a_state_of_another_version_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "stack.json"
    for text in ("", "{}", '{"parts": [], "colour": "red"}'):
        path.write_text(text)
        assert read_state(path) is None


def test_data_of_another_postgres_is_refused(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("9\n")

    with pytest.raises(DataDamaged, match="was written by Postgres 9"):
        find_postgres(tmp_path)


def test_the_first_start_works_from_a_folder_with_any_letters(tmp_path: Path) -> None:
    installed = tmp_path / "für mich"
    venv.create(installed, with_pip=False)
    [packages] = (installed / "lib").glob("python*/site-packages")
    (packages / "editable.pth").write_text(f"{tmp_path}/für mich/libs\n", encoding="utf-8")
    programs = PostgresPrograms(Path("/pg/postgres"), Path("/pg/initdb"), 18)
    initdb, *_ = postgres_parts(programs, DataFolder(tmp_path), 5432, None, Credentials())

    result = subprocess.run(
        [installed / "bin" / "python", *initdb.argv[1:2], "-c", "print('started')"],
        env=initdb.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("started\n", "")
