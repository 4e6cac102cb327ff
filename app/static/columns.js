const bar = element.querySelector('.dl-scalebar');
const grid = element.querySelector('.dl-columns');
const hover = element.querySelector('.dl-hover');
let strips = [];
let scale = null;
let shown = '';
new ScaleBar(bar, props.scales, (chosen) => { scale = chosen; strips.forEach((s) => s.colour(chosen)); });
followPointer(grid, () => strips, hover);

function text(tag, className, words) {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = words;
  return node;
}

function build(value) {
  shown = value.experiment;
  grid.replaceChildren();
  grid.style.setProperty('--dl-arms', value.arms.length);
  strips = value.arms.map((arm, i) => {
    const column = text('section', 'dl-column', '');
    column.setAttribute('aria-label', 'Arm ' + arm.name);
    const head = text('header', '', '');
    head.append(text('b', '', arm.name), text('span', 'dl-label', arm.label));
    const area = text('div', 'dl-text', '');
    area.tabIndex = 0;
    column.append(head, area, text('p', 'dl-note', ''));
    grid.append(column);
    const strip = new TokenStrip(area, (index) => {
      strips.forEach((other) => other.highlight(index));
      trigger('select', { index, arm: i, experiment: shown });
    });
    if (scale) strip.colour(scale);
    return strip;
  });
}

function show() {
  const value = props.value;
  if (!value || !value.experiment) return;
  if (value.experiment !== shown || strips.length !== value.arms.length) build(value);
  value.arms.forEach((arm, i) => {
    strips[i].update(arm);
    strips[i].markDivergence(arm.divergence);
    const note = grid.children[i].querySelector('.dl-note');
    note.textContent = arm.note || '';
    grid.children[i].dataset.state = arm.state;
  });
  showLink('experiment', value.experiment);
}

watch('value', show);
show();
reloadOnBack();
runKeys('dl-run', 'dl-stop');
