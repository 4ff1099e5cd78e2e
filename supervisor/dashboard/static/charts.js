// The charts of a page: uPlot in the place of the pictures as soon as their points have come. All of them show the same
// time; dragging shows a part of it (asked for anew, so that weeks become minutes), and on a page of charts that part
// stands in the address. New points come by themselves while somebody looks, and change no zoom.
(() => {
  "use strict";
  const EVERY_MS = 30_000, WAIT_MS = 150;
  const box = document.querySelector("[data-charts]");
  if (!box || !window.uPlot) return;
  const { make, refill, rescale, METRIC } = window.spotChartPlot;
  const { ageText, valueText, timeText, moment } = window.spotChartWords;
  const { charts: run, page, points: most } = box.dataset;
  let figures = [...box.querySelectorAll("figure.chart")];
  const isOver = "over" in box.dataset, ahead = Number(box.dataset.now) - Date.now() / 1000; // of our clock
  const LASTS_S = { hour: 3600, day: 86_400 };

  let asked = { last: box.dataset.last ?? "", since: box.dataset.since ?? "", until: box.dataset.until ?? "" };
  let bands = JSON.parse(box.dataset.bands);
  let shown = [Number(box.dataset.begin), Number(box.dataset.end)];
  let series = null, plots = [], turn = 0, soon = 0, status = chip();

  function chip() {
    return document.getElementById("run-chip")?.textContent;
  }

  const isRanged = () => Boolean(asked.last || asked.since || asked.until);

  function question() {
    const query = new URLSearchParams({ points: most });
    const since = asked.last ? moment(Date.now() / 1000 + ahead - LASTS_S[asked.last]) : asked.since;
    if (since) query.set("since", since);
    if (asked.until && !asked.last) query.set("until", asked.until);
    return query;
  }

  async function get(path) {
    const signal = AbortSignal.timeout(EVERY_MS);
    const answer = await fetch(`/ui/v1/runs/${encodeURIComponent(run)}/${path}`, { headers: { Accept: "application/json" }, signal });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  /** Where this fails what is drawn stays: that nothing comes any more is told by the page's own banner. */
  async function refresh() {
    const mine = ++turn;
    let found, told;
    try {
      [found, told] = await Promise.all([get(`beats?${question()}`), get("attempts")]);
    } catch {
      return;
    }
    if (mine !== turn) return; // another time was asked for meanwhile
    series = found;
    bands = told.attempts.map((one) => [one.number, seconds(one.started_at), one.ended_at && seconds(one.ended_at)]);
    const begin = seconds(series.since);
    shown = [begin, Math.max(begin + 1, isRanged() || !isOver ? seconds(series.until) : lastOf(series.points, told.attempts))];
    tellOfTime();
    if (isNew()) await adopt().catch(() => {});
    else if (plots.length) plots.forEach((plot) => refill(plot, series.points));
    else draw();
  }

  const seconds = (text) => Date.parse(text) / 1000;

  /** Nobody wants to see the weeks since the end of a run. */
  const lastOf = (points, attempts) =>
    Math.max(0, ...points.slice(-1).map((one) => seconds(one.at)), ...attempts.filter((one) => one.ended_at).map((one) => seconds(one.ended_at)));

  function draw() {
    plots.forEach((plot) => plot.destroy());
    plots = figures.map((figure) => {
      figure.querySelector(".chart-picture").setAttribute("hidden", "");
      const plot = make(figure, series.points, { bands: () => bands, times: () => shown, told: read, picked: zoom, all: everything });
      reach(figure, plot);
      return plot;
    });
    box.querySelectorAll(".charts-hint").forEach((hint) => { hint.hidden = !figures.length; });
  }

  /** By keyboard, and for whoever hears the page: what the picture said. */
  function reach(figure, plot) {
    const room = figure.querySelector(".chart-room"), reading = figure.querySelector(".chart-reading");
    room.tabIndex = 0;
    room.setAttribute("role", "img");
    room.setAttribute("aria-label", `${figure.querySelector(".chart-title").textContent}: ${figure.querySelector("desc").textContent}`);
    room.onkeydown = (event) => {
      const act = { ArrowLeft: () => step(plot, -1), ArrowRight: () => step(plot, 1), "+": () => nearer(plot, 0.5), "=": () => nearer(plot, 0.5), "-": () => nearer(plot, 2), 0: everything, Escape: everything }[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      reading.setAttribute("aria-live", "polite");
      act();
    };
    room.onpointermove = () => reading.removeAttribute("aria-live");
  }

  /** The next point with a value, in the time that is shown. */
  function step(plot, by) {
    const [times, values] = plot.data;
    let index = plot.cursor.idx ?? (by > 0 ? -1 : times.length);
    do index += by; while (index >= 0 && index < times.length && (values[index] === null || times[index] < shown[0]));
    if (index < 0 || index >= times.length || times[index] > shown[1]) return;
    plot.setCursor({ left: plot.valToPos(times[index], "x"), top: plot.bbox.height / 2 / devicePixelRatio });
  }

  function nearer(plot, by) {
    const middle = plot.cursor.idx == null ? (shown[0] + shown[1]) / 2 : plot.data[0][plot.cursor.idx];
    const half = (by * (shown[1] - shown[0])) / 2;
    zoom(Math.max(shown[0] - half, middle - half), middle + half);
  }

  function read(plot) {
    if (!plot.spot) return; // it is being made
    const { figure, steps } = plot.spot, { field, unit } = figure.dataset, index = plot.cursor.idx;
    const value = index == null ? null : plot.data[1][index];
    const told = value == null ? plot.spot.bounds : [
      timeText(plot.data[0][index]),
      ...(field === "step" || steps[index] === null ? [] : [`step ${valueText(steps[index], "steps")}`]),
      valueText(value, unit),
    ].join(" · ");
    figure.querySelector(".chart-reading").textContent = told;
  }

  function zoom(begin, end) {
    if (!(end - begin >= 2)) return; // times of an address are whole seconds
    asked = { last: "", since: moment(begin), until: moment(end) };
    shown = [begin, end];
    show();
  }

  function everything() {
    asked = { last: "", since: "", until: "" };
    show();
  }

  function show() {
    if (page) {
      const query = new URLSearchParams(Object.entries(asked).filter(([, text]) => text));
      history.replaceState(history.state, "", page + (isRanged() ? `?${query}` : ""));
      box.querySelectorAll(".charts-head a").forEach((link) => link.removeAttribute("aria-current"));
      if (!isRanged()) box.querySelector("[data-all]").setAttribute("aria-current", "true");
    }
    if (isRanged()) plots.forEach(rescale);
    clearTimeout(soon);
    soon = setTimeout(refresh, WAIT_MS);
  }

  /** What the page says of the time that is shown. */
  function tellOfTime() {
    if (!page) return;
    for (const [name, at] of [["since", shown[0]], ["until", shown[1]]]) {
      const field = box.querySelector(`#${name}`);
      if (field !== document.activeElement) field.value = moment(at);
    }
    box.querySelector("[data-every]").textContent = series.every_s ? `Each point stands for ${ageText(series.every_s)}.` : "";
    box.querySelector("[data-json]").href = `/ui/v1/runs/${encodeURIComponent(run)}/beats?${question()}`;
  }

  /** Whether a figure is told that the page had no picture of when it was made. */
  function isNew() {
    const drawn = new Set(figures.map((figure) => figure.dataset.field));
    const isDrawn = (name) => drawn.has(METRIC + name);
    if (!page && figures.length) return false; // an overview shows a few of them
    return series.points.some((point) => !figures.length || Object.keys(point.metrics).some((name) => !isDrawn(name)));
  }

  /** The pictures as the server makes them now. */
  async function adopt() {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(EVERY_MS) });
    if (!answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#charts .charts-grid");
    if (!made) return;
    box.querySelector(".charts-grid").replaceWith(document.adoptNode(made));
    figures = [...box.querySelectorAll("figure.chart")];
    draw();
  }

  new ResizeObserver(() => plots.forEach((plot) => {
    const room = plot.spot.figure.querySelector(".chart-room");
    plot.setSize({ width: Math.max(120, room.clientWidth), height: plot.height });
  })).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (series) draw(); });
  document.addEventListener("live:changed", () => {
    if (chip() === status) return;
    status = chip();
    refresh(); // an attempt has begun or ended
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (!document.hidden && !isOver) refresh(); }, EVERY_MS);
  refresh();
})();
