"""The host layer's rules on readings of our own making."""

from datetime import UTC, datetime, timedelta

import pytest

from sickbay.checks import CheckMoment, CheckOutcome, CheckResult, HostFacts
from sickbay.faults import Rung
from sickbay.file_readings import FileReadings, Process, ProcessCount
from sickbay.host_layer.clock import STA_UNSYNC, ClockReading, judge_clock
from sickbay.host_layer.disks import judge_disks
from sickbay.host_layer.driver_files import judge_driver_files
from sickbay.host_layer.gpu_devices import judge_gpu_devices
from sickbay.host_layer.memory import judge_memory
from sickbay.host_layer.processes import judge_processes
from sickbay.host_layer.services import UnitReadings, judge_services, needs_fabric_manager, units_from

BOOT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SILENT = FileReadings(silent="no answer in time")


def moment(
    minutes: float = 60, *, memory: str = "", host: HostFacts | None = None, gpus: int | None = None
) -> CheckMoment:
    now = BOOT + timedelta(minutes=minutes)
    facts = host or HostFacts(pci_known=True)
    return CheckMoment(now=now, boot_id="boot-1", boot_seen_at=BOOT, host=facts, memory=memory, expected_gpus=gpus)


def codes(outcome: CheckOutcome) -> set[tuple[str, str]]:
    return {(fault.code, fault.component.id) for fault in outcome.faults}


def test_nothing_that_was_not_read_is_ever_well() -> None:
    unread = (
        judge_driver_files(SILENT, moment(), 600),
        judge_processes(SILENT, moment()),
        judge_memory(SILENT, moment()),
        judge_disks(SILENT, moment()),
        judge_gpu_devices(SILENT, moment()),
        judge_clock(ClockReading(refused="not permitted"), moment()),
        judge_services(SILENT, UnitReadings(silent="no bus"), moment(host=HostFacts(pci_nvswitches=("a",))), 600),
    )
    assert {outcome.result for outcome in unread} == {CheckResult.UNKNOWN}
    assert all(outcome.why for outcome in unread)


def driver(module: str, library: str, modules: tuple[str, ...] = ("nvidia", "nvidia_uvm")) -> FileReadings:
    link = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    return FileReadings(
        texts={"/sys/module/nvidia/version": module} if module else {},
        links={link: f"libnvidia-ml.so.{library}"} if library else {},
        names={"/sys/module": modules},
    )


def test_a_library_of_another_version_is_a_matter_of_software_detection_8_25() -> None:
    (fault,) = judge_driver_files(driver("570.10.1", "575.20.2"), moment(), 600).faults
    assert (fault.code, fault.fault_class, fault.rung) == ("driver-mismatch", "driver", Rung.HUMAN)
    assert "570.10.1" in fault.evidence[0]
    assert "575.20.2" in fault.evidence[0]


def test_a_driver_whose_parts_agree_is_well() -> None:
    assert judge_driver_files(driver("570.10.1", "570.10.1"), moment(), 600).result is CheckResult.HEALTHY


def test_the_module_s_version_is_also_found_in_proc() -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.10.1  Release Build\nGCC version: 13.2.0"
    readings = driver("", "570.10.1").model_copy(update={"texts": {"/proc/driver/nvidia/version": text}})
    assert judge_driver_files(readings, moment(), 600).result is CheckResult.HEALTHY


def test_a_module_may_come_late_and_must_come() -> None:
    absent = driver("", "570.10.1", modules=())
    assert judge_driver_files(absent, moment(5), 600).result is CheckResult.STARTING
    assert codes(judge_driver_files(absent, moment(11), 600)) == {("driver-not-loaded", "nvidia")}


def test_a_module_that_its_first_user_loads_is_told_and_no_fault() -> None:
    outcome = judge_driver_files(driver("570.10.1", "570.10.1", ("nvidia",)), moment(), 600)
    assert (outcome.result, "nvidia_uvm" in outcome.why) == (CheckResult.HEALTHY, True)


KTHREADD = Process(pid=2, name="kthreadd", state="S", started=0)


def running(*processes: Process, zombies: int = 0) -> FileReadings:
    return FileReadings(processes=(KTHREADD, *processes), process_count=ProcessCount(total=300, zombies=zombies))


