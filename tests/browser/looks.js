// What eyes and fingers need of a page, computed from the styles and boxes that the browser has made of it. Answers with
// one sentence for each fault: `contrast` of every text on what is really behind it, `places` for a narrow window.
(what) => {
  const LEAST_CONTRAST = 4.5, LEAST_TARGET_PX = 24;
  const seen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const told = (element) => {
    const classes = [...element.classList].map((one) => `.${one}`).join("");
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
    return `${element.localName}${element.id ? `#${element.id}` : ""}${classes} "${text}"`;
  };

  // [red, green, blue, opacity], each 0 to 1
  const colours = new Map();
  const colour = (text) => {
    if (!colours.has(text)) {
      const parts = (text.match(/[\d.]+(e-?\d+)?%?/g) || []).map((part) => part.endsWith("%") ? parseFloat(part) / 100 : Number(part));
      const scale = text.startsWith("rgb") ? 255 : 1;
      if (!/^(rgba?\(|color\(srgb )/.test(text)) throw new Error(`a colour that this cannot read: ${text}`);
      colours.set(text, [...parts.slice(0, 3).map((part) => part / scale), parts.length > 3 ? parts[3] : 1]);
    }
    return colours.get(text);
  };
  const over = (front, back) => {
    const alpha = front[3] + back[3] * (1 - front[3]);
    if (!alpha) return [0, 0, 0, 0];
    const mixed = [0, 1, 2].map((at) => (front[at] * front[3] + back[at] * back[3] * (1 - front[3])) / alpha);
    return [...mixed, alpha];
  };
  const light = ([red, green, blue]) => {
    const linear = [red, green, blue].map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ratio = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };

  const canvas = getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches)
    ? [0.07, 0.07, 0.07, 1] : [1, 1, 1, 1];
  const faded = (element) => {
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity);
    return opacity;
  };
  const layersOf = (element) => {
    if (element.closest("svg")) {
      const box = element.getBoundingClientRect();
      element.scrollIntoView({ block: "center", inline: "center" });
      const now = element.getBoundingClientRect();
      return document.elementsFromPoint(now.x + box.width / 2, now.y + box.height / 2)
        .filter((one) => !one.matches("text, tspan") && !element.contains(one))
        .map((one) => one instanceof SVGGeometryElement ? [one, getComputedStyle(one).fill, Number(getComputedStyle(one).fillOpacity)] : [one, getComputedStyle(one).backgroundColor, 1]);
    }
    const found = [];
    for (let one = element; one; one = one.parentElement) found.push([one, getComputedStyle(one).backgroundColor, 1]);
    return found;
  };
  // Of a pattern the part that is the worst ground for this ink.
  const paintOf = (text, ink) => {
    const [, id] = /^url\("#(.*)"\)/.exec(text) || [];
    if (!id) return colour(text);
    const parts = [...document.getElementById(id).querySelectorAll("*")].map((one) => colour(getComputedStyle(one).fill));
    return parts.sort((one, other) => ratio(ink, one) - ratio(ink, other))[0];
  };
  const groundOf = (element, ink) => {
    let ground = [0, 0, 0, 0];
    for (const [one, text, strength] of layersOf(element)) {
      if (ground[3] > 0.999) break;
      if (getComputedStyle(one).backgroundImage !== "none") throw new Error(`text on a picture: ${told(element)}`);
      if (text === "none") continue;
      const layer = paintOf(text, ink);
      ground = over(ground, [...layer.slice(0, 3), layer[3] * strength * Number(getComputedStyle(one).opacity)]);
    }
    return over(ground, canvas);
  };

  // A ring of paint around its letters is what a text is read on.
  const ringOf = (element, style) =>
    element.closest("svg") && style.paintOrder.startsWith("stroke") && parseFloat(style.strokeWidth) >= 3 ? colour(style.stroke) : null;

  const texts = () => {
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (walker.currentNode.data.trim()) found.add(walker.currentNode.parentElement);
    document.querySelectorAll("input:not([type=hidden], [type=checkbox], [type=radio]), textarea").forEach((one) => found.add(one));
    return [...found].filter((one) => {
      const box = one.getBoundingClientRect();
      const unseen = box.width <= 1 || box.height <= 1 || box.right < 0;
      return !unseen && seen(one) && !one.closest(":disabled, script, style, noscript, template, .unseen");
    });
  };
  const contrast = () => {
    const judged = new Map();
    for (const element of texts()) {
      const style = getComputedStyle(element);
      const ink = colour(element.closest("svg") ? style.fill : style.color);
      const ground = ringOf(element, style) || groundOf(element, ink);
      const shown = over([...ink.slice(0, 3), ink[3] * faded(element)], ground);
      const found = ratio(shown, ground);
      if (found < LEAST_CONTRAST - 0.005) judged.set(`${shown}/${ground}`, `contrast ${found.toFixed(2)}: ${told(element)}`);
    }
    return [...judged.values()];
  };

  const targets = () => [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary")].filter(seen).filter((one) => one.getBoundingClientRect().right > 0);
  // Numbers of the lines of a log are as high as the lines; the field that asks for a line leads to the same place.
  const isLineNumber = (element) => element.matches(".log-row > a");
  // In a sentence a link is as high as its line.
  const inText = (element) => element.localName === "a" && getComputedStyle(element).display === "inline" &&
    [...element.parentElement.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && /[\p{L}\p{N}]/u.test(one.data));
  // A checkbox is pressed by its label, too.
  const boxesOf = (element) => [element, ...(element.labels || [])].map((one) => one.getBoundingClientRect());
  const small = (box) => Math.min(box.width, box.height) < LEAST_TARGET_PX - 0.5;
  const places = () => {
    const faults = [], reachable = targets();
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > room) {
      faults.push(`the page is ${document.documentElement.scrollWidth} px wide in a window of ${room} px`);
      for (const one of document.querySelectorAll("body *")) {
        const scrolls = one.parentElement.closest(".wide, pre") || getComputedStyle(one.parentElement).overflowX !== "visible";
        if (!scrolls && seen(one) && one.getBoundingClientRect().right > room + 1) faults.push(`sticks out: ${told(one)}`);
      }
    }
    for (const one of reachable) {
      if (inText(one) || isLineNumber(one) || boxesOf(one).some((box) => !small(box))) continue;
      // Far enough from every other, a small one is hit all the same (WCAG 2.2, 2.5.8: a circle of 24 px).
      const mine = one.getBoundingClientRect();
      const x = mine.x + mine.width / 2, y = mine.y + mine.height / 2;
      const near = reachable.find((other) => {
        if (other === one || isLineNumber(other) || one.contains(other) || other.contains(one)) return false;
        const box = other.getBoundingClientRect();
        const dx = Math.max(box.left - x, 0, x - box.right), dy = Math.max(box.top - y, 0, y - box.bottom);
        return Math.hypot(dx, dy) < LEAST_TARGET_PX / 2;
      });
      if (near) faults.push(`${mine.width.toFixed(0)} x ${mine.height.toFixed(0)} px is small beside ${told(near)}: ${told(one)}`);
    }
    scrollTo(0, 0);
    for (const one of document.querySelectorAll("body > header :is(a, button)")) {
      const box = one.getBoundingClientRect();
      const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      if (seen(one) && !(hit && (one === hit || one.contains(hit)))) faults.push(`covered in the header: ${told(one)} by ${hit && told(hit)}`);
    }
    const head = document.querySelector("body > header").getBoundingClientRect();
    const main = document.querySelector("main").getBoundingClientRect();
    if (main.top < head.bottom - 1) faults.push("the header covers the beginning of the content");
    return faults;
  };
  return { contrast, places }[what]();
}
