/* A link into the strip: shows its token there as a click on the token would, and brings it into view. */

if (!window.decodelabGoto) {
  window.decodelabGoto = true;
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('[data-goto]');
    const token = link && document.querySelector(`#dl-strip [data-i="${Number(link.dataset.goto)}"]`);
    if (!token) return;
    token.click();
    token.scrollIntoView({ block: 'nearest' });
    token.closest('.dl-text').focus({ preventScroll: true });
  });
}
