// The search of the theme runs in a worker, and browsers refuse workers of pages that are files. On such a page, a
// hidden frame takes the place of the worker.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.received = (event) => {
        if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      };
      window.addEventListener("message", this.received);
      this.addEventListener("message", (event) => this.onmessage?.(event));
      const page = this.inside.document;
      page.open();
      page.write("<html><body></body></html>");
      page.close();
      this.inside.postMessage = this.inside.Function("message", 'parent.postMessage(message, "*")');
      this.inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.loaded = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        this.inside.document.body.append(script);
      });
    }

    postMessage(message) {
      this.loaded.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data: structuredClone(message) })));
    }

    terminate() {
      window.removeEventListener("message", this.received);
      this.frame.remove();
    }
  };
