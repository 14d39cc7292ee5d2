// Search from the disk: browsers start no worker from file:, so the search script runs in a hidden frame instead.
// The theme's search script looks for the name IFrameWorker in its parent to know where it is.
if (location.protocol === 'file:') {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement('iframe')
      frame.hidden = true
      frame.title = 'search'
      frame.setAttribute('aria-hidden', 'true')
      document.body.append(frame)
      const inner = frame.contentWindow
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent('message', { data }))
      inner.importScripts = () => undefined // only languages other than English ask for further scripts
      this.ready = new Promise((loaded) => {
        const script = inner.document.createElement('script')
        script.addEventListener('load', () => loaded(inner))
        script.src = address
        inner.document.body.append(script)
      })
    }

    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent('message', { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
