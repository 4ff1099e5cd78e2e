/* Keyboard shortcuts: docs/dashboard.md lists them, and so does the dialog that `?` opens.

   They are single letters, so they are ignored while the user types, with Ctrl, Alt or Meta, while a dialog is open, and
   after they were switched off in that dialog (WCAG 2.1.4). Rows are table rows with a link; the keys act on the focused
   row. */
(function () {
  "use strict";
  const ROWS = "main tbody tr";
  const OFF = "spot-keys-off";
  const SEQUENCE_MS = 1500;
  const dialog = document.getElementById("keys");
  const off = document.getElementById("keys-off");
  let wentAt = 0; // when g was pressed
  let place = -1; // of the last focused row, in case the row disappears

  const actions = {
    "/": search,
    j: () => step(1),
    k: () => step(-1),
    x: select,
    "?": () => dialog.showModal(),
    g: () => (wentAt = Date.now()),
    Enter: open,
    Escape: leave,
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return;
    if (types(event.target)) {
      if (event.key === "Escape" && event.target.type === "search") event.target.blur();
      return;
    }
    if (off.checked && event.key !== "Escape") return;
    if (Date.now() - wentAt < SEQUENCE_MS && goTo(event.key)) event.preventDefault();
    else if (actions[event.key] && actions[event.key](event) !== false) event.preventDefault();
  });

  function types(element) {
    if (element.isContentEditable || element.matches("textarea, select, [role=textbox], [role=combobox]")) return true;
    return element.matches("input") && !["checkbox", "radio", "button", "submit", "reset"].includes(element.type);
  }

  function rows() {
    return [...document.querySelectorAll(ROWS)].filter((row) => row.querySelector("a[href]"));
  }

  function here() {
    return document.activeElement.closest(ROWS);
  }

  function step(by) {
    const all = rows();
    if (!all.length) return false;
    const at = all.indexOf(here());
    if (at >= 0) place = at + by;
    else if (place < 0) place = by > 0 ? 0 : all.length - 1;
    place = Math.min(all.length - 1, Math.max(0, place));
    all[place].tabIndex = -1;
    all[place].focus({ preventScroll: true });
    all[place].scrollIntoView({ block: "nearest" });
  }

  /* A focused link or button handles Enter itself. */
  function open(event) {
    if (!event.target.matches(ROWS)) return false;
    event.target.querySelector("a[href]").click();
  }

  function select() {
    const box = here() && here().querySelector("input[type=checkbox]");
    if (!box) return false;
    box.click();
  }

  function search() {
    const field = document.querySelector("main input[type=search]");
    if (!field) return false;
    field.focus();
    field.select();
  }

  function leave() {
    if (!here()) return false;
    document.activeElement.blur();
    place = -1;
  }

  function goTo(letter) {
    wentAt = 0;
    const links = [...document.querySelectorAll(".top nav a")];
    const link = links.find((entry) => entry.textContent.trim().toLowerCase().startsWith(letter));
    if (link) link.click();
    return Boolean(link);
  }

  function remembered() {
    try {
      return localStorage.getItem(OFF) === "1";
    } catch {
      return false; // storage is not available
    }
  }

  off.checked = remembered();
  off.addEventListener("change", () => {
    try {
      localStorage.setItem(OFF, off.checked ? "1" : "");
    } catch {
      return;
    }
  });
  document.getElementById("keys-button").addEventListener("click", () => dialog.showModal());
})();
