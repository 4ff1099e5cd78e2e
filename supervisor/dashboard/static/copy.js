/* `<button type="button" class="scripted" data-copy="#id">Copy</button>` copies the text of that element, or the value of
   that field, to the clipboard, and says so. */
(function () {
  "use strict";
  const SAID_MS = 2000;

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const from = document.querySelector(button.dataset.copy);
    if (!from || button.dataset.said) return;
    const done = await copied("value" in from ? from.value : from.textContent);
    say(button, done ? "Copied" : "Not copied: select the text and copy it yourself");
  });

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copiedByHand(text); // no clipboard over plain http, or no permission
    }
  }

  function copiedByHand(text) {
    const focused = document.activeElement;
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (focused) focused.focus();
    return done;
  }

  function say(button, text) {
    const before = [...button.childNodes];
    button.dataset.said = "1";
    button.replaceChildren(text);
    const announcer = document.getElementById("announced");
    if (announcer) announcer.textContent = text;
    setTimeout(() => {
      button.replaceChildren(...before);
      delete button.dataset.said;
    }, SAID_MS);
  }
})();
