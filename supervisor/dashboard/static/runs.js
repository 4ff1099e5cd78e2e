/* Selecting runs: all of this page at once, and how many they are. Without it each has its box, and the server counts. */
(function () {
  "use strict";
  const picked = document.getElementById("picked");

  function boxes() {
    return [...document.querySelectorAll('input[name="run_id"][form="pick"]')];
  }

  function tell() {
    const all = boxes();
    const chosen = all.filter((box) => box.checked).length;
    const whole = document.getElementById("pickall");
    if (picked) picked.textContent = chosen;
    if (whole) {
      whole.checked = chosen > 0 && chosen === all.length;
      whole.indeterminate = chosen > 0 && chosen < all.length;
    }
    for (const button of document.querySelectorAll("#pick button")) button.disabled = !chosen;
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "pickall") for (const box of boxes()) box.checked = event.target.checked;
    tell();
  });
  document.addEventListener("live:changed", tell);
  window.addEventListener("pageshow", tell); // a browser that goes back ticks the boxes again
  tell();
})();
