from sickbay.catalogue import fault_of
from sickbay.fault_events import News, fault_news
from sickbay.faults import Component, ComponentKind, Fault, Rung


def fault(code: str, kind: ComponentKind = ComponentKind.GPU, name: str = "0000:61:00") -> Fault:
    return fault_of(code, Component(kind=kind, id=name), boot_id="boot-1", evidence=(f"a line of {code}",))


def told(before: list[Fault], after: list[Fault]) -> list[tuple[News, str]]:
    return [(one.news, one.fault.code) for one in fault_news(before, after)]


def test_a_fault_is_told_when_it_opens_when_it_asks_for_more_and_when_it_is_over() -> None:
    lost = fault("gpu-lost")
    more = lost.model_copy(update={"rung": Rung.REPLACE})
    assert told([], [lost]) == [(News.OPENED, "gpu-lost")]
    assert told([lost], [more]) == [(News.ROSE, "gpu-lost")]
    assert told([more], []) == [(News.CLOSED, "gpu-lost")]


def test_a_repeat_is_no_news() -> None:
    lost = fault("gpu-lost")
    assert told([lost], [lost.model_copy(update={"count": 700, "evidence": ("another line",)})]) == []


def test_a_check_without_an_answer_is_news_only_when_that_lasts() -> None:
    silent = fault("check-silent", ComponentKind.MONITOR, "efa")
    lasting = silent.model_copy(update={"rung": Rung.BLOCK_NEW_WORK})
    assert told([], [silent]) == []
    assert told([silent], [lasting]) == [(News.OPENED, "check-silent")]
    assert told([lasting], [silent]) == [(News.CLOSED, "check-silent")]


def test_the_words_tell_where_what_and_what_it_asks_for() -> None:
    (news,) = fault_news([], [fault("gpu-missing")])
    assert news.message.startswith("gpu-missing on gpu 0000:61:00 (")
    assert news.message.endswith(": a line of gpu-missing")
    assert f"asks for {fault('gpu-missing').rung}" in news.message
    assert news.warning


def test_what_is_a_jobs_own_is_told_without_a_warning() -> None:
    (news,) = fault_news([], [fault("xid-31")])
    assert not news.warning
