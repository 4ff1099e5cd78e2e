// One chart that can be pointed at: a figure's uPlot, its line from the points of the API, attempts in the background.
// Colours are those that the picture of the server has: read from the same classes, so light and dark come by themselves.
(() => {
  "use strict";
  const { boundsText, markText, timeMark, valueText } = window.spotChartWords;
  const METRIC = "metric ";
  const MARK_PX = 76, TIMES_PX = 24;
  const ROUND = Array.from({ length: 600 }, (_, n) => [1, 2, 5].map((size) => Number(`${size}e${n - 300}`))).flat();

  /** A metric may be named `constructor`: only what the point itself has is a value. */
  function valueOf(point, field) {
    const [told, name] = field.startsWith(METRIC) ? [point.metrics, field.slice(METRIC.length)] : [point, field];
    return Object.hasOwn(told, name) ? told[name] : null;
  }

  /** Times and values; nothing where the line is cut. A point without a value cuts nothing by itself. */
  function columns(points, field) {
    const times = [], values = [], steps = [];
    let cut = false, before = null;
    for (const point of points) {
      const at = Date.parse(point.at) / 1000, value = valueOf(point, field);
      cut = cut || point.gap;
      if (value === null) continue;
      if (cut && before !== null && at > before) {
        times.push((before + at) / 2); values.push(null); steps.push(null);
      }
      times.push(at); values.push(value); steps.push(point.step);
      cut = false; before = at;
    }
    return { data: [times, values], steps };
  }

  /** Class -> colour, as the browser resolves it now. */
  function colours(figure) {
    const found = {};
    const probe = document.createElement("span");
    figure.append(probe);
    for (const name of ["line", "band", "even", "grid", "mark"]) {
      probe.className = name === "even" ? "chart-band even" : `chart-${name}`;
      found[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    return found;
  }

  /** The attempts, before anything else is drawn. `bands()`: [number, begin, end or null] each. */
  function background(bands, colour, font) {
    return (u) => {
      const { ctx, bbox } = u, ratio = window.devicePixelRatio || 1;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.font = `600 ${11 * ratio}px ${font}`;
      ctx.textBaseline = "top";
      ctx.textAlign = "left";
      for (const [number, begin, end] of bands()) {
        const left = Math.max(bbox.left, u.valToPos(begin, "x", true));
        const right = Math.min(bbox.left + bbox.width, u.valToPos(end ?? u.scales.x.max, "x", true));
        if (!(right > left)) continue;
        ctx.fillStyle = number % 2 ? colour.band : colour.even;
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        if (right - left < ctx.measureText(number).width + 8 * ratio) continue;
        ctx.fillStyle = colour.mark;
        ctx.fillText(number, left + 4 * ratio, bbox.top + 3 * ratio);
      }
      ctx.restore();
    };
  }

  /** Room above and below a line; bounds that the figure names are always shown. As plot.value_range does. */
  function range(floor, ceiling) {
    return (u, low, high) => {
      const shown = [low, high, floor, ceiling].filter((value) => value !== null && Number.isFinite(value));
      if (!shown.length) return [0, 1];
      const least = Math.max(-1e300, Math.min(...shown)), most = Math.min(1e300, Math.max(...shown));
      const size = Math.max(Math.abs(least), Math.abs(most));
      if (most - least <= 1e-9 * size || most === least) {
        const room = 0.1 * size || 1;
        return [floor ?? least - room, most + room];
      }
      const pad = 0.06 * (most - least);
      return [least === floor ? least : least - pad, most === ceiling ? most : most + pad];
    };
  }

  /** The places of points between two cuts: a line of one point is nothing to see, so each is a dot, as plot.path has it. */
  const lonely = ({ data: [, values] }) =>
    values.flatMap((value, at) => (value !== null && (values[at - 1] ?? values[at + 1] ?? null) === null ? [at] : []));

  const bound = (text) => (text === undefined ? null : Number(text));

  /** A uPlot in this figure's room. `times()`: begin and end that are shown; `told(u)`: the pointer has moved;
      `picked(begin, end)`: somebody dragged; `all()`: double click. */
  function make(figure, points, { bands, times, told, picked, all }) {
    const { field, unit, height } = figure.dataset;
    const room = figure.querySelector(".chart-room"), colour = colours(figure);
    const font = getComputedStyle(figure).fontFamily, found = columns(points, field);
    const axis = { stroke: colour.mark, font: `11px ${font}`, ticks: { show: false }, grid: { stroke: colour.grid, width: 1 } };
    const apart = (marks) => (marks.length > 1 ? marks[1] - marks[0] : Math.abs(marks[0]) || 1);
    const plot = new uPlot({
      width: Math.max(120, room.clientWidth),
      height: Number(height) + TIMES_PX + 8,
      padding: [8, 18, 0, 0],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      legend: { show: false },
      scales: { x: { time: true, range: () => times() }, y: { range: range(bound(figure.dataset.floor), bound(figure.dataset.ceiling)) } },
      series: [{}, {
        label: figure.querySelector(".chart-title").textContent,
        stroke: colour.line, width: 1.75, spanGaps: false,
        points: { show: false, filter: lonely, size: 5, fill: colour.line },
      }],
      axes: [
        { ...axis, size: TIMES_PX, space: 64, grid: { show: false }, values: (u, marks, index, space, step) => marks.map((mark) => timeMark(mark, step)) },
        { ...axis, size: MARK_PX, space: 28, incrs: ROUND, values: (u, marks) => marks.map((mark) => markText(mark, apart(marks), unit)) },
      ],
      cursor: {
        y: false,
        points: { size: 7 },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        bind: { dblclick: () => () => { all(); return null; } },
        sync: { key: "charts", scales: ["x", null], setSeries: false, filters: { pub: (kind) => kind === "mousemove" || kind === "mouseleave" } },
      },
      hooks: {
        drawClear: [background(bands, colour, font)],
        setCursor: [(u) => told(u)],
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const begin = u.posToVal(u.select.left, "x"), end = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          picked(begin, end);
        }],
      },
    }, found.data, room);
    plot.spot = { figure, times, steps: found.steps };
    describe(plot);
    return plot;
  }

  /** New points; the zoom stays. */
  function refill(plot, points) {
    const found = columns(points, plot.spot.figure.dataset.field);
    plot.spot.steps = found.steps;
    plot.setData(found.data, false);
    rescale(plot);
    describe(plot);
  }

  /** The newest figure, and the lowest and highest of those that are drawn. */
  function describe(plot) {
    const { figure } = plot.spot, { unit } = figure.dataset;
    const values = plot.data[1].filter((value) => value !== null);
    plot.spot.bounds = boundsText(values, unit);
    figure.querySelector(".chart-last").textContent = values.length ? valueText(values.at(-1), unit) : "";
    if (plot.cursor.idx == null) figure.querySelector(".chart-reading").textContent = plot.spot.bounds;
  }

  function rescale(plot) {
    const [min, max] = plot.spot.times();
    plot.setScale("x", { min, max });
  }

  window.spotChartPlot = { make, refill, rescale, columns, METRIC };
})();
