/* Follows a growing log: requests new lines as rows from the server, and appends them.

   Only while the page is visible and Follow is on; scrolling up pauses it, scrolling to the end continues. At most
   LINES_MAX rows stay in the page. An incomplete line is requested again and replaced. `#L123` in the address loads the
   part of the log that has the line. */
(function () {
  "use strict";
  const TIMEOUT_MS = 15000; // of a request, and the longest wait after errors
  const LINES_MAX = 5000;
  const NEAR_PX = 40;
  const log = document.getElementById("log");
  if (!log) return;
  const PACE_MS = Number(log.dataset.pace || 1500);

  /* --- a line in the address --- */
  function show() {
    const wanted = /^#L([1-9][0-9]{0,14})$/.exec(location.hash);
    if (!wanted) return false;
    const row = document.getElementById("L" + wanted[1]);
    if (row) {
      row.scrollIntoView({ block: "center" });
      return true;
    }
    if (!log.dataset.here) return false;
    const there = new URL(log.dataset.here, location.href);
    if (new URLSearchParams(location.search).get("line") === wanted[1]) return false; // there is no such line
    there.searchParams.set("line", wanted[1]);
    there.hash = wanted[0];
    location.replace(there);
    return true;
  }
  const jumped = show();
  window.addEventListener("hashchange", show);

  /* --- following --- */
  const button = document.getElementById("log-follow");
  if (!button || !log.dataset.lines) return;
  let resume = log.dataset.resume;
  let failures = 0;
  let timer = 0;
  let busy = false;
  let over = false;

  function pressed() {
    return button.getAttribute("aria-pressed") === "true";
  }

  function press(on) {
    button.setAttribute("aria-pressed", String(on));
    if (on) soon(0);
  }

  function atEnd() {
    return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
  }

  function toEnd() {
    log.scrollTop = log.scrollHeight;
  }

  /** The end of the log may be below the window. */
  function scrollToEnd() {
    toEnd();
    log.scrollIntoView({ block: "nearest" });
  }

  function soon(after) {
    clearTimeout(timer);
    timer = setTimeout(request, after);
  }

  async function request() {
    if (busy || over || !pressed() || document.hidden) return;
    busy = true;
    let wait = PACE_MS;
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const response = await fetch(`${log.dataset.lines}&${resume}`, { headers: { Accept: "text/html" }, signal });
      if (response.status === 401 || response.redirected) {
        location.reload();
        return;
      }
      if (!response.ok) throw new Error(String(response.status));
      wait = put(await response.text()) ? 0 : PACE_MS;
      failures = 0;
    } catch {
      failures += 1;
      wait = Math.min(TIMEOUT_MS, PACE_MS * 2 ** failures);
    } finally {
      busy = false;
    }
    if (over) end();
    else soon(wait);
  }

  /** Returns true where there is more already. */
  function put(text) {
    const made = new DOMParser().parseFromString(text, "text/html").querySelector("[data-resume]");
    if (!made) throw new Error("no rows");
    const rows = [...made.querySelectorAll(".log-row")];
    const end = atEnd();
    if (made.dataset.whole) log.replaceChildren();
    if (rows.length) {
      log.querySelectorAll(".log-row.open").forEach((row) => row.remove());
      document.getElementById("log-empty")?.remove();
      log.append(...rows.filter((row) => !row.id || !document.getElementById(row.id)));
      set("log-last", made.dataset.last);
      set("log-lines", made.dataset.lines);
      set("log-size", made.dataset.size);
    }
    const all = log.getElementsByClassName("log-row");
    for (let extra = all.length - LINES_MAX; extra > 0; extra -= 1) all[0].remove();
    resume = made.dataset.resume;
    over = made.dataset.complete === "1";
    if (end) toEnd();
    return made.dataset.more === "1";
  }

  function set(id, text) {
    const place = document.getElementById(id);
    if (place) place.textContent = text;
  }

  function end() {
    button.setAttribute("aria-pressed", "false");
    button.disabled = true;
    button.textContent = "Complete";
  }

  button.addEventListener("click", () => {
    const on = !pressed();
    press(on);
    if (on) scrollToEnd();
  });
  log.addEventListener("scroll", () => {
    if (over) return;
    if (pressed() && !atEnd()) press(false);
    else if (!pressed() && atEnd()) press(true);
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) soon(0);
  });
  if (jumped) press(false);
  else scrollToEnd();
  soon(PACE_MS);
})();
