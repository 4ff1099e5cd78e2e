/* Selecting runs: a box for all runs of the page, and the number of selected runs. Without it the server counts. */
(function () {
  "use strict";
  const picked = document.getElementById("picked");

  function boxes() {
    return [...document.querySelectorAll('input[name="run_id"][form="pick"]')];
  }

  function count() {
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
    count();
  });
  document.addEventListener("live:changed", count);
  window.addEventListener("pageshow", count); // a browser that goes back restores the boxes
  count();
})();
