/* Gradio's client loses sight of an event that is sent while the page's stream is being closed: the answer waits on the
   server until another event opens a new stream. A status event soon after every action of the person is that event. */

(() => {
  const WAIT_MS = 800;
  let timer = 0;
  const nudge = () => document.getElementById('dl-nudge')?.click();
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(nudge, WAIT_MS);
  };
  document.addEventListener('click', (event) => event.isTrusted && later(), true);
  document.addEventListener('keydown', later, true);
})();
