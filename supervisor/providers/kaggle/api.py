"""Kaggle's API by its own client, kagglesdk: the requests that sessions need, with a deadline and typed errors.

The client is imported with the first request, and asked for nothing but what its request classes have. It sets no
deadline and would look for a login of its own, so both are given here. A token that is refused is read again with the
next request. After 429 nothing is sent until the time that Kaggle names.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from supervisor.machinefolder.secrets import SecretUnreadable, read
from supervisor.ports.provider import ProviderUnavailable, Responded
from supervisor.providers.kaggle.downloads import part
from supervisor.providers.kaggle.kernels import version_label
from supervisor.wording.figures import clock_text

CONNECT_S, READ_S = 10.0, 30.0
PAGE = 100  # the most that kaggle-cli asks for
MOST_PAGES = 100
PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0  # after 429
TEXT_CHARS = 600
AGENT = "spot-supervisor"
LOGIN_REFUSED = (
    "Kaggle refuses the token (401): it has expired or was revoked. Make a new one in your account's settings on "
    "Kaggle, and put it where kaggle_token points"
)


class KaggleError(Responded):
    """Kaggle refused a request. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Kaggle responds with {status}: {message}")
        self.status, self.message = status, message

    @property
    def may_be_missing(self) -> bool:
        """Of a private notebook that does not exist Kaggle says that access is denied."""
        return self.status in (403, 404)


@dataclass(frozen=True, slots=True)
class Hours:
    """The weekly hours of one kind of accelerator, in seconds. None = not given."""

    used_s: float
    reserved_s: float
    allowed_s: float | None


@dataclass(frozen=True, slots=True)
class Weekly:
    """The hours of this week. `resets_at`: epoch seconds; None = Kaggle does not say."""

    resets_at: float | None
    gpu: Hours | None
    tpu: Hours | None


@dataclass(frozen=True, slots=True)
class Push:
    """A version to save and run. `internet`: whether its session has it. `inputs`: notebooks (user/slug) whose output
    it sees."""

    slug: str
    source: str
    machine_shape: str
    gpu: bool
    tpu: bool
    timeout_s: int
    image: str
    internet: bool = True
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Of a notebook's newest version. `internet` None = not said."""

    kernel_id: int
    text: str
    internet: bool | None
    machine_shape: str