def stuck(name: str = "python3", *, started: int = 77, stack: str = "", waits_in: str = "") -> Process:
    return Process(pid=900, name=name, state="D", started=started, stack=stack, waits_in=waits_in)


def look_each_minute(*looks: FileReadings, every: float = 1) -> CheckOutcome:
    memory, outcome = "", judge_processes(running(), moment())
    for index, readings in enumerate(looks):
        outcome = judge_processes(readings, moment(60 + index * every, memory=memory))
        memory = outcome.memory
    return outcome


@pytest.mark.parametrize(
    "process",
    [
        stuck("nvidia-smi"),
        stuck(stack="[<0>] rm_wait+0x10/0x20 [nvidia]\n[<0>] x64_sys_ioctl+0x1/0x2"),
        stuck(waits_in="uvm_gpu_retain"),
    ],
)
def test_five_looks_at_a_process_that_hangs_in_the_driver_are_a_fault_detection_8_20(process: Process) -> None:
    assert look_each_minute(*[running(process)] * 4).result is CheckResult.HEALTHY
    assert codes(look_each_minute(*[running(process)] * 5)) == {("driver-hung", "nvidia")}


def test_a_process_that_hangs_elsewhere_is_told_and_disturbs_nobody() -> None:
    (fault,) = look_each_minute(*[running(stuck("mount.nfs", waits_in="nvme_wait"))] * 5).faults
    assert (fault.code, fault.rung) == ("hung-task", Rung.NONE)


def test_looks_in_quick_succession_do_not_make_a_hang() -> None:
    assert look_each_minute(*[running(stuck("nvidia-smi"))] * 8, every=0.1).result is CheckResult.HEALTHY


def test_another_process_of_the_same_number_or_a_pause_starts_anew() -> None:
    other = [running(stuck("nvidia-smi", started=index)) for index in range(8)]
    assert look_each_minute(*other).result is CheckResult.HEALTHY
    paused = [running(stuck("nvidia-smi"))] * 4 + [running()] + [running(stuck("nvidia-smi"))] * 4
    assert look_each_minute(*paused).result is CheckResult.HEALTHY


def test_a_job_that_is_often_in_the_driver_and_goes_on_does_not_hang() -> None:
    job = stuck(stack="[<0>] uvm_migrate+0x10/0x20 [nvidia_uvm]")
    going_on = [running(job.model_copy(update={"switches": 100 + look})) for look in range(9)]
    assert look_each_minute(*going_on).result is CheckResult.HEALTHY
    still = [running(job.model_copy(update={"switches": 100}))] * 5
    assert codes(look_each_minute(*going_on, *still)) == {("driver-hung", "nvidia")}


def test_a_tool_of_the_driver_that_polls_for_minutes_hangs_all_the_same() -> None:
    polling = [running(stuck("nvidia-smi").model_copy(update={"switches": 100 * look})) for look in range(5)]
    assert codes(look_each_minute(*polling)) == {("driver-hung", "nvidia")}


def test_a_container_s_own_processes_are_not_the_host_s() -> None:
    outcome = judge_processes(FileReadings(process_count=ProcessCount(total=3, zombies=0)), moment())
    assert outcome.result is CheckResult.UNKNOWN
    assert "hostPID" in outcome.why


def test_many_zombies_are_told() -> None:
    assert codes(judge_processes(running(zombies=1000), moment())) == {("zombie-processes", "host")}


EDAC = "/sys/devices/system/edac/mc/mc1"
MEMINFO = {"/proc/meminfo": "MemTotal: 1000 kB\nHardwareCorrupted:     0 kB"}


def test_an_uncorrected_error_of_host_memory_is_no_gpu_s_fault_detection_8_24() -> None:
    readings = FileReadings(texts={**MEMINFO, f"{EDAC}/ue_count": "1"})
    (fault,) = judge_memory(readings, moment()).faults
    assert (fault.code, fault.component.kind, fault.fault_class) == ("host-memory-uncorrected", "memory", "host")


