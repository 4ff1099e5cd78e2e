/* A page that keeps itself up to date, with htmx and its event streams; without them it is a plain page.

   The page (layout.html): `main` has the stream (block `live`: `run=ID` or `runs=a,b,c`). One hidden element requests the
   page again (block `parts`: the ids of what changes) on `sse:refresh`, every 15 seconds, and when a script sends `live:ask`
   to the body. Rows with `sse-swap="run-ID"` are pushed. morph.js puts both in, instead of htmx's own swap.
   Here: that; the banner of a silent stream; no requests while hidden; errors; the announcements to a screen reader. */
(function () {
  "use strict";
  const SILENT_MS = 45000;
  const DOWN_MS = 5000;
  const RENEW_MS = 20000;
  const POLL_MS = 12000; // no poll sooner after the last request
  const ROWS_MAX = 100; // as in dashboard/live.py
  const ERRORS = { 0: "The server cannot be reached.", 404: "What this page shows no longer exists." };
  if (!window.htmx) return;
  const { morph, sources } = window.spot;
  const body = document.body;
  const banner = document.getElementById("silent");
  const notice = document.getElementById("notice");
  const announcer = document.getElementById("announced");
  let newsAt = Date.now();
  let downAt = 0;
  let renewedAt = 0;
  let requestedAt = Date.now();

  /* --- how fresh the page is --- */
  function received() {
    newsAt = Date.now();
    downAt = 0;
    banner.hidden = true;
  }

  function watch() {
    if (document.hidden || !sources.size) return;
    const silent = Date.now() - newsAt > SILENT_MS;
    if (silent && Date.now() - renewedAt > RENEW_MS) {
      renewedAt = Date.now();
      for (const source of sources) source.renew();
    }
    if (!banner.hidden) return;
    if (!silent && !(downAt && Date.now() - downAt > DOWN_MS)) return;
    const why = silent ? "No news for 45 s" : "The connection is down";
    banner.querySelector("span").textContent = `${why}: what you see may be old.`;
    banner.hidden = false;
  }

  document.addEventListener("live:news", received);
  document.addEventListener("live:up", received);
  document.addEventListener("live:down", () => (downAt = downAt || Date.now()));
  document.addEventListener("visibilitychange", () => (newsAt = Date.now()));
  setInterval(watch, 1000);

  /* --- requesting the page again --- */
  function asks(element) {
    return element.hasAttribute("hx-select-oob");
  }

  body.addEventListener("htmx:configRequest", (event) => {
    if (asks(event.detail.elt)) event.detail.path = location.pathname + location.search; // a script may have changed it
  });

  // While the browser signs out, the page is still there and its cookie is not: a refresh would be refused.
  let signingOut = false;
  body.addEventListener("submit", (event) => (signingOut ||= event.target.matches('[action="/ui/sign-out"]')));

  body.addEventListener("htmx:beforeRequest", (event) => {
    if (!asks(event.detail.elt)) return;
    const cause = event.detail.requestConfig.triggeringEvent;
    const poll = cause && cause.type === "hx:poll:trigger";
    if (document.hidden || signingOut || (poll && Date.now() - requestedAt < POLL_MS)) event.preventDefault();
    else requestedAt = Date.now();
  });

  body.addEventListener("htmx:afterRequest", (event) => {
    if (!asks(event.detail.elt) || !event.detail.xhr) return;
    const status = event.detail.xhr.status;
    const failed = status === 0 || status >= 400;
    notice.hidden = !failed || status === 401; // at 401 the browser is on its way to the sign-in
    if (failed) notice.textContent = ERRORS[status] || `This page could not be refreshed (${status}).`;
  });

  /* --- putting it in --- */
  const pushed = new WeakMap(); // row -> when

  body.addEventListener("htmx:oobBeforeSwap", (event) => {
    const wanted = event.detail.fragment.firstElementChild;
    if (!wanted || wanted.id !== event.detail.target.id) return;
    event.detail.shouldSwap = false;
    // A row that was pushed during the request is newer than the response.
    put(event.detail.target, wanted, (element) => pushed.get(element) >= requestedAt);
  });

  body.addEventListener("htmx:sseBeforeMessage", (event) => {
    const wanted = element(event.detail.data);
    if (!wanted || wanted.id !== event.target.id) return;
    event.preventDefault();
    pushed.set(event.target, Date.now());
    put(event.target, wanted);
  });

  function element(markup) {
    const made = document.createElement("template");
    made.innerHTML = markup;
    return made.content.firstElementChild;
  }

  function put(old, wanted, keeps) {
    const before = status();
    const { now, added } = morph(old, wanted, keeps);
    // Existing elements stay bound; htmx would bind a row again whose attributes have changed.
    for (const element of added) window.htmx.process(element);
    if (status() !== before) announce();
    rows();
    document.dispatchEvent(new CustomEvent("live:changed", { detail: now }));
  }

  /* The stream carries the rows that are shown. */
  function rows() {
    const shown = [...document.querySelectorAll('main [sse-swap^="run-"]')].slice(0, ROWS_MAX);
    const names = shown.map((row) => row.getAttribute("sse-swap").slice(4));
    for (const source of sources) if (!source.address.searchParams.has("run")) source.retarget(names);
  }

  /* --- for a screen reader --- */
  function status() {
    const chip = document.getElementById("run-chip");
    return chip ? chip.textContent : "";
  }

  function announce() {
    const sentence = document.getElementById("run-sentence");
    if (sentence) announcer.textContent = sentence.textContent;
  }
})();
