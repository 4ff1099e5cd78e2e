/* An element becomes like another one with as few changes as can be: what stays the same is not touched, so focus, marked
   text, ticked boxes, opened details and scroll positions survive, and nothing flickers.

   Children are matched by id, others by their kind and order. `data-keep` on an element: scripts own what is in it. What
   a reader did is kept: `open` of details, `checked` and `value` of fields, `tabindex` and `data-here` (keys.js). */
(function () {
  "use strict";
  const KEPT = new Set(["open", "tabindex", "data-here"]);

  /* `keeps`, where given, tells which elements are left as they are. Gives what `old` is now, and the elements that are
     new in it. */
  function morph(old, wanted, keeps) {
    const work = { keeps: keeps || (() => false), added: [] };
    return { now: become(old, wanted, work), added: work.added };
  }

  function become(old, wanted, work) {
    if (old.nodeName !== wanted.nodeName) {
      old.replaceWith(wanted);
      work.added.push(wanted);
      return wanted;
    }
    if (old.hasAttribute("data-keep") || work.keeps(old)) return old;
    attributes(old, wanted);
    children(old, wanted, work);
    return old;
  }

  function attributes(old, wanted) {
    for (const { name, value } of wanted.attributes) {
      if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!KEPT.has(name) && !wanted.hasAttribute(name)) old.removeAttribute(name);
    }
  }

  function children(old, wanted, work) {
    const ids = new Set([...wanted.children].map((child) => child.id).filter(Boolean));
    let here = old.firstChild;
    for (const child of [...wanted.childNodes]) {
      const found = match(old, here, child, ids);
      if (!found) {
        old.insertBefore(child, here);
        if (child.nodeType === Node.ELEMENT_NODE) work.added.push(child);
      } else {
        if (found === here) here = here.nextSibling;
        else move(old, found, here);
        if (found.nodeType === Node.ELEMENT_NODE) become(found, child, work);
        else text(found, child.data);
      }
    }
    while (here) {
      const next = here.nextSibling;
      here.remove();
      here = next;
    }
  }

  /* `ids`: those of the wanted children; a child that is wanted elsewhere is not taken for another. */
  function match(old, here, child, ids) {
    if (child.id) {
      for (let one = here; one; one = one.nextSibling) {
        if (one.id === child.id && one.nodeName === child.nodeName) return one;
      }
      return null;
    }
    for (let one = here; one; one = one.nextSibling) {
      if (one.id && ids.has(one.id)) return null;
      if (one.nodeName === child.nodeName && !one.id) return one;
    }
    return null;
  }

  function move(parent, node, before) {
    if (parent.moveBefore) parent.moveBefore(node, before);
    else parent.insertBefore(node, before);
  }

  /* Text that somebody has marked, to copy it perhaps, waits for the next time. */
  function text(node, data) {
    if (node.data === data) return;
    const marked = document.getSelection();
    if (marked && !marked.isCollapsed && marked.containsNode(node, true)) return;
    node.data = data;
  }

  window.spot = window.spot || {};
  window.spot.morph = morph;
})();
