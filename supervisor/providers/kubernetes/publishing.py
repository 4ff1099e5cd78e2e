"""What a preemption of a Job would lose, as its cluster can see it: a label with a time, and a step of priority.

`spot-checkpoint-at` on Job and pod is when the newest verified checkpoint was safe: a time stays true, an age does not.
Kueue adds the annotation of a Workload to its priority, so a larger loss gets a higher step (KEP-7990: Kueue 0.17 and
newer, with its feature gate PriorityBoost). No API shows that gate. A dry run does: where it is on, Kueue refuses a
value that is no number. The account needs the right to patch Workloads, which the Helm chart gives only on request.

The step is also an annotation of the Job, which is written last. So the last listing says what is published, nothing
is stored here, and what was cut off in the middle is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from supervisor.domain.machines import MachineRef
from supervisor.providers.kubernetes.api import Api, ApiError, own
from supervisor.providers.kubernetes.machines import Sighting
from supervisor.providers.kubernetes.settings import KubernetesSettings

CHECKPOINT_LABEL, STEP_MARK = "spot-checkpoint-at", "spot-priority-boost"
KUEUE, JOB_UID_LABEL = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/job-uid"
BOOST, NO_NUMBER = "kueue.x-k8s.io/priority-boost", "spot"
STEP_S, TOP_STEP = 300.0, 8  # the top is from 640 minutes on: the priorities of classes should be farther apart
AGAIN_S = 3600.0  # what the cluster has, and what the account may, is read again after this


def step_of(unsaved_s: float) -> int:
    """0 below five minutes, then one more each time that doubles: few, so that they seldom change."""
    return min(TOP_STEP, int(max(0.0, unsaved_s) / STEP_S).bit_length())


def is_read(s: KubernetesSettings) -> bool:
    """A scheduler of the cluster may preempt by priority."""
    return bool(s.kubernetes_queue or s.kubernetes_priority_class)


class Publisher:
    """`listed(ref)`: the machine in the last listing, None = it is not there. Safe to use from every thread: a value
    that two of them write is the same."""

    def __init__(
        self,
        api: Api,
        s: KubernetesSettings,
        listed: Callable[[MachineRef], Sighting | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._listed, self._monotonic = api, listed, monotonic
        self._has_queue = bool(s.kubernetes_queue)
        self._may_label_at = self._may_boost_at = self._probed_until = float("-inf")

    def publish(self, ref: MachineRef, checkpoint_at: float | None, unsaved_s: float) -> None:
        """As `OpenedProvider.publish`. Raises ProviderUnavailable."""
        job = self._listed(ref)
        if job is None or job.is_deleted or job.is_over or job.is_suspended:
            return
        labels = {} if checkpoint_at is None else {CHECKPOINT_LABEL: str(int(checkpoint_at))}
        is_new = not labels.items() <= job.labels.items()
        step = str(step_of(unsaved_s))
        is_moved = step != (own(job.job, "metadata", "annotations", STEP_MARK) or "0") and self._boost(job.uid, step)
        if (is_new or is_moved) and self._monotonic() >= self._may_label_at:
            self._mark(job, labels if is_new else {}, {STEP_MARK: step} if is_moved else {})

    def _mark(self, job: Sighting, labels: dict[str, str], marks: dict[str, str]) -> None:
        """The Job comes last: what it shows is done."""
        try:
            for pod in job.pods[:1] if labels else ():
                name = str(own(pod, "metadata", "name"))
                self._api.patch(self._api.path("pods", name), {"labels": labels})
            self._api.patch(self._api.jobs(job.name), {"labels": labels, "annotations": marks})
        except ApiError as error:
            if error.status == 403:
                self._may_label_at = self._monotonic() + AGAIN_S
            elif not error.missing:
                raise

    def _boost(self, uid: str, step: str) -> bool:
        """Whether its Workload has this step now. False also where nothing would read it. Raises
        ProviderUnavailable."""
        if not self._has_queue or self._monotonic() < self._may_boost_at:
            return False
        try:
            for workload in self._api.items(self._api.path("workloads", group=KUEUE), f"{JOB_UID_LABEL}={uid}"):
                name = str(own(workload, "metadata", "name"))
                if not self._is_understood(name):
                    self._may_boost_at = self._monotonic() + AGAIN_S
                    return False
                self._api.patch(self._api.path("workloads", name, KUEUE), {"annotations": {BOOST: step}})
                return True
        except ApiError as error:
            if error.missing:
                return False
            if error.status >= 500 or error.status in (409, 429):
                raise
            # A definite no: the right, the version of Kueue (404 without a reason), or the dry run is not there.
            self._may_boost_at = self._monotonic() + AGAIN_S
        return False

    def _is_understood(self, name: str) -> bool:
        """Kueue reads the annotation: its webhook refuses what is no number. Raises ApiError of another refusal."""
        if self._monotonic() < self._probed_until:
            return True
        try:
            self._api.patch(
                self._api.path("workloads", name, KUEUE), {"annotations": {BOOST: NO_NUMBER}}, is_dry_run=True
            )
        except ApiError as error:
            if BOOST not in error.message:
                raise
            self._probed_until = self._monotonic() + AGAIN_S
            return True
        return False
