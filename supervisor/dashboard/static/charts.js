/* Charts that can be read. Pointing at a chart shows the time, the step and the value in all charts of the page; dragging
   shows a part of the time. The server has drawn the charts and written every text (drawing/charts.py): `data-moments`
   of the section has [x, time, step] of each point, `data-readings` of a figure has [point, y, value] of each value. The
   time shown is part of the address, and the page is refreshed as always (live.js), so a zoom stays. A figure with points
   of its own has its own `data-moments`. The axis may be the step, or (of several runs) the time since the submit. */
(() => {
  "use strict";
  const WIDTH = 1000; // of x, as in drawing/charts.py
  const DRAG_PX = 4;
  const ZOOM_MIN = 2; // times in an address are whole seconds, and steps are whole
  const RANGE = ["last", "since", "until", "from", "to"];
  const box = document.getElementById("charts");
  if (!box) return;
  const parsed = new WeakMap(); // element -> [text, its JSON]
  let at = null; // the x that is read, null = none
  let drag = null; // { picture, x, px } where the pointer went down

  function json(element, name) {
    const text = element.dataset[name];
    if (parsed.get(element)?.[0] !== text) parsed.set(element, [text, JSON.parse(text)]);
    return parsed.get(element)[1];
  }

  const figures = () => box.querySelectorAll("figure.chart");
  const moments = (figure) => json(figure.dataset.moments ? figure : box, "moments");
  const pictureOf = (event) => event.target.closest(".chart-picture");

  function xOf(picture, event) {
    const area = picture.querySelector(".chart-area").getBoundingClientRect();
    return WIDTH * Math.min(1, Math.max(0, (event.clientX - area.left) / area.width));
  }

  function timeOf(x) {
    const [begin, end] = [Number(box.dataset.begin), Number(box.dataset.end)];
    return begin + ((end - begin) * x) / WIDTH;
  }

  /* --- reading --- */
  function nearest(figure, x) {
    const points = moments(figure);
    const far = ([point]) => Math.abs(points[point][0] - x);
    return json(figure, "readings").reduce((best, reading) => (best && far(best) <= far(reading) ? best : reading), null);
  }

  function read(x) {
    at = x;
    for (const figure of figures()) show(figure, x === null ? null : nearest(figure, x));
  }

  function show(figure, reading) {
    const text = figure.querySelector(".chart-reading");
    const cursor = figure.querySelector(".chart-cursor");
    const dot = figure.querySelector(".chart-dot");
    for (const mark of [cursor, dot]) mark.setAttribute("visibility", reading ? "visible" : "hidden");
    if (!reading) {
      text.textContent = text.dataset.bounds;
      return;
    }
    const [x, time, step] = moments(figure)[reading[0]];
    const place = `${(100 * x) / WIDTH}%`;
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, place);
    dot.setAttribute("cx", place);
    dot.setAttribute("cy", reading[1]);
    const steps = step && figure.dataset.field !== "step" ? [`step ${step}`] : [];
    text.textContent = [time, ...steps, reading[2]].join(" · ");
  }

  function step(figure, by) {
    const points = json(figure, "readings").map(([point]) => point);
    const now = at === null ? (by > 0 ? -1 : points.length) : points.indexOf(nearest(figure, at)?.[0]);
    const next = points[now + by];
    if (next !== undefined) read(moments(figure)[next][0]);
  }

  /* --- zooming --- */
  function zoom(begin, end) {
    if (end - begin < ZOOM_MIN) return;
    if (box.dataset.axis !== "time") return go({ from: Math.max(0, Math.floor(begin)), to: Math.ceil(end) });
    const text = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
    go({ since: text(begin), until: text(end) });
  }

  function around(by) {
    const middle = at === null ? WIDTH / 2 : at;
    zoom(timeOf(middle - (by * WIDTH) / 2), timeOf(middle + (by * WIDTH) / 2));
  }

  function go(times) {
    const address = new URL(location.href);
    for (const name of RANGE) address.searchParams.delete(name);
    for (const [name, text] of Object.entries(times)) address.searchParams.set(name, text);
    if (!window.htmx) return location.assign(address);
    history.replaceState(history.state, "", address);
    document.body.dispatchEvent(new Event("live:ask"));
  }

  function mark(picture, from, to) {
    const pick = picture.querySelector(".chart-pick");
    pick.setAttribute("x", `${(100 * Math.min(from, to)) / WIDTH}%`);
    pick.setAttribute("width", `${(100 * Math.abs(to - from)) / WIDTH}%`);
  }

  /* --- pointer and keys --- */
  box.addEventListener("pointermove", (event) => {
    const picture = drag ? drag.picture : pictureOf(event);
    if (!picture) return read(null);
    picture.closest("figure").querySelector(".chart-reading").removeAttribute("aria-live");
    read(xOf(picture, event));
    if (drag) mark(picture, drag.x, at);
  });
  box.addEventListener("pointerleave", () => drag || read(null));
  box.addEventListener("pointerdown", (event) => {
    const picture = pictureOf(event);
    if (!picture || event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls
    picture.setPointerCapture(event.pointerId);
    drag = { picture, x: xOf(picture, event), px: event.clientX };
  });
  box.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { picture, x, px } = drag;
    const to = xOf(picture, event);
    drag = null;
    mark(picture, 0, 0);
    if (Math.abs(event.clientX - px) >= DRAG_PX) zoom(timeOf(Math.min(x, to)), timeOf(Math.max(x, to)));
  });
  box.addEventListener("dblclick", (event) => pictureOf(event) && go({}));
  box.addEventListener("keydown", (event) => {
    const figure = event.target.closest("figure.chart");
    if (!figure || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => step(figure, -1), ArrowRight: () => step(figure, 1), "+": () => around(0.5), "=": () => around(0.5),
      "-": () => around(2), 0: () => go({}), Escape: () => go({}),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    figure.querySelector(".chart-reading").setAttribute("aria-live", "polite");
    actions[event.key]();
  });

  function ready() {
    for (const picture of box.querySelectorAll(".chart-picture")) picture.tabIndex = 0;
    if (at !== null) read(at); // the refresh has put the bounds in its place
  }

  document.addEventListener("live:changed", ready);
  ready();
})();
