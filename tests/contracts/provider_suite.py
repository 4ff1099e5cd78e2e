"""What every provider promises (Provider in ports/provider.py), as tests that each implementation runs.

The disasters are in a suite of their own: a cloud has only the first half of the contract.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, HostFacts, Machine
from supervisor.domain.profile import Profile, Source, Stops
from supervisor.ports.provider import (
    ImageMissing,
    KeepsMachines,
    LaunchRejected,
    NotSupported,
    ProviderUnavailable,
    SecretRefused,
)
from tests.contracts.provider_subject import Subject, ref

SECRET = "a very secret value 7261"


def without_connection(host: HostFacts) -> HostFacts:
    return replace(host, at=0.0, host_key=None, login_accepted=None, login_s=None, dropped_at=None)


class ProviderContract:
    """Subclass it with a fixture `subject`."""

    def test_offers_say_where_and_for_how_much(self, subject: Subject) -> None:
        offers = subject.provider.offers()
        assert offers
        assert all(offer.placement.provider == subject.provider.name for offer in offers)

    def test_what_a_machine_has_for_the_training_is_said_in_a_few_words(self, subject: Subject) -> None:
        shapes = {offer.placement.shape for offer in subject.provider.offers()} | set(subject.gpus)
        told = {shape: subject.provider.gpus(shape) for shape in shapes}
        assert {shape: words for shape, words in told.items() if shape in subject.gpus} == subject.gpus
        assert all(words == " ".join(words.split()) and len(words) <= 40 for words in told.values())
        for never in ("", "never-offered", "0x!/+1x", "ä" * 300):
            assert subject.provider.gpus(never) == ""
        with subject.all_unreadable():
            assert {shape: subject.provider.gpus(shape) for shape in shapes} == told

    def test_the_profile_sends_no_request_and_belongs_to_the_kind(self, subject: Subject) -> None:
        zones = ["", "never-offered", *{offer.placement.zone for offer in subject.provider.offers()}]

        def profiles() -> dict[str, Profile]:
            """A host's readings without how the connection is now: that is known without a request, and changes."""
            each = {zone: subject.provider.profile(zone) for zone in zones}
            return {
                zone: profile if profile.host is None else replace(profile, host=without_connection(profile.host))
                for zone, profile in each.items()
            }

        before = profiles()
        assert {profile.kind for profile in before.values()} == {subject.provider.traits.kind}
        with subject.all_unreadable():
            assert profiles() == before

    def test_the_profile_says_what_stops_the_meter_and_what_that_leaves(self, subject: Subject) -> None:
        profile = subject.provider.profile()
        if profile.meter_stop.value:
            assert profile.meter_verb is not None, "what stops the meter is one of the verbs"
            assert profile.meter_verb.stops_meter.value in (Stops.YES, None)
        if subject.provider.traits.rented:
            assert profile.meter_stop.value != "", "a rented machine is billed"
        assert all(verb.end is not None or not verb.stops_meter.is_known for verb in profile.verbs)
        assert profile.tiers
        assert all(tier.name and tier.paths for tier in profile.tiers)

    def test_no_cap_of_a_disk_is_documented(self, subject: Subject) -> None:
        """It is measured on the machine, or a user says it."""
        caps = [cap for tier in subject.provider.profile().tiers for cap in (tier.bytes_cap, tier.inodes_cap)]
        assert not [cap for cap in caps if cap.is_known and cap.source is Source.DOCUMENTED]

    def test_a_digest_is_its_own_pin_and_what_is_no_image_is_missing(self, subject: Subject) -> None:
        exact = f"127.0.0.1:9/train@sha256:{'b' * 64}"
        pinned = subject.provider.pin(exact)
        assert pinned in ("", exact)
        if pinned:
            with pytest.raises(ImageMissing, match="Not An Image"):
                subject.provider.pin("Not An Image")

    def test_it_keeps_machines_where_its_traits_say_so(self, subject: Subject) -> None:
        assert not subject.provider.traits.keeps or isinstance(subject.provider, KeepsMachines)

    def test_a_launched_machine_comes_up_with_its_labels(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        assert machine.machine_id
        assert (machine.name, machine.zone) == (request.name, request.placement.zone)
        assert (machine.supervisor_id, machine.run_id, machine.launch_id) == ("supervisor-one", "digits", "1.1.1")
        assert machine.labels[SUPERVISOR_LABEL] == "supervisor-one"
        assert machine.labels[RUN_LABEL] == "digits"
        assert machine.labels[LAUNCH_LABEL] == "1.1.1"
        assert machine.created_at is not None
        assert machine.record is None

    def test_a_repeated_launch_finds_the_first_ones_machine(self, subject: Subject) -> None:
        request = subject.request()
        first = subject.up(request)
        again = subject.provider.launch(request)
        assert again.machine_id == first.machine_id
        assert [m.machine_id for m in subject.provider.machines().machines] == [first.machine_id]

    def test_many_launches_of_one_request_at_once_make_one_machine(self, subject: Subject) -> None:
        request = subject.request()
        start = threading.Barrier(20)

        def launch(_: int) -> Machine | None:
            start.wait(30)
            with suppress(ProviderUnavailable):  # it takes longer than this call may
                return subject.provider.launch(request)
            return None

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(launch, range(20)))
        machine = subject.eventually(lambda: subject.listed(request), "the machine to be listed")
        assert {m.machine_id for m in answers if m is not None} <= {machine.machine_id}
        assert len(subject.provider.machines().machines) == 1

    def test_a_name_that_another_launch_has_is_refused_and_left_alone(self, subject: Subject) -> None:
        request = subject.request()
        first = subject.up(request)
        with pytest.raises(LaunchRejected, match=request.name):
            subject.provider.launch(replace(request, launch_id="1.2.1"))
        assert subject.listed(request) == first

    def test_a_placement_that_is_not_offered_is_refused(self, subject: Subject) -> None:
        request = subject.request()
        elsewhere = replace(request, placement=replace(request.placement, zone="nowhere-z"))
        with pytest.raises(LaunchRejected, match="nowhere-z"):
            subject.provider.launch(elsewhere)
        assert subject.listed(elsewhere) is None

    def test_the_list_tells_machines_of_every_supervisor_apart(self, subject: Subject) -> None:
        ours = subject.up(subject.request())
        theirs = subject.up(subject.request(run="other", zone=1, supervisor_id="supervisor-two"))
        listed = {m.machine_id: m.supervisor_id for m in subject.provider.machines().machines}
        assert listed == {ours.machine_id: "supervisor-one", theirs.machine_id: "supervisor-two"}

    def test_find_asks_for_one_machine_by_name_and_id(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        assert subject.provider.find(ref(request)) == machine
        assert subject.provider.find(ref(request, machine.machine_id)) == machine
        assert subject.provider.find(ref(request, machine.machine_id + "9")) is None
        assert subject.provider.find(ref(subject.request(run="never"))) is None

    def test_a_released_machine_is_gone_and_the_others_stay(self, subject: Subject) -> None:
        request, other = subject.request(), subject.request(run="other")
        machine, stays = subject.up(request), subject.up(other)
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)
        assert subject.provider.find(ref(request)) is None
        assert subject.listed(other) == stays

    def test_a_release_is_safe_to_repeat_and_a_missing_machine_is_success(self, subject: Subject) -> None:
        request = subject.request()
        subject.up(request)
        for _ in range(3):
            subject.provider.release(ref(request))
        subject.provider.release(ref(subject.request(run="never")))
        subject.gone(request)
        subject.provider.release(ref(request))

    def test_a_release_leaves_a_machine_with_another_id_alone(self, subject: Subject) -> None:
        request, other = subject.request(), subject.request(run="other")
        machine = subject.up(request)
        subject.up(other)
        subject.provider.release(ref(request, machine.machine_id + "9"))
        subject.provider.release(ref(other))
        subject.gone(other)  # so long a release takes
        assert subject.listed(request) == machine
        assert subject.provider.find(ref(request, machine.machine_id)) == machine

    def test_asking_a_missing_machine_to_stop_does_nothing(self, subject: Subject) -> None:
        stays = subject.up(subject.request())
        for missing in (ref(subject.request(run="never")), ref(subject.request(), stays.machine_id + "9")):
            with suppress(NotSupported):
                subject.provider.ask_to_stop(missing)
        assert subject.provider.find(ref(subject.request())) == stays

    def test_the_console_of_a_missing_machine_is_empty(self, subject: Subject) -> None:
        assert subject.provider.console(ref(subject.request(run="never"))) == b""

    def test_what_cannot_be_read_is_unknown_not_absent(self, subject: Subject) -> None:
        request, other = subject.request(), subject.request(run="other", zone=1)
        machine, seen = subject.up(request), subject.up(other)
        with subject.unreadable(request):
            listing = subject.provider.machines()
            assert request.placement.zone in listing.unreachable
            assert seen in listing.machines
            with pytest.raises(ProviderUnavailable):
                subject.provider.find(ref(request, machine.machine_id))
        assert subject.provider.machines().unreachable == frozenset()
        assert subject.listed(request) == machine

    def test_when_nothing_can_be_read_no_listing_says_that_a_zone_is_empty(self, subject: Subject) -> None:
        """There is none, or it names each zone that it looks at as unread."""
        request = subject.request()
        machine = subject.up(request)
        with subject.all_unreadable():
            with suppress(ProviderUnavailable):
                listing = subject.provider.machines()
                assert listing.machines == ()
                assert request.placement.zone in listing.unreachable
                assert listing.unreachable == listing.zones
                assert all(listing.reasons[zone] for zone in listing.unreachable)
            with pytest.raises(ProviderUnavailable):
                subject.provider.find(ref(request))
            with pytest.raises(ProviderUnavailable):
                subject.provider.release(ref(request))
        assert subject.listed(request) == machine

    def test_secrets_are_read_at_the_launch_and_shown_nowhere(self, subject: Subject) -> None:
        reference = subject.keep_secret(SECRET)
        request = replace(subject.request(), secrets={"API_KEY": reference})
        assert subject.provider.check_secrets([reference]) == {reference: ""}
        machine = subject.up(request)
        assert SECRET not in repr((request, machine, subject.provider.machines()))
        assert SECRET.encode() not in subject.provider.console(ref(request, machine.machine_id))

    def test_a_secret_that_cannot_be_read_refuses_the_launch_by_name(self, subject: Subject) -> None:
        good, bad = subject.keep_secret("another value"), subject.keep_secret(SECRET)
        subject.spoil_secret(bad)
        request = replace(subject.request(), secrets={"GOOD": good, "BAD_ONE": bad})
        with pytest.raises(SecretRefused, match="secret BAD_ONE") as refused:
            subject.provider.launch(request)
        assert SECRET not in f"{refused.value}{refused.value.__cause__}"
        assert subject.listed(request) is None
        told = subject.provider.check_secrets([good, bad])
        assert told[good] == ""
        assert told[bad]
        assert SECRET not in told[bad]
        subject.spoil_secret(bad, spoilt=False)
        assert subject.provider.check_secrets([bad]) == {bad: ""}
        assert subject.up(request).machine_id

    def test_a_machine_that_is_there_needs_its_secrets_no_more(self, subject: Subject) -> None:
        reference = subject.keep_secret(SECRET)
        request = replace(subject.request(), secrets={"API_KEY": reference})
        first = subject.up(request)
        subject.spoil_secret(reference)
        assert subject.provider.launch(request).machine_id == first.machine_id
