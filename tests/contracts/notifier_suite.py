"""What every notifier promises (ports/notifier.py)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from supervisor.ports.notifier import Notification, Notifier

FIRST = Notification(7, 1, "digits-7", "recovered", "digits-7 is training again.", 1_800_000_000.0, {"step": 12})
SECOND = Notification(8, 2, "digits-7", "completed", "digits-7 is completed.", 1_800_000_060.0, {})
OWN = Notification(9, 1, "", "breaker_opened", "The store is not believed.", 1_800_000_061.0, {"deaths": 4})


class Inbox(ABC):
    """A notifier and what its receiver has got."""

    notifier: Notifier

    @abstractmethod
    def received(self) -> Sequence[tuple[int, str, str]]:
        """(event id, run id, text) of each delivery, in order."""


class NotifierContract:
    """Subclass it with a fixture `inbox`."""

    def test_it_has_a_name(self, inbox: Inbox) -> None:
        assert inbox.notifier.name

    def test_what_is_sent_arrives_in_order(self, inbox: Inbox) -> None:
        for notification in (FIRST, SECOND, OWN):
            inbox.notifier.send(notification)
        assert [(event_id, run_id) for event_id, run_id, _ in inbox.received()] == [
            (7, "digits-7"),
            (8, "digits-7"),
            (9, ""),
        ]
        assert FIRST.text in inbox.received()[0][2]

    def test_sending_twice_is_harmless_and_carries_the_same_id(self, inbox: Inbox) -> None:
        inbox.notifier.send(FIRST)
        inbox.notifier.send(FIRST)
        assert {event_id for event_id, _, _ in inbox.received()} == {7}

    def test_percent_signs_and_line_breaks_are_text(self, inbox: Inbox) -> None:
        odd = Notification(10, 3, "digits-7", "failed", "100 %s done\nor %(not)s", 1_800_000_062.0, {})
        inbox.notifier.send(odd)
        assert "100 %s done" in inbox.received()[0][2]
