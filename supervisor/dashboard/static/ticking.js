/* Times that go on: every second each `time[data-tick]` says how long ago or how soon it is, in the words of
   supervisor/wording/figures.py. The clock is the server's: what it said when the page came, plus what passed since.
   `data-tick=""`: "8 s ago", "in 8 s"; `data-tick="age"`: "8 s". */
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

  function told(time, now) {
    const at = Date.parse(time.dateTime);
    const seconds = (now - at) / 1000;
    if (time.dataset.tick === "age") return age(Math.abs(seconds));
    return seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`;
  }

  function tick() {
    if (document.hidden) return;
    const now = Date.now() + ahead;
    for (const time of document.querySelectorAll("time[data-tick]")) {
      const text = told(time, now);
      const node = time.firstChild;
      if (node && node.data !== text && !marked(node)) node.data = text;
    }
  }

  function marked(node) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(node, true);
  }

  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
  window.spot = window.spot || {};
  window.spot.age = age;
  window.spot.told = told;
})();
