/* A source of events that rests while nobody looks, and comes back by itself; htmx takes it for an EventSource.

   One EventSource is inside, closed while the page is hidden. When it opens again it says what it heard last; after a
   long rest it does not, because the page is asked anew anyway. `look` is handed on at the pace that the server tells
   with it (milliseconds over which all open pages spread their asking), once a second at most.
   On the document: `live:heard`, `live:down` (detail: true = the server refused), `live:up`. */
(function () {
  "use strict";
  const PACE_MS = 1000;
  const AGAIN_MS = [1000, 2000, 5000, 10000, 20000];
  const FORGET_MS = 60000;

  class Source extends EventTarget {
    constructor(address) {
      super();
      this.address = new URL(address, location.href);
      this.names = new Set(["ping", "look"]);
      this.lastId = "";
      this.failures = 0;
      this.lookedAt = 0;
      this.spread = 0;
      this.rested = document.hidden; // because nobody looked, not because the connection was lost
      this.restedAt = this.rested ? Date.now() : 0;
      this.over = false;
      if (!this.rested) this.open();
    }

    get readyState() {
      return this.over ? EventSource.CLOSED : this.inner ? this.inner.readyState : EventSource.CONNECTING;
    }

    addEventListener(name, listener) {
      super.addEventListener(name, listener);
      if (this.names.has(name)) return;
      this.names.add(name);
      if (this.inner) this.hear(this.inner, name);
    }

    hear(inner, name) {
      inner.addEventListener(name, (event) => {
        if (inner !== this.inner) return;
        if (event.lastEventId) this.lastId = event.lastEventId;
        this.failures = 0;
        tell("live:heard");
        if (name === "look") this.lookSoon((this.spread = Number(event.data) || 0));
        else this.dispatchEvent(new MessageEvent(name, { data: event.data }));
      });
    }

    open() {
      clearTimeout(this.again);
      if (this.over || this.inner) return;
      if (this.restedAt && Date.now() - this.restedAt > FORGET_MS) this.lastId = "";
      if (this.lastId) this.address.searchParams.set("after", this.lastId);
      else this.address.searchParams.delete("after");
      const inner = (this.inner = new EventSource(this.address));
      for (const name of this.names) this.hear(inner, name);
      inner.onopen = () => {
        tell("live:up");
        // What changed while nothing was heard is seen by asking once; after a restart all pages come back together.
        if (this.restedAt) this.lookSoon(this.rested ? 0 : this.spread);
        this.restedAt = 0;
        this.rested = false;
      };
      inner.onerror = () => this.failed(inner);
    }

    /* Where the server refuses, the browser gives up; a lost connection it opens again itself. */
    failed(inner) {
      if (inner !== this.inner) return;
      this.restedAt = this.restedAt || Date.now();
      const refused = inner.readyState === EventSource.CLOSED;
      tell("live:down", refused);
      if (!refused) return;
      this.inner = null;
      const wait = AGAIN_MS[Math.min(this.failures++, AGAIN_MS.length - 1)];
      this.again = setTimeout(() => document.hidden || this.open(), wait * (0.5 + Math.random()));
      this.lookSoon(this.spread); // the page's own answer says why: perhaps a sign-in is needed
    }

    rest() {
      clearTimeout(this.again);
      clearTimeout(this.looking);
      this.looking = 0;
      this.restedAt = this.restedAt || Date.now();
      this.rested = true;
      this.drop();
    }

    drop() {
      if (this.inner) this.inner.close();
      this.inner = null;
    }

    /* A connection may be dead without a word, after the computer has slept. */
    renew() {
      if (!this.inner) return; // it waits for its next try
      this.restedAt = this.restedAt || Date.now();
      this.drop();
      this.open();
    }

    /* Of an element that is gone: htmx calls it. */
    close() {
      this.rest();
      this.over = true;
      sources.delete(this);
    }

    /* Other rows are shown now. */
    retarget(names) {
      const before = (this.address.searchParams.get("runs") || "").split(",").sort().join();
      if (before === [...names].sort().join()) return;
      this.address.searchParams.set("runs", names.join());
      if (!this.inner) return;
      this.drop();
      this.open();
    }

    lookSoon(spread) {
      if (this.looking) return;
      const due = this.lookedAt + Math.max(PACE_MS, spread) - Date.now();
      this.looking = setTimeout(() => {
        this.looking = 0;
        this.lookedAt = Date.now();
        this.dispatchEvent(new MessageEvent("look", { data: String(spread) }));
      }, Math.max(0, due) + Math.random() * spread);
    }
  }

  const sources = new Set();

  function tell(name, detail) {
    document.dispatchEvent(new CustomEvent(name, { detail }));
  }

  function wake() {
    for (const source of sources) document.hidden ? source.rest() : source.open();
  }

  document.addEventListener("visibilitychange", wake);
  window.addEventListener("pagehide", () => sources.forEach((source) => source.rest()));
  window.addEventListener("pageshow", (event) => event.persisted && wake());
  window.spot = window.spot || {};
  window.spot.sources = sources;
  if (window.htmx) {
    window.htmx.createEventSource = (address) => {
      const source = new Source(address);
      sources.add(source);
      return source;
    };
  }
})();
