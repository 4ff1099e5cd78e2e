// What a screen reader needs of a page: names, headings, landmarks, tables that say what their columns are, and
// references that lead somewhere. Answers with one sentence for each fault. Everything that is folded away is opened.
() => {
  const faults = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (element) => element.checkVisibility({ visibilityProperty: true });
  const told = (element) => {
    const id = element.id ? `#${element.id}` : "";
    return `<${element.localName}${id}> "${element.textContent.trim().replace(/\s+/g, " ").slice(0, 40)}"`;
  };
  const byIds = (element, attribute) =>
    (element.getAttribute(attribute) || "").split(/\s+/).filter(Boolean).map((id) => document.getElementById(id));

  const textOf = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || node.getAttribute("aria-hidden") === "true" || node.hidden) return "";
    if (node.localName === "img") return node.alt || "";
    if (node.hasAttribute("aria-label")) return node.getAttribute("aria-label");
    return [...node.childNodes].map(textOf).join(" ");
  };
  const nameOf = (element) => {
    const named = byIds(element, "aria-labelledby").filter(Boolean).map(textOf).join(" ");
    if (named) return named;
    if (element.getAttribute("aria-label")) return element.getAttribute("aria-label");
    if (element.labels && element.labels.length) return [...element.labels].map(textOf).join(" ");
    if (element.matches("input[type=submit], input[type=button]")) return element.value;
    if (element.matches("input, select, textarea")) return element.title;
    return textOf(element) || element.title;
  };
  const isNamed = (element) => /[\p{L}\p{N}]/u.test(nameOf(element));

  all("details").forEach((one) => { one.open = true; });

  if (document.documentElement.lang !== "en") faults.push("the document does not say that it is English");
  if (!/[\p{L}\p{N}].* · Spot Supervisor$/u.test(document.title)) faults.push(`title: ${document.title}`);

  for (const one of all("a[href], button, input:not([type=hidden]), select, textarea, summary, dialog, [role=button]"))
    if (seen(one) && !isNamed(one)) faults.push(`no name: ${one.outerHTML.slice(0, 200)}`);
  for (const one of all("a:not([href])")) faults.push(`a link that leads nowhere: ${told(one)}`);
  for (const one of all("img:not([alt])")) faults.push(`no alternative text: ${one.outerHTML.slice(0, 200)}`);
  for (const one of all(":not(svg, svg *) > svg")) {
    const aside = one.closest("[aria-hidden=true]");
    const title = one.querySelector(":scope > title");
    if (!aside && !(one.getAttribute("role") === "img" && (isNamed(one) || title)))
      faults.push(`a picture without a name: ${one.outerHTML.slice(0, 120)}`);
  }
  for (const one of all("[aria-hidden=true] :is(a[href], button, input, select, textarea)"))
    faults.push(`hidden from readers, but in the order of focus: ${told(one)}`);
  for (const one of all("[tabindex]")) if (one.tabIndex > 0) faults.push(`tabindex ${one.tabIndex}: ${told(one)}`);

  const headings = all("h1, h2, h3, h4, h5, h6").filter(seen);
  if (headings.filter((one) => one.localName === "h1").length !== 1) faults.push("not exactly one h1");
  let before = 0;
  for (const one of headings) {
    const level = Number(one.localName[1]);
    if (level > before + 1) faults.push(`heading of level ${level} after level ${before}: ${told(one)}`);
    if (!isNamed(one)) faults.push(`an empty heading ${told(one)}`);
    if (!one.closest("main, dialog")) faults.push(`a heading outside of the content: ${told(one)}`);
    before = level;
  }

  if (all("main").length !== 1) faults.push("not exactly one main");
  if (all("body > header").length !== 1) faults.push("not exactly one header of the page");
  const navs = all("nav").filter(seen).map((one) => nameOf(one).trim());
  if (all("nav").some((one) => seen(one) && !one.hasAttribute("aria-label") && !one.hasAttribute("aria-labelledby")))
    faults.push("a navigation without a name");
  if (new Set(navs).size !== navs.length) faults.push(`navigations of the same name: ${navs}`);
  const skip = document.querySelector("a[href], button, input");
  if (!skip.matches(".skip") || !document.querySelector(skip.getAttribute("href"))) faults.push("no skip link first");
  const frame = "header, main, footer, nav, aside, dialog, script, template, .skip, [role=status], [role=alert]";
  for (const one of document.body.children)
    if (seen(one) && (one.innerText ?? "").trim() && !one.matches(frame)) faults.push(`outside of all landmarks: ${told(one)}`);

  for (const table of all("table").filter(seen)) {
    const heads = [...table.querySelectorAll("th")];
    if (!heads.length) faults.push(`a table without headers: ${told(table)}`);
    for (const one of heads) {
      if (!one.scope) faults.push(`a header without scope: ${told(one)}`);
      if (!isNamed(one)) faults.push(`an empty table header: ${told(one)} in ${told(table)}`);
    }
    const room = table.closest("[role=region]"); // in which a wide one scrolls
    if (!table.querySelector("caption") && ![table, room].some((one) => one && (one.ariaLabel || byIds(one, "aria-labelledby").length)))
      faults.push(`a table without a name: ${told(table)}`);
  }

  const ids = all("[id]").map((one) => one.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => faults.push(`the id ${id} is given twice`));
  for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls", "aria-details"])
    for (const one of all(`[${attribute}]`))
      if (byIds(one, attribute).includes(null)) faults.push(`${attribute} leads nowhere: ${told(one)}`);
  for (const one of all("label[for]")) if (!one.control) faults.push(`a label of nothing: ${told(one)}`);
  for (const one of all('a[href^="#"]'))
    if (one.hash.length > 1 && !document.getElementById(decodeURIComponent(one.hash.slice(1))))
      faults.push(`leads to no place on the page: ${one.getAttribute("href")}`);

  for (const attribute of ["href", "src", "action", "formaction", "xlink:href"])
    for (const one of all(`[${attribute.replace(":", "\\:")}]`)) {
      const scheme = new URL(one.getAttribute(attribute), location.href).protocol;
      const data = scheme === "data:" && one.localName === "img";
      if (!["http:", "https:"].includes(scheme) && !data) faults.push(`an address of ${scheme} in ${told(one)}`);
    }
  for (const one of all("[style]"))
    faults.push(`a style in place: ${one.outerHTML.slice(0, 120)}`);
  return faults;
}
