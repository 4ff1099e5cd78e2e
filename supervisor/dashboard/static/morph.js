/* Makes an element like another with as few changes as possible: equal parts are not touched, so focus, selected text,
   checked boxes, opened details and scroll positions survive, and nothing flickers.

   Children are matched by id, others by their kind and order. `data-keep` on an element: a script owns its attributes and
   content. The state of the reader is kept: `open` of details, `checked` and `value` of fields, `tabindex`. */
(function () {
  "use strict";
  const KEPT = new Set(["open", "tabindex"]);

  /* `keeps`: a test for elements to leave unchanged. Returns what `old` is now, and the new elements in it. */
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
      const same = match(old, here, child, ids);
      if (!same) {
        old.insertBefore(child, here);
        if (child.nodeType === Node.ELEMENT_NODE) work.added.push(child);
      } else {
        if (same === here) here = here.nextSibling;
        else move(old, same, here);
        if (same.nodeType === Node.ELEMENT_NODE) become(same, child, work);
        else text(same, child.data);
      }
    }
    while (here) {
      const next = here.nextSibling;
      here.remove();
      here = next;
    }
  }

  /* `ids`: of the wanted children; a child that is wanted elsewhere does not match another. */
  function match(old, here, child, ids) {
    if (child.id) {
      for (let node = here; node; node = node.nextSibling) {
        if (node.id === child.id && node.nodeName === child.nodeName) return node;
      }
      return null;
    }
    for (let node = here; node; node = node.nextSibling) {
      if (node.id && ids.has(node.id)) return null;
      if (node.nodeName === child.nodeName && !node.id) return node;
    }
    return null;
  }

  function move(parent, node, before) {
    if (parent.moveBefore) parent.moveBefore(node, before);
    else parent.insertBefore(node, before);
  }

  /* Selected text is not changed: the reader may be copying it. The next refresh changes it. */
  function text(node, data) {
    if (node.data === data) return;
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && selection.containsNode(node, true)) return;
    node.data = data;
  }

  window.spot = window.spot || {};
  window.spot.morph = morph;
})();
