"""Plans on disk: found by all that they depend on, whole or not there, built by one at a time."""

from __future__ import annotations

import grp
import json
import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from vlmsearch.errors import ModelUnavailableError
from vlmsearch.tensorrt.engine.plans import (
    Choice,
    Machine,
    PlanKey,
    ShapeRange,
    building,
    choose_plan,
    chosen_plan,
    discard_plan,
    find_plan,
    mismatches,
    open_plan,
    plans_folder,
    read_or_discard,
    read_plan,
    store_plan,
)

MACHINE = Machine("10.0.1", "NVIDIA H200", "sm_90")
PROFILE = (ShapeRange("pixels", (1, 8, 8, 3), (16, 8, 8, 3), (64, 8, 8, 3)),)
KEY = PlanKey("ab" * 32, MACHINE, (PROFILE,), "int8", 3, ("block/3/mlp",), (("workspace", "8 GiB"),))
CHOICE = Choice("cd" * 32, "auto", MACHINE)
REPORT = {"cosine": 0.999, "batches": {"1": 0.5}}
DATA = os.urandom(5000)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    return tmp_path


def test_a_plan_is_found_by_its_key_with_its_report(cache: Path) -> None:
    assert find_plan(KEY) is None
    stored = store_plan(KEY, DATA, REPORT)
    found = find_plan(KEY)
    assert found == stored
    assert found.key == KEY
    assert found.report == REPORT
    assert read_plan(found, here=MACHINE) == DATA
    assert found.path.parent == plans_folder() == cache / "plans"


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, onnx="ba" * 32),
        replace(KEY, machine=replace(MACHINE, tensorrt="10.0.2")),
        replace(KEY, machine=replace(MACHINE, gpu="NVIDIA H100")),
        replace(KEY, machine=replace(MACHINE, architecture="sm_89")),
        replace(KEY, machine=replace(MACHINE, cublas="12.9.1")),
        replace(KEY, profiles=((replace(PROFILE[0], opt=(8, 8, 8, 3)),),)),
        replace(KEY, profiles=(PROFILE, PROFILE)),
        replace(KEY, precision="fp16"),
        replace(KEY, level=None),
        replace(KEY, fp16_layers=()),
        replace(KEY, flags=()),
    ],
)
def test_whatever_a_plan_depends_on_makes_it_another(other: PlanKey) -> None:
    store_plan(KEY, DATA, REPORT)
    assert find_plan(other) is None
    store_plan(other, b"other", {})
    first, second = find_plan(KEY), find_plan(other)
    assert first is not None
    assert second is not None
    assert read_plan(first, here=MACHINE) == DATA
    assert read_plan(second, here=other.machine) == b"other"


def test_a_digest_is_the_same_in_every_process() -> None:
    code = (
        "from vlmsearch.tensorrt.engine.plans import *\n"
        f"print(PlanKey({KEY.onnx!r}, {MACHINE!r}, ({PROFILE!r},), 'int8', 3, ('block/3/mlp',), "
        "(('workspace', '8 GiB'),)).digest)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == KEY.digest


def test_a_plan_that_does_not_fit_is_not_read_and_says_why() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    here = Machine("10.0.2", "NVIDIA L4", "sm_89")
    with pytest.raises(ModelUnavailableError) as caught:
        read_plan(plan, here=here)
    for reason in (
        "for TensorRT 10.0.1, and this is 10.0.2",
        "for the GPU NVIDIA H200, and this is NVIDIA L4",
        "for the architecture sm_90, and this is sm_89",
        "build it again",
    ):
        assert reason in str(caught.value)
    assert mismatches(KEY, MACHINE) == []


@pytest.mark.parametrize("cut", [0, 100, 4999])
def test_a_plan_that_was_cut_off_is_not_there(cut: int) -> None:
    plan = store_plan(KEY, DATA, REPORT)
    plan.path.write_bytes(DATA[:cut])
    assert find_plan(KEY) is None
    with pytest.raises(ModelUnavailableError, match=rf"damaged \({cut} bytes of 5000\); build it again"):
        open_plan(plan.path)


def test_a_damaged_plan_is_found_out_before_it_is_used() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    plan.path.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    with pytest.raises(ModelUnavailableError, match=r"damaged \(its SHA-256 differs\)"):
        read_plan(plan, here=MACHINE)
    discard_plan(plan)
    assert find_plan(KEY) is None
    discard_plan(plan)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 0}', '{"format": 1, "key": {}}'])
