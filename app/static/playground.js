const bar = element.querySelector('.dl-scalebar');
const note = element.querySelector('.dl-note');
const hover = element.querySelector('.dl-hover');
const strip = new TokenStrip(element.querySelector('.dl-text'), (index) => trigger('select', { index, run: strip.run }));
new ScaleBar(bar, props.scales, (scale) => strip.colour(scale));
followPointer(strip.root, () => [strip], hover);

function show() {
  const view = props.value;
  if (!view || !view.run) return;
  strip.update(view);
  note.textContent = view.note || '';
  element.dataset.state = view.state;
  element.querySelector('.dl-strip').dataset.state = view.state;
  const made = strip.tokens.length;
  element.querySelector('.dl-made').textContent = made ? `${made} token${made === 1 ? '' : 's'}` : '';
  showLink('run', view.run);
}

stepButtons(() => strip);
watch('value', show);
show();
reloadOnBack();
runKeys('dl-run', 'dl-stop');
showAlerts();
