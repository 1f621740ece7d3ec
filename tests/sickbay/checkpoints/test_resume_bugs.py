"""What users of other tools filed (facts: training, 3.4, by its numbers), and the facts' own list of patterns.

Number 12, a job that is launched although its target is reached, is the workflow's (`tests/workflows`).
"""

from datetime import timedelta

from sickbay.checkpoints.choice import choose
from sickbay.checkpoints.model import (
    Checkpoint,
    CheckpointFormat,
    CheckpointListing,
    CheckpointPlace,
    Level,
    Lineage,
    ResumeChoice,
)
from sickbay.training.history import AttemptRecord, JobHistory
from tests.sickbay.checkpoints.layouts import (
    WRITTEN,
    Files,
    dcp,
    dcp_metadata,
    deepspeed,
    hf_trainer,
    lightning,
    megatron,
    orbax,
    steps,
    surveyed,
    torch_file,
    without,
)

PLACE = CheckpointPlace(url="/run/{attempt}")
HOUR = timedelta(hours=1)


def chosen(
    *found: Checkpoint, durable: int | None = None, complete: bool = True, lineage: tuple[Lineage, ...] = ()
) -> ResumeChoice:
    """The choice of a job that has run before."""
    attempts = (AttemptRecord(attempt=1, nodes=1, gpus=8, planned_at=WRITTEN),)
    history = JobHistory(attempts=attempts, durable_step=durable, lineage=lineage)
    problems = () if complete else ("s3://run: access is denied (AccessDenied)",)
    listing = CheckpointListing(observed_at=WRITTEN, complete=complete, checkpoints=found, problems=problems)
    return choose(listing, PLACE, history, allow_nothing=True)


def saved(step: int, level: Level = Level.COMMITTED, attempt: int | None = None, hours: float = 0) -> Checkpoint:
    return Checkpoint(
        step=step, path=f"/run/{attempt}/{step}", format=CheckpointFormat.DCP, level=level, attempt=attempt,
        written_at=WRITTEN + hours * HOUR,
    )  # fmt: skip


def resumed_step(choice: ResumeChoice) -> int | None:
    return choice.checkpoint.step if choice.checkpoint else None


# By number


def test_01_a_save_that_was_killed_falls_back_to_the_one_before() -> None:
    files: Files = {**hf_trainer(100), **without(hf_trainer(200), "trainer_state.json")}
    assert steps(files) == {200: False, 100: True}


def test_02_a_staging_folder_is_no_checkpoint() -> None:
    staged = {name.replace("checkpoint-200", "tmp-checkpoint-200"): data for name, data in hf_trainer(200).items()}
    assert steps({**hf_trainer(100), **staged}) == {100: True}


def test_03_the_only_one_being_replaced_while_the_new_one_is_not_whole_is_a_persons_affair() -> None:
    found, _ = surveyed(without(hf_trainer(200), "optimizer.pt"))
    choice = chosen(*found, durable=100)
    assert not choice.allowed
    assert "step 100 was durable" in choice.why


def test_04_a_trainer_over_deepspeed_names_the_piece_that_is_missing() -> None:
    inner = {f"checkpoint-100/{name}": data for name, data in deepspeed(100).items()}
    whole = {
        **inner,
        "checkpoint-100/trainer_state.json": b'{"global_step": 100}',
        "checkpoint-100/rng_state_0.pth": torch_file(0),
        "checkpoint-100/rng_state_1.pth": torch_file(1),
        "checkpoint-100/scheduler.pt": torch_file({}),
    }
    assert steps(whole) == {100: True}
    for lost in ("checkpoint-100/trainer_state.json", "checkpoint-100/latest", "mp_rank_00_optim_states.pt"):
        found, _ = surveyed(without(whole, lost), CheckpointFormat.HF_TRAINER)
        assert [each.may_resume for each in found] == [False], lost
        assert found[0].problems, lost


def test_05_a_folder_with_a_number_is_no_checkpoint_by_that_alone() -> None:
    found, odd = surveyed({"12345/notes.txt": b"x", "67/model.bin": b"y"})
    assert found == ()
    assert odd == ("no known kind of checkpoint is here",)


def test_06_a_pointer_that_is_ahead_of_what_is_durable_takes_the_older_step() -> None:
    files: Files = {**deepspeed(100), **without(deepspeed(200), "optim_states.pt")}
    files["latest"] = b"global_step200"
    assert steps(files) == {200: False, 100: True}


def test_07_empty_shards_and_leftovers_of_a_crash_are_told_apart_from_whole_ones() -> None:
    files: Files = {**dcp(100), **dcp(200), "step_200/__0_0.distcp": b"", "step_300.tmp/.metadata": b"x"}
    assert steps(files) == {200: False, 100: True}


def test_08_after_a_loss_of_power_the_previous_one_is_taken_and_the_lost_pointer_is_told() -> None:
    newer = {name: b"" for name in deepspeed(200) if name != "latest"}
    found, odd = surveyed({**without(deepspeed(100), "latest"), **newer})
    assert [(each.step, each.may_resume) for each in found] == [(200, False), (100, True)]
    assert "latest is missing" in odd[0]
    assert "begins anew without a word" in odd[0]


