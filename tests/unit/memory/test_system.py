"""What is free, as the system tells it."""

from pathlib import Path

from fastvideo.memory.system import free_machine_bytes

MEMINFO = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n"


def cgroup(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text("5000000\n")
    (folder / "memory.stat").write_text("anon 2000000\ninactive_file 1000000\nactive_file 500000\n")
    return folder


def test_a_machine_has_what_is_available(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    assert free_machine_bytes(meminfo, tmp_path / "none") == 8_000 * 1024
    assert free_machine_bytes(meminfo, cgroup(tmp_path, "max")) == 8_000 * 1024


def test_a_container_has_what_its_limit_leaves_and_files_give_way(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    assert free_machine_bytes(meminfo, cgroup(tmp_path, "6000000")) == 2_500_000
    assert free_machine_bytes(meminfo, cgroup(tmp_path, "3000000")) == 0


def test_where_the_system_does_not_tell_nothing_is_known(tmp_path: Path) -> None:
    assert free_machine_bytes(tmp_path / "meminfo") is None
