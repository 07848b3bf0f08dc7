// Pages opened from a disk may not start a worker, which the theme's search is. There a hidden frame does its work, so
// that search needs neither a server nor the network. (The theme would fetch such a script from elsewhere.)
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      this.frame = frame;
      const page = frame.contentDocument;
      const script = page.createElement("script");
      frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      frame.contentWindow.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(page, next)), Promise.resolve());
      this.ready = new Promise((done) => { script.onload = done; });
      script.src = url;
      page.body.appendChild(script);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}

function load(page, url) {
  return new Promise((done) => {
    const script = page.createElement("script");
    script.onload = done;
    script.src = url;
    page.body.appendChild(script);
  });
}