class Api:
    """`user`: whose notebooks these are. `token`: a reference. `now`: epoch seconds. `transport()`: an adapter of
    requests; None = the network. Safe to use from every thread."""

    def __init__(
        self, user: str, token: str, now: Callable[[], float], transport: Callable[[], Any] | None = None
    ) -> None:
        self.user, self._token, self._now = user, token, now
        self._transport = transport
        self._lock = threading.Lock()
        self._idle: list[Any] = []  # clients that no thread uses: each has connections of its own
        self._quiet_until = 0.0

    # --- notebooks ----------------------------------------------------------------------------------------------------

    def slugs(self) -> dict[str, int]:
        """Slug -> id of all our user's notebooks, also private ones. Raises ProviderUnavailable: also where a page is
        missing, so that nothing is taken as absent."""
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelsRequest
        from kagglesdk.kernels.types.kernels_enums import KernelsListSortType, KernelsListViewType

        ids: dict[str, int] = {}
        token = ""
        for _ in range(MOST_PAGES):
            request = ApiListKernelsRequest()
            request.group = KernelsListViewType.PROFILE
            request.sort_by = KernelsListSortType.DATE_CREATED
            request.page_size = PAGE
            if token:
                request.page_token = token
            page = self._call("list_kernels", request)
            for kernel in page.kernels or ():
                owner, _, slug = str(kernel.ref or "").strip("/").removeprefix("code/").rpartition("/")
                if owner.lower() == self.user.lower() and slug:
                    ids[slug] = int(kernel.id)
            token = page.next_page_token or ""
            if not token:
                return ids
        raise Responded("Kaggle's list of notebooks has no end")

    def source(self, slug: str) -> Source:
        from kagglesdk.kernels.types.kernels_api_service import ApiGetKernelRequest

        request = ApiGetKernelRequest()
        request.user_name, request.kernel_slug = self.user, slug
        response = self._call("get_kernel", request)
        meta, blob = response.metadata, response.blob
        if meta is None or blob is None:
            raise Responded(f"Kaggle's response for the notebook {slug} has no source")
        return Source(int(meta.id), blob.source or "", meta.enable_internet, meta.machine_shape or "")

    def status(self, slug: str, version: int) -> tuple[str, str]:
        """(Kaggle's word, the message of a failure) of the session of this version."""
        from kagglesdk.kernels.types.kernels_api_service import ApiGetKernelSessionStatusRequest

        request = ApiGetKernelSessionStatusRequest()
        request.user_name, request.kernel_slug, request.version_label = self.user, slug, version_label(version)
        response = self._call("get_kernel_session_status", request)
        return response.status.name, _line(response.failure_message or "")

    def push(self, push: Push) -> tuple[int, str]:
        """(id of the notebook, the refusal in Kaggle's words or "")."""
        from kagglesdk.kernels.types.kernels_api_service import ApiSaveKernelRequest
        from kagglesdk.kernels.types.kernels_enums import KernelExecutionType

        request = ApiSaveKernelRequest()
        request.slug, request.new_title, request.text = f"{self.user}/{push.slug}", push.slug, push.source
        request.language, request.kernel_type = "python", "notebook"
        request.is_private, request.enable_internet = True, push.internet
        request.enable_gpu, request.enable_tpu = push.gpu, push.tpu
        if push.machine_shape:
            request.machine_shape = push.machine_shape
        if push.image:
            request.docker_image = push.image
        if push.inputs:
            request.kernel_data_sources = list(push.inputs)
        request.session_timeout_seconds = push.timeout_s
        request.kernel_execution_type = KernelExecutionType.SAVE_AND_RUN_ALL
        response = self._call("save_kernel", request)
        return int(response.kernel_id or 0), _line(response.error or "")

    def cancel(self, session_id: int) -> str:
        """Why it was not accepted; "" = it was."""
        from kagglesdk.kernels.types.kernels_api_service import ApiCancelKernelSessionRequest

        request = ApiCancelKernelSessionRequest()
        request.kernel_session_id = session_id
        return _line(self._call("cancel_kernel_session", request).error_message or "")

    def delete_notebook(self, slug: str) -> None:
        """A notebook that does not exist is success."""
        from kagglesdk.kernels.types.kernels_api_service import ApiDeleteKernelRequest

        request = ApiDeleteKernelRequest()
        request.user_name, request.kernel_slug = self.user, slug
        try:
            refusal = self._call("delete_kernel", request).error_message
        except KaggleError as error:
            if not error.may_be_missing or slug in self.slugs():
                raise
            return
        if refusal:
            raise Responded(f"Kaggle does not delete the notebook {slug}: {_line(refusal)}")

    def log(self, slug: str, version: int) -> bytes:
        """What the session has printed, as far as Kaggle gives it."""
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelSessionOutputRequest

        request = ApiListKernelSessionOutputRequest()
        request.user_name, request.kernel_slug, request.version_label = self.user, slug, version_label(version)
        request.page_size = 1
        return log_text(self._call("list_kernel_session_output", request).log or "").encode(errors="replace")

    def outputs(self, slug: str, version: int) -> dict[str, str]:
        """Name -> address of every file that this version has left. The addresses are good for a while, and for
        everybody who has them. Raises ProviderUnavailable: also where a page is missing."""
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelSessionOutputRequest

        files: dict[str, str] = {}
        token = ""
        for _ in range(MOST_PAGES):
            request = ApiListKernelSessionOutputRequest()
            request.user_name, request.kernel_slug, request.version_label = self.user, slug, version_label(version)
            request.page_size = PAGE
            if token:
                request.page_token = token
            page = self._call("list_kernel_session_output", request)
            files |= {str(file.file_name): str(file.url) for file in page.files or ()}
            token = page.next_page_token or ""
            if not token:
                return files
        raise Responded(f"Kaggle's list of the output of {slug} has no end")

    def part(self, url: str, offset: int, length: int) -> tuple[int | None, Iterator[bytes]]:
        """As `part` of downloads.py, of an address of `outputs`."""
        return part(adapter if self._transport is None else self._transport, url, offset, length)

    def quota(self) -> Weekly:
        from kagglesdk.kernels.types.kernels_api_service import ApiGetAcceleratorQuotaStatisticsRequest

        response = self._call("get_accelerator_quota_statistics", ApiGetAcceleratorQuotaStatisticsRequest())
        resets: datetime | None = response.quota_refresh_time  # UTC, without saying so
        resets_at = None if resets is None else (resets if resets.tzinfo else resets.replace(tzinfo=UTC)).timestamp()
        return Weekly(resets_at, _hours(response.gpu_quota), _hours(response.tpu_quota))

    def close(self) -> None:
        with self._lock:
            clients, self._idle = self._idle, []
        for client in clients:
            client.http_client().__exit__(None, None, None)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _call(self, method: str, request: Any) -> Any:
        """Raises KaggleError, ProviderUnavailable."""
        import requests

        if self._now() < self._quiet_until:
            until = clock_text(self._quiet_until, self._now())
            raise ProviderUnavailable(f"Kaggle limits the number of our requests (429): the next one is at {until}")
        client = self._taken()
        try:
            response = getattr(client.kernels.kernels_api_client, method)(request)
        except requests.HTTPError as error:
            raise self._refusal(error) from None
        except (requests.RequestException, OSError) as error:
            raise ProviderUnavailable(f"Kaggle does not respond to {method}: {type(error).__name__}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"Kaggle's response to {method} is not what its client expects: {_line(str(error))}"
            raise Responded(text) from error
        with self._lock:
            self._idle.append(client)
        return response

    def _refusal(self, error: Any) -> ProviderUnavailable:
        response = error.response
        status = 0 if response is None else int(response.status_code)
        if status == 401:
            self.close()  # the next request reads the token again
            return ProviderUnavailable(LOGIN_REFUSED)
        if status == 429:
            text = response.headers.get("Retry-After", "")
            pause_s = min(float(text) if text.isdigit() else PAUSE_S, LONGEST_PAUSE_S)
            self._quiet_until = self._now() + pause_s
            return ProviderUnavailable(f"Kaggle limits the number of our requests (429), for {pause_s:g} s")
        message = _line(str(error))
        if status >= 500 or status == 0:
            return ProviderUnavailable(f"Kaggle responds with {status}: {message}")
        return KaggleError(status, message)

    def _taken(self) -> Any:
        """A client that no other thread uses. Raises ProviderUnavailable."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        from kagglesdk.kaggle_client import KaggleClient
        from kagglesdk.kaggle_env import KaggleEnv

        client = KaggleClient(env=KaggleEnv.PROD, user_agent=AGENT, **self._login())
        http = client.http_client()
        http.__enter__()
        # The client has no way to set a deadline but its session, which is not a part of its interface.
        session = getattr(http, "_session", None)
        if session is None:
            raise ProviderUnavailable("this version of kagglesdk takes no deadline: install an older one")
        session.mount("https://", adapter() if self._transport is None else self._transport())
        return client

    def _login(self) -> Mapping[str, str]:
        """Raises ProviderUnavailable, without a word of what may be a credential."""
        try:
            value = read(self._token).strip()
        except SecretUnreadable as error:
            raise ProviderUnavailable(f"kaggle_token: {error}") from None
        if not value.startswith("{"):
            return {"api_token": value}
        try:
            both = json.loads(value)
            return {"username": str(both["username"]), "password": str(both["key"])}
        except (ValueError, KeyError, TypeError):
            text = f"kaggle_token: {self._token} is neither a token nor the content of kaggle.json"
            raise ProviderUnavailable(text) from None


def adapter() -> Any:
    """Of requests, with deadlines."""
    from requests.adapters import HTTPAdapter

    class Deadlines(HTTPAdapter):
        def send(self, *args: Any, **kwargs: Any) -> Any:
            return super().send(*args, **{**kwargs, "timeout": (CONNECT_S, READ_S)})

    return Deadlines()


def log_text(log: str) -> str:
    """Kaggle keeps a log as a list of {"stream_name", "time", "data"}; anything else is shown as it is."""
    try:
        return "".join(str(part["data"]) for part in json.loads(log))
    except (ValueError, KeyError, TypeError):
        return log


def _hours(quota: Any) -> Hours | None:
    if quota is None:
        return None
    used, reserved, allowed = (
        None if part is None else part.total_seconds()
        for part in (quota.time_used, quota.time_reserved, quota.total_time_allowed)
    )
    return Hours(used or 0.0, reserved or 0.0, allowed)


def _line(text: str) -> str:
    return " ".join(text.split())[:TEXT_CHARS]