def test_a_damaged_description_is_no_plan(text: str) -> None:
    plan = store_plan(KEY, DATA, REPORT)
    plan.path.with_suffix(".json").write_text(text)
    assert find_plan(KEY) is None
    with pytest.raises(ModelUnavailableError, match="build it again"):
        open_plan(plan.path)


def test_a_description_of_another_key_is_not_believed() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    side = plan.path.with_suffix(".json")
    entry = json.loads(side.read_text())
    entry["key"]["precision"] = "fp32"
    side.write_text(json.dumps(entry))
    assert find_plan(KEY) is None


def test_a_file_without_description_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "engine.plan").write_bytes(DATA)
    with pytest.raises(ModelUnavailableError, match=r"is not a plan: engine\.json"):
        open_plan(tmp_path / "engine.plan")


def test_which_plan_is_used_is_remembered_for_what_was_asked() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    assert chosen_plan(CHOICE) is None
    choose_plan(CHOICE, plan)
    assert chosen_plan(CHOICE) == plan
    assert chosen_plan(replace(CHOICE, precision="fp16")) is None
    assert chosen_plan(replace(CHOICE, machine=replace(MACHINE, tensorrt="11.0"))) is None
    better = store_plan(replace(KEY, precision="fp16"), b"better", {})
    choose_plan(CHOICE, better)
    assert chosen_plan(CHOICE) == better
    discard_plan(better)
    assert chosen_plan(CHOICE) is None


def test_threads_that_need_the_same_plan_build_it_once() -> None:
    built, at_once = [], []

    def need(_: int) -> bytes:
        with building(KEY) as done:
            at_once.append(1)
            assert len(at_once) == 1
            plan = done
            if plan is None:
                built.append(1)
                time.sleep(0.05)
                plan = store_plan(KEY, DATA, REPORT)
            at_once.pop()
        return read_plan(plan, here=MACHINE)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(need, range(16))) == {DATA}
    assert len(built) == 1


def _build_in_a_process(answers: multiprocessing.Queue[int]) -> None:
    with building(CHOICE) as done:
        if done is None:
            time.sleep(0.3)
            choose_plan(CHOICE, store_plan(KEY, DATA, REPORT))
        answers.put(done is None)


def test_processes_that_need_the_same_plan_build_it_once() -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_build_in_a_process, args=(answers,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(answers.get(timeout=60) for _ in processes) == [False, False, False, True]


def test_a_build_that_fails_lets_the_next_one_try() -> None:
    with pytest.raises(ZeroDivisionError), building(KEY):
        raise ZeroDivisionError
    with building(KEY) as done:
        assert done is None
        store_plan(KEY, DATA, REPORT)
    with building(KEY) as done:
        assert done is not None


def test_a_link_in_place_of_a_lock_file_is_not_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious content")
    plans_folder().mkdir(parents=True)
    (plans_folder() / f"{KEY.digest}.lock").symlink_to(precious)
    with pytest.raises(ModelUnavailableError, match=r"\.lock is not a regular file"), building(KEY):
        pass
    assert precious.read_text() == "precious content"


def _store_for_ever(data: bytes) -> None:
    with building(KEY):
        while True:
            store_plan(KEY, data, REPORT)


def test_a_build_that_is_killed_leaves_nothing_behind() -> None:
    context = multiprocessing.get_context("fork")
    for wait in (0.05, 0.11, 0.17):
        process = context.Process(target=_store_for_ever, args=(os.urandom(3_000_000),))
        process.start()
        time.sleep(wait)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        with building(KEY) as done:  # the lock is free, and what is there is whole
            assert done is None or len(read_plan(done, here=MACHINE)) == 3_000_000
        store_plan(KEY, DATA, REPORT)
        found = find_plan(KEY)
        assert found is not None
        assert read_plan(found, here=MACHINE) == DATA


def test_what_killed_builds_left_is_removed_after_a_day(cache: Path) -> None:
    store_plan(KEY, DATA, REPORT)
    old, new = plans_folder() / ".old.writing", plans_folder() / ".new.writing"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    store_plan(KEY, DATA, REPORT)
    assert not old.exists()
    assert new.exists(), "somebody may be writing it"


def test_a_write_that_another_process_ends_meanwhile_does_not_end_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store_plan(KEY, DATA, REPORT)
    theirs, look = plans_folder() / ".theirs.writing", Path.stat

    def finish_theirs_and_look(path: Path, **options: bool) -> os.stat_result:
        if path == theirs and os.path.lexists(theirs):
            theirs.rename(plans_folder() / "theirs.plan")
        return look(path, **options)

    theirs.write_bytes(b"whole")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", finish_theirs_and_look)
        found = store_plan(KEY, DATA, REPORT)
    assert read_plan(found, here=MACHINE) == DATA
    assert (plans_folder() / "theirs.plan").read_bytes() == b"whole"


def test_a_failed_write_leaves_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    wanted = r"No space left on device; name another cache in \$VLMSEARCH_CACHE"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ModelUnavailableError, match=wanted):
            store_plan(KEY, DATA, REPORT)
    assert find_plan(KEY) is None
    assert list(plans_folder().iterdir()) == []