def test_09_some_ranks_failed_in_the_save_so_that_no_marker_is_there() -> None:
    found, _ = surveyed(without(dcp(100), ".metadata"))
    assert [(each.level, each.problems) for each in found] == [
        (Level.LISTED, (".metadata is missing: the save never ended",))
    ]


def test_10_what_is_proven_is_only_what_an_attempt_went_on_from() -> None:
    assert [each.level for each in surveyed(dcp(100))[0]] == [Level.VERIFIED]


def test_11_the_tracker_decides_and_not_what_a_log_says_was_saved() -> None:
    files: Files = {**megatron(100), **megatron(200), "latest_checkpointed_iteration.txt": b"100"}
    found, _ = surveyed(files)
    assert [(each.step, each.may_resume) for each in found] == [(200, False), (100, True)]
    assert "latest_checkpointed_iteration.txt says 100: this one is not finished" in found[0].problems


def test_13_a_checkpoint_that_an_attempt_could_not_read_is_not_taken_again() -> None:
    history = JobHistory(attempts=(AttemptRecord(attempt=1, nodes=1, gpus=8, planned_at=WRITTEN),), durable_step=200)
    history = history.model_copy(update={"invalid": ("/run/None/200",)})
    listing = CheckpointListing(observed_at=WRITTEN, complete=True, checkpoints=(saved(200), saved(100)))
    choice = choose(listing, PLACE, history, allow_nothing=True)
    assert (resumed_step(choice), choice.allowed) == (100, True)
    assert "an attempt could not read it" in choice.why


def test_14_a_step_never_goes_back_in_silence() -> None:
    for found in ((), (saved(50),)):
        choice = chosen(*found, durable=100)
        assert not choice.allowed
        assert "step 100 was durable" in choice.why


def test_15_a_copy_without_the_mark_of_a_store_is_whole_unless_others_bear_it() -> None:
    assert steps(orbax(100)) == {100: True}
    marked: Files = {**orbax(100), "100/commit_success.txt": b"committed", **orbax(200)}
    assert steps(marked) == {200: False, 100: True}
    temporary = {name.replace("300/", "300.orbax-checkpoint-tmp-17/"): data for name, data in orbax(300).items()}
    assert steps({**orbax(100), **temporary})[300] is False


def test_15_a_file_of_lightning_that_was_cut_is_not_taken() -> None:
    files: Files = {**lightning(100), **lightning(200)}
    files["epoch=1-step=200.ckpt"] = files["epoch=1-step=200.ckpt"][:-30]
    assert steps(files) == {200: False, 100: True}


def test_15_a_file_named_last_tells_its_step_by_its_content() -> None:
    assert steps({"last.ckpt": torch_file({"global_step": 700})}) == {700: True}


def test_16_an_interrupted_save_beside_whole_ones_changes_nothing_for_them() -> None:
    assert steps({**megatron(100), "iter_0000200/common.pt": b""}) == {200: False, 100: True}


# The list of patterns


def test_an_empty_or_garbled_tracker_is_told_with_its_cure_and_the_folders_tell() -> None:
    for content, words in ((b"", "is empty"), (b"12a", "which is no iteration"), (b"999", "there is no such folder")):
        found, odd = surveyed({**megatron(100), "latest_checkpointed_iteration.txt": content})
        assert [each.may_resume for each in found] == [True], words
        assert words in odd[0]


def test_shards_of_an_earlier_larger_world_are_no_problem() -> None:
    extra = "global_step100/zero_pp_rank_7_mp_rank_00_optim_states.pt"
    assert steps({**deepspeed(100), extra: torch_file({})}) == {100: True}


def test_a_marker_with_a_shard_that_is_shorter_than_it_says() -> None:
    files = {**dcp(100), "step_100/__1_0.distcp": bytes(50)}
    found, _ = surveyed(files)
    assert found[0].problems == ("__1_0.distcp has 50 bytes, and .metadata names 101",)


def test_a_second_save_into_one_folder_is_seen_by_its_times() -> None:
    found, _ = surveyed(dcp(100), later=["step_100/__0_0.distcp"])
    assert not found[0].may_resume
    assert "is newer than .metadata" in found[0].problems[0]


def test_all_incomplete_is_a_persons_decision_and_never_the_beginning() -> None:
    found, _ = surveyed(without({**dcp(100), **dcp(200)}, ".metadata"))
    choice = chosen(*found)
    assert not choice.allowed
    assert len(choice.passed_over) == 2


def test_a_listing_that_was_denied_is_unknown_and_not_empty() -> None:
    choice = chosen(complete=False)
    assert not choice.allowed
    assert "access is denied" in choice.why


def test_two_attempts_interleaved_take_the_newest_of_a_writer_that_lived() -> None:
    lineage = (
        Lineage(attempt=1, began_at=WRITTEN - 2 * HOUR, ended_at=WRITTEN),
        Lineage(attempt=2, began_at=WRITTEN, ended_at=WRITTEN + 2 * HOUR),
    )
    stale = saved(300, attempt=1, hours=1)
    choice = chosen(stale, saved(200, attempt=2, hours=1), lineage=lineage)
    assert resumed_step(choice) == 200
    assert "attempt 1 was over when it was written" in choice.passed_over[0]


def test_metadata_that_names_nothing_is_no_checkpoint() -> None:
    files = {**dcp(100), "step_100/.metadata": dcp_metadata({})}
    assert surveyed(files)[0][0].problems == (".metadata names no part",)