def test_corrected_errors_count_by_their_growth() -> None:
    def counted(value: int) -> FileReadings:
        return FileReadings(texts={**MEMINFO, f"{EDAC}/ce_count": str(value)})

    first = judge_memory(counted(5000), moment(60))
    assert first.result is CheckResult.HEALTHY
    assert judge_memory(counted(5010), moment(61, memory=first.memory)).result is CheckResult.HEALTHY
    assert codes(judge_memory(counted(5011), moment(61, memory=first.memory))) == {("host-memory-corrected", "mc1")}


def test_pages_that_were_given_up_are_told_and_a_kernel_that_counts_nothing_is_not_judged() -> None:
    lost = FileReadings(texts={"/proc/meminfo": "MemTotal: 1000 kB\nHardwareCorrupted:     8 kB"})
    assert codes(judge_memory(lost, moment())) == {("host-memory-pages-lost", "unknown")}
    bare = FileReadings(texts={"/proc/meminfo": "MemTotal: 1000 kB"})
    assert judge_memory(bare, moment()).result is CheckResult.NOT_APPLICABLE
    words = FileReadings(texts={**MEMINFO, f"{EDAC}/ue_count": "none"})
    assert judge_memory(words, moment()).result is CheckResult.UNKNOWN


def disks(*mounts: str, **states: str) -> FileReadings:
    lines = [f"{20 + index} 1 {mount}" for index, mount in enumerate(mounts)]
    texts = {f"/sys/class/nvme/{name}/state": state for name, state in states.items()}
    return FileReadings(texts={"/proc/1/mountinfo": "\n".join(lines), **texts})


ROOT = "259:1 / / rw shared:1 - xfs /dev/nvme0n1p1 rw,attr2"
DATA = "259:9 / /data rw shared:1 - ext4 /dev/nvme1n1 {},errors=remount-ro"


def test_a_pod_s_volume_that_is_given_out_read_only_after_it_was_written_is_no_fault_of_the_node() -> None:
    volume = "259:7 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount rw - ext4 /dev/nvme3n1 {}"
    pod = "259:7 / /var/lib/kubelet/pods/1/volumes/x/mount rw - ext4 /dev/nvme3n1 {}"
    memory = judge_disks(disks(ROOT, volume.format("rw"), pod.format("rw")), moment()).memory
    later = judge_disks(disks(ROOT, volume.format("ro"), pod.format("ro")), moment(61, memory=memory))
    assert later.result is CheckResult.HEALTHY


def test_a_file_system_that_turned_read_only_is_a_fault_detection_8_19() -> None:
    first = judge_disks(disks(ROOT, DATA.format("rw")), moment())
    assert first.result is CheckResult.HEALTHY
    turned = judge_disks(disks(ROOT, DATA.format("ro")), moment(61, memory=first.memory))
    assert codes(turned) == {("filesystem-readonly", "nvme1n1")}
    again = judge_disks(disks(ROOT, DATA.format("ro")), moment(62, memory=turned.memory))
    assert codes(again) == {("filesystem-readonly", "nvme1n1")}


def test_read_only_mounts_and_images_that_were_never_writable_are_none() -> None:
    pod = "259:1 /x /var/lib/kubelet/pods/1/volumes/a ro shared:1 - xfs /dev/nvme0n1p1 rw,attr2"
    assert judge_disks(disks(ROOT, pod, DATA.format("ro")), moment()).result is CheckResult.HEALTHY


def test_the_file_system_that_the_kubelet_writes_to_must_be_writable() -> None:
    root = ROOT.replace("nvme0n1p1 rw", "nvme0n1p1 ro")
    assert codes(judge_disks(disks(root), moment())) == {("filesystem-readonly", "nvme0n1p1")}
    var = "259:3 / /var rw shared:1 - ext4 /dev/nvme0n1p3 rw"
    assert judge_disks(disks(root, var), moment()).result is CheckResult.HEALTHY


def test_a_dead_controller_is_lost_and_a_resetting_one_gets_a_second_look() -> None:
    assert codes(judge_disks(disks(ROOT, nvme0="live", nvme1="dead"), moment())) == {("nvme-lost", "nvme1")}
    first = judge_disks(disks(ROOT, nvme1="resetting"), moment())
    assert first.result is CheckResult.HEALTHY
    assert codes(judge_disks(disks(ROOT, nvme1="dead"), moment(61, memory=first.memory))) == {("nvme-lost", "nvme1")}
    second = judge_disks(disks(ROOT, nvme1="connecting"), moment(61, memory=first.memory))
    assert codes(second) == {("nvme-not-live", "nvme1")}