def test_readers_never_see_half_a_plan() -> None:
    store_plan(KEY, DATA, REPORT)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store_plan(KEY, DATA, REPORT)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            plan = find_plan(KEY)
            assert plan is None or read_plan(plan, here=MACHINE) == DATA
    finally:
        stop.set()
        writer.join()


# ---- a cache that others may write to

NOT_PRIVATE = "can be written to by other users, and engines are programs: empty it, then chmod go-w"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_refused_and_nothing_removed(mode: int) -> None:
    plan = store_plan(KEY, DATA, REPORT)
    choose_plan(CHOICE, plan)
    assert plans_folder().stat().st_mode & 0o777 == 0o700
    plans_folder().chmod(mode)

    def build() -> None:
        with building(KEY):
            pytest.fail("a plan would be built")

    for attempt in (
        lambda: find_plan(KEY),
        lambda: chosen_plan(CHOICE),
        lambda: read_plan(plan, here=MACHINE),
        lambda: read_or_discard(plan, here=MACHINE),
        lambda: store_plan(KEY, DATA, REPORT),
        build,
    ):
        with pytest.raises(ModelUnavailableError, match=NOT_PRIVATE):
            attempt()
    plans_folder().chmod(0o755)
    assert read_plan(plan, here=MACHINE) == DATA


def test_a_file_that_others_may_write_to_is_refused() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    plan.path.chmod(0o666)
    for attempt in (lambda: find_plan(KEY), lambda: read_plan(plan, here=MACHINE)):
        with pytest.raises(ModelUnavailableError, match=rf"\.plan {NOT_PRIVATE}"):
            attempt()
    plan.path.chmod(0o640)
    assert read_plan(plan, here=MACHINE) == DATA


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_or_folder_of_another_user_is_refused() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    for path in (plan.path, plans_folder()):
        os.chown(path, 65534, 65534)
        with pytest.raises(ModelUnavailableError, match=r"belongs to another user \(65534\)"):
            read_plan(plan, here=MACHINE)
        os.chown(path, 0, 0)
    assert read_plan(plan, here=MACHINE) == DATA


def test_a_group_of_ones_own_may_write() -> None:
    plan = store_plan(KEY, DATA, REPORT)
    for path in (plan.path, plans_folder()):
        path.chmod(path.stat().st_mode | 0o020)
    group, user = grp.getgrgid(plan.path.stat().st_gid).gr_name, pwd.getpwuid(os.geteuid()).pw_name
    if group == user:
        assert read_plan(plan, here=MACHINE) == DATA
    else:
        with pytest.raises(ModelUnavailableError, match=NOT_PRIVATE):
            read_plan(plan, here=MACHINE)


def test_a_plan_that_was_carried_elsewhere_is_the_users_own_choice(tmp_path: Path) -> None:
    plan = store_plan(KEY, DATA, REPORT)
    for path in (plan.path, plan.path.with_suffix(".json")):
        shutil.copy(path, tmp_path / f"model{path.suffix}")
    (tmp_path / "model.plan").chmod(0o666)
    carried = open_plan(tmp_path / "model.plan")
    assert carried.key == KEY
    assert read_plan(carried, here=MACHINE) == DATA
