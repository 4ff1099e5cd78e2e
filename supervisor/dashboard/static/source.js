/* A source of events that is closed while the page is hidden, and reconnects by itself; htmx uses it as an EventSource.

   It wraps one EventSource. When it reconnects it sends the last event id; after a long time it does not, because the
   page is requested again anyway. `refresh` is passed on at the pace that comes with it (milliseconds over which all open
   pages spread their requests), at most once a second.
   Events on the document: `live:news`, `live:down` (detail: true = the server refused), `live:up`. */
(function () {
  "use strict";
  const PACE_MS = 1000;
  const RETRY_MS = [1000, 2000, 5000, 10000, 20000];
  const FORGET_MS = 60000;

  class Source extends EventTarget {
    constructor(address) {
      super();
      this.address = new URL(address, location.href);
      this.names = new Set(["ping", "refresh"]);
      this.lastId = "";
      this.failures = 0;
      this.refreshedAt = 0;
      this.spread = 0;
      this.rested = document.hidden; // because the page is hidden, not because the connection was lost
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
      if (this.inner) this.listen(this.inner, name);
    }

    listen(inner, name) {
      inner.addEventListener(name, (event) => {
        if (inner !== this.inner) return;
        if (event.lastEventId) this.lastId = event.lastEventId;
        this.failures = 0;
        emit("live:news");
        if (name === "refresh") this.refreshSoon((this.spread = Number(event.data) || 0));
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
      for (const name of this.names) this.listen(inner, name);
      inner.onopen = () => {
        emit("live:up");
        // One request shows what was missed; after a restart of the server all pages reconnect together.
        if (this.restedAt) this.refreshSoon(this.rested ? 0 : this.spread);
        this.restedAt = 0;
        this.rested = false;
      };
      inner.onerror = () => this.failed(inner);
    }

    /* The browser reopens a lost connection itself; after a refusal it gives up. */
    failed(inner) {
      if (inner !== this.inner) return;
      this.restedAt = this.restedAt || Date.now();
      const refused = inner.readyState === EventSource.CLOSED;
      emit("live:down", refused);
      if (!refused) return;
      this.inner = null;
      const wait = RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)];
      this.again = setTimeout(() => document.hidden || this.open(), wait * (0.5 + Math.random()));
      this.refreshSoon(this.spread); // the response to the page says why: perhaps a sign-in is needed
    }

    rest() {
      clearTimeout(this.again);
      clearTimeout(this.refreshing);
      this.refreshing = 0;
      this.restedAt = this.restedAt || Date.now();
      this.rested = true;
      this.drop();
    }

    drop() {
      if (this.inner) this.inner.close();
      this.inner = null;
    }

    /* A connection may be dead without an error, for example after the computer was suspended. */
    renew() {
      if (!this.inner) return; // it waits for its next try
      this.restedAt = this.restedAt || Date.now();
      this.drop();
      this.open();
    }

    /* htmx calls it when the element is removed. */
    close() {
      this.rest();
      this.over = true;
      sources.delete(this);
    }

    /* The page shows other rows now. */
    retarget(names) {
      const before = (this.address.searchParams.get("runs") || "").split(",").sort().join();
      if (before === [...names].sort().join()) return;
      this.address.searchParams.set("runs", names.join());
      if (!this.inner) return;
      this.drop();
      this.open();
    }

    refreshSoon(spread) {
      if (this.refreshing) return;
      const due = this.refreshedAt + Math.max(PACE_MS, spread) - Date.now();
      this.refreshing = setTimeout(() => {
        this.refreshing = 0;
        this.refreshedAt = Date.now();
        this.dispatchEvent(new MessageEvent("refresh", { data: String(spread) }));
      }, Math.max(0, due) + Math.random() * spread);
    }
  }

  const sources = new Set();

  function emit(name, detail) {
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