def test_a_controller_whose_volume_is_being_detached_is_dead_for_one_look_and_not_lost() -> None:
    first = judge_disks(disks(ROOT, nvme1="live", nvme2="live"), moment())
    detaching = judge_disks(disks(ROOT, nvme1="live", nvme2="dead"), moment(61, memory=first.memory))
    assert (detaching.result, detaching.faults) == (CheckResult.UNKNOWN, ())
    assert judge_disks(disks(ROOT, nvme1="live"), moment(62, memory=detaching.memory)).result is CheckResult.HEALTHY
    still = judge_disks(disks(ROOT, nvme1="live", nvme2="dead"), moment(62, memory=detaching.memory))
    assert codes(still) == {("nvme-lost", "nvme2")}


def bus(*slots: int) -> FileReadings:
    start = "/sys/bus/pci/devices"
    names = {start: tuple(f"0000:{slot:02x}:00.0" for slot in slots)}
    uevent = "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330"
    return FileReadings(names=names, texts={f"{start}/{name}/uevent": uevent for name in names[start]})


def test_gpus_missing_on_the_bus_are_counted_against_the_operator_s_word_or_the_instance_type() -> None:
    p5 = HostFacts(instance_type="p5.48xlarge", pci_known=True)
    assert judge_gpu_devices(bus(*range(8)), moment(host=p5)).result is CheckResult.HEALTHY
    assert codes(judge_gpu_devices(bus(*range(7)), moment(host=p5))) == {("gpu-missing", "unknown")}
    assert judge_gpu_devices(bus(*range(7)), moment(host=p5, gpus=7)).result is CheckResult.HEALTHY
    g6f = HostFacts(instance_type="g6f.large", pci_known=True)
    assert judge_gpu_devices(bus(), moment(host=g6f)).result is CheckResult.HEALTHY


def test_a_gpu_that_left_the_bus_in_this_boot_is_named_at_the_second_look() -> None:
    first = judge_gpu_devices(bus(0x51, 0x52), moment())
    second = judge_gpu_devices(bus(0x51), moment(61, memory=first.memory))
    assert (second.result, second.faults) == (CheckResult.UNKNOWN, ())
    assert codes(judge_gpu_devices(bus(0x51), moment(62, memory=second.memory))) == {("gpu-missing", "0000:52:00")}
    back = judge_gpu_devices(bus(0x51, 0x52), moment(62, memory=second.memory))
    assert back.result is CheckResult.HEALTHY
    assert judge_gpu_devices(bus(0x51), moment(63, memory=back.memory)).faults == ()


def test_shares_of_a_gpu_that_its_host_lends_to_guests_may_come_and_go() -> None:
    whole = bus(0x51)
    name = "0000:51:00.4"
    start = "/sys/bus/pci/devices"
    shared = FileReadings(
        names={start: (*whole.names[start], name)},
        texts={**whole.texts, f"{start}/{name}/uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330"},
        links={f"{start}/{name}/physfn": "../0000:51:00.0"},
    )
    first = judge_gpu_devices(shared, moment())
    second = judge_gpu_devices(whole, moment(61, memory=first.memory))
    assert (second.result, second.why) == (CheckResult.HEALTHY, "1 GPUs on the PCI bus")


SWITCHED = HostFacts(pci_nvswitches=("0000:c0:00",), pci_known=True)
MANAGER = Process(pid=7, name="nv-fabricmanage", state="S", started=9)


def unit(name: str, active: str, load: str = "loaded") -> UnitReadings:
    text = f"Id={name}.service\nLoadState={load}\nActiveState={active}\nSubState=x\nResult=exit-code\n"
    return UnitReadings(units=units_from(f"{text}\nId=other.service\nActiveState=active\n"))


def test_a_dead_fabric_manager_is_a_fault_though_gpus_call_their_fabric_complete_detection_8_15() -> None:
    for systemd in (unit("nvidia-fabricmanager", "failed"), UnitReadings(silent="no bus")):
        outcome = judge_services(running(), systemd, moment(host=SWITCHED), 600)
        assert codes(outcome) == {("fabric-manager-down", "unknown")}
        assert outcome.faults[0].rung is Rung.HUMAN


