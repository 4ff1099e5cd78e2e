// Figures and times beside charts, in the words of the server (dashboard/drawing/axis.py): always with a unit, times in UTC.
(() => {
  "use strict";
  const SHORT = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const SCIENTIFIC_FROM = 1e7, SCIENTIFIC_BELOW = 1e-4, LONG_FROM = 1e9, DIGITS = 4;

  const trimmed = (text) => (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);
  const grouped = (value, decimals) =>
    value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  const power = (text) => text.replace("e+", "e");

  function decimals(value, step) {
    return grouped(value, Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9))));
  }

  function shortened(value, step, unit) {
    for (const [size, letter] of SHORT) {
      if (Math.abs(value) >= size) return `${decimals(value / size, step / size)} ${letter}${unit}`;
    }
    return `${decimals(value, step)} ${unit}`.trim();
  }

  /** Beside an axis whose marks lie `step` apart. */
  function markText(value, step, unit) {
    if (unit === "percent") return `${decimals(value, step)} %`;
    if (unit === "bytes") return value ? shortened(value, step, "B") : "0 B";
    if (unit === "steps") return shortened(value, step, "").replace(" ", "");
    if (value === 0) return "0";
    if (Math.abs(value) >= LONG_FROM || step < SCIENTIFIC_BELOW) {
      const digits = Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(step));
      return power(value.toExponential(Math.max(0, Math.min(6, digits))));
    }
    return decimals(value, step);
  }

  function metricText(value) {
    const size = Math.abs(value);
    if (size !== 0 && (size >= SCIENTIFIC_FROM || size < SCIENTIFIC_BELOW)) {
      const [head, tail] = power(value.toExponential(DIGITS - 1)).split("e");
      return `${trimmed(head)}e${tail}`;
    }
    const whole = size >= 1 ? String(Math.floor(size)).length : 0;
    const leading = size > 0 && size < 1 ? -Math.floor(Math.log10(size)) - 1 : 0;
    return trimmed(grouped(value, Math.max(0, DIGITS - whole) + leading));
  }

  /** A slow training takes long for a step; spot.age is that of static/ticking.js. */
  function rateText(value) {
    if (value <= 0 || value >= 0.1) return `${grouped(value, 1)} steps/s`;
    return `${window.spot?.age ? window.spot.age(1 / value) : `${Math.floor(1 / value)} s`} per step`;
  }

  function sizeText(bytes) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let amount = Math.round(bytes);
    while (amount >= 1000 && units.length > 1) {
      amount /= 1000;
      units.shift();
    }
    return `${amount.toFixed(amount >= 100 || units[0] === "B" ? 0 : 1)} ${units[0]}`;
  }

  /** In words of its own: `12,300`, `3.1 steps/s`, `87.5 %`, `24.1 GB`, `0.3112`. */
  function valueText(value, unit) {
    if (unit === "steps") return grouped(value, 0);
    if (unit === "rate") return rateText(value);
    if (unit === "percent") return `${trimmed(value.toFixed(1))} %`;
    if (unit === "bytes") return sizeText(value);
    return metricText(value);
  }

  /** What a line shows besides its newest figure. */
  function boundsText(values, unit) {
    if (!values.length) return "";
    const lowest = values.reduce((a, b) => Math.min(a, b)), highest = values.reduce((a, b) => Math.max(a, b));
    const [low, high] = [valueText(lowest, unit), valueText(highest, unit)];
    if (low !== high) return `lowest ${low}, highest ${high}`;
    return values.length === 1 ? "one point" : lowest === highest ? "always the same" : "nearly the same";
  }

  const day = (at) => new Date(at * 1000).toLocaleDateString("en-US", { month: "short", day: "numeric", timeZone: "UTC" });
  const clock = (at, digits) => new Date(at * 1000).toISOString().slice(11, 11 + digits);

  /** `Nov 22, 09:31:00 UTC` */
  const timeText = (at) => `${day(at)}, ${clock(at, 8)} UTC`;

  /** Beside an axis whose marks lie `step` seconds apart. */
  const timeMark = (at, step) => (at % 86_400 === 0 ? day(at) : clock(at, step < 60 ? 8 : 5));

  /** Of the round lengths that a point may stand for. */
  const ageText = (s) => (s < 3600 ? `${s / 60} min` : s <= 86_400 ? `${s / 3600} h` : `${s / 86_400} d`);

  /** As the API wants a time: whole seconds. */
  const moment = (at) => `${new Date(at * 1000).toISOString().slice(0, 19)}Z`;

  window.spotChartWords = { ageText, boundsText, markText, valueText, timeText, timeMark, moment };
})();
