const bar = element.querySelector('.dl-scalebar');
const grid = element.querySelector('.dl-columns');
const hover = element.querySelector('.dl-hover');
let strips = [];
let scale = null;
let shown = '';
let leader = null; // the strip that the person scrolls
let chosen = null; // the strip whose token was chosen last
new ScaleBar(bar, props.scales, (chosen) => { scale = chosen; strips.forEach((s) => s.colour(chosen)); });
stepButtons(() => (strips.includes(chosen) ? chosen : strips[0]));
followPointer(grid, () => strips, hover);

function text(tag, className, words) {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = words;
  return node;
}

/* The columns show the same positions: the one that the person scrolls leads. */
function scrollOthers(strip) {
  const index = strip.topToken();
  strips.forEach((other) => { if (other !== strip) other.scrollTo(strip.root.scrollTop > 0 ? index : 0); });
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
      chosen = strip;
      strips.forEach((other) => other.highlight(index));
      trigger('select', { index, arm: i, experiment: shown });
    });
    if (scale) strip.colour(scale);
    for (const kind of ['pointerenter', 'wheel', 'touchstart', 'focus']) {
      area.addEventListener(kind, () => { leader = strip; }, { passive: true });
    }
    area.addEventListener('scroll', () => { if (leader === strip) scrollOthers(strip); }, { passive: true });
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
showAlerts();