def test_a_fabric_manager_that_is_being_restarted_is_no_fault() -> None:
    def judged(active: str, minutes: float, memory: str) -> CheckOutcome:
        now = moment(minutes, host=SWITCHED, memory=memory)
        return judge_services(running(), unit("nvidia-fabricmanager", active), now, 600)

    well = judged("active", 60, "")
    restarted = judged("deactivating", 61, well.memory)
    assert (restarted.result, restarted.faults) == (CheckResult.UNKNOWN, ())
    assert codes(judged("activating", 62, restarted.memory)) == {("fabric-manager-down", "unknown")}
    assert judged("active", 62, restarted.memory).result is CheckResult.HEALTHY


def test_a_fabric_manager_runs_as_a_process_or_as_a_unit() -> None:
    process = judge_services(running(MANAGER), UnitReadings(silent="no bus"), moment(host=SWITCHED), 600)
    container = FileReadings(process_count=ProcessCount(total=2, zombies=0))
    service = judge_services(container, unit("nvidia-fabricmanager", "active"), moment(host=SWITCHED), 600)
    assert {process.result, service.result} == {CheckResult.HEALTHY}


def test_a_zombie_is_no_fabric_manager() -> None:
    zombie = MANAGER.model_copy(update={"state": "Z"})
    outcome = judge_services(running(zombie), UnitReadings(silent="no bus"), moment(host=SWITCHED), 600)
    assert outcome.result is CheckResult.FAULTS


def test_a_fabric_manager_may_come_late_and_where_nobody_can_see_it_that_is_unknown() -> None:
    late = judge_services(running(), unit("nvidia-fabricmanager", "activating"), moment(3, host=SWITCHED), 600)
    assert late.result is CheckResult.STARTING
    blind = judge_services(FileReadings(), UnitReadings(silent="systemctl: no bus"), moment(host=SWITCHED), 600)
    assert blind.result is CheckResult.UNKNOWN
    assert "SICKBAY_SERVICE_COMMAND" in blind.why


def test_only_hosts_with_switches_of_their_own_need_a_fabric_manager() -> None:
    assert needs_fabric_manager(HostFacts(instance_type="p6-b200.48xlarge"))
    assert needs_fabric_manager(HostFacts(gpu_product="NVIDIA B200"))
    assert not needs_fabric_manager(HostFacts(gpu_product="NVIDIA GB200"))
    board = HostFacts(gpu_product="NVIDIA B200", pci_known=True, pci_gpus=tuple(f"0000:{n:02x}:00" for n in range(8)))
    assert needs_fabric_manager(board)
    assert not needs_fabric_manager(board.model_copy(update={"pci_gpus": board.pci_gpus[:1]}))
    assert not needs_fabric_manager(HostFacts(gpu_product="NVIDIA A100-PCIE-40GB"))


def test_failed_units_beside_the_driver_are_told() -> None:
    outcome = judge_services(running(), unit("nvidia-imex", "failed"), moment(), 600)
    assert codes(outcome) == {("imex-down", "host")}
    persistence = judge_services(running(), unit("nvidia-persistenced", "failed"), moment(), 600)
    assert codes(persistence) == {("persistence-service-down", "nvidia")}


def test_a_clock_that_is_kept_no_longer_is_told_and_disturbs_nobody() -> None:
    kept = judge_clock(ClockReading(status=1, max_error=900), moment())
    assert kept.result is CheckResult.HEALTHY
    lost = ClockReading(status=STA_UNSYNC | 1, max_error=16_000_000)
    (fault,) = judge_clock(lost, moment(memory=kept.memory)).faults
    assert (fault.code, fault.rung) == ("clock-unsynchronised", Rung.NONE)


def test_a_clock_that_was_never_kept_may_be_the_hypervisor_s_and_is_no_fault() -> None:
    outcome = judge_clock(ClockReading(status=STA_UNSYNC, max_error=16_000_000), moment())
    assert outcome.result is CheckResult.HEALTHY
    assert "nobody" in outcome.why
