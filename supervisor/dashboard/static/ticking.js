/* Relative times: every second each `time[data-tick]` shows how long ago or how soon it is, in the words of
   supervisor/wording/figures.py. The clock is the server's: its time when the page arrived, plus the time since. */
(function () {
  "use strict";
  document.documentElement.dataset.scripts = ""; // style.css shows .scripted
  const page = performance.getEntriesByType("navigation")[0];
  const came = performance.timeOrigin + (page ? page.responseStart : 0);
  const ahead = Number(document.body.dataset.now) * 1000 - came || 0;

  function age(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 60) return `${whole} s`;
    const minutes = Math.floor(whole / 60);
    if (whole < 600) return `${minutes} min` + (whole % 60 ? ` ${whole % 60} s` : "");
    if (whole < 3600) return `${minutes} min`;
    const hours = Math.floor(whole / 3600);
    if (whole < 2 * 86400) {
      return `${hours} h` + (minutes % 60 ? ` ${String(minutes % 60).padStart(2, "0")} min` : "");
    }
    const days = Math.floor(whole / 86400).toLocaleString("en-US");
    return `${days} d` + (hours % 24 ? ` ${hours % 24} h` : "");
  }

  function text(time, now) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    return seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`;
  }

  function tick() {
    if (document.hidden) return;
    const now = Date.now() + ahead;
    for (const time of document.querySelectorAll("time[data-tick]")) {
      const node = time.firstChild;
      const words = text(time, now);
      if (node && node.data !== words && !selected(node)) node.data = words;
    }
  }

  function selected(node) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(node, true);
  }

  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
  window.spot = window.spot || {};
  window.spot.age = age;
})();
