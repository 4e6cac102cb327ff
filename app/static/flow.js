/* The flow of a strip's text: blocks that are laid out one by one, so that the end of a long text grows while the rest
   stays as it is. (In one block of 4,000 tokens every new one costs 13 ms, of 250 one.) A block ends with a line break
   of the text or, where that has none for long, at a seam: where a line ends as it happens to be wrapped. A seam holds
   for one width only and is taken out when that changes; what is seen, chosen and copied is the same with it. */

const LIVE = 240; // so many nodes has the last block before a seam is looked for
const LINE_PX = 8; // two things are on different lines where one is so much lower
// In text of both directions the lines of a paragraph depend on each other.
const BOTH_WAYS = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff\ud802\ud803\ud83a\ud83b]/;

class TextFlow {
  constructor(root) {
    this.root = root;
    this.clear();
    new ResizeObserver(() => this.fit()).observe(root);
  }

  clear() {
    this.block = null;
    this.seams = []; // {block, node, gap}: `node` begins `block`; its leading spaces, which end the line before, are `gap`
    this.due = LIVE;
    this.width = this.root.clientWidth;
    this.root.textContent = '';
  }

  append(node) {
    this.block ||= this.blockAfter(null);
    this.block.append(node);
  }

  /* The text has a line break: what follows is another block. */
  end() {
    this.block = null;
    this.due = LIVE;
  }

  blockAfter(other) {
    const block = document.createElement('div');
    block.className = 'dl-block';
    if (other) other.after(block); else this.root.append(block);
    return block;
  }

  /* Once the last block is long, what stands before its last lines becomes a block of its own. */
  settle() {
    const block = this.block;
    if (!block || block.childNodes.length < this.due || getSelection().containsNode(block, true)) return;
    const start = BOTH_WAYS.test(block.textContent) ? null : lineStart(block);
    this.due = start ? LIVE : 2 * block.childNodes.length;
    if (!start) return;
    const { node, numSpaces } = start;
    this.block = this.blockAfter(block);
    while (node.nextSibling) this.block.prepend(block.lastChild);
    this.block.prepend(node);
    const gap = numSpaces ? this.cutSpaces(node, numSpaces) : null;
    if (gap) block.append(gap);
    this.seams.push({ block: this.block, node, gap });
  }

  cutSpaces(node, numSpaces) {
    const gap = document.createElement('span');
    gap.className = 'dl-gap';
    gap.textContent = node.firstChild.data.slice(0, numSpaces);
    if (node.dataset.shade) gap.dataset.shade = node.dataset.shade;
    node.firstChild.data = node.firstChild.data.slice(numSpaces);
    return gap;
  }

  /* The shades of the tokens have changed. */
  colour() {
    for (const { node, gap } of this.seams) if (gap) gap.dataset.shade = node.dataset.shade;
  }

  /* Take all seams out. */
  join() {
    for (const { block, node, gap } of this.seams) {
      const before = block.previousSibling;
      if (gap) node.firstChild.data = gap.textContent + node.firstChild.data;
      gap?.remove();
      before.append(...block.childNodes);
      block.remove();
      if (block === this.block) this.block = before;
    }
    this.seams = [];
    this.due = LIVE;
  }

  fit() {
    if (this.root.clientWidth === this.width) return;
    this.width = this.root.clientWidth;
    this.join();
  }
}

function middleOf(box) { return box.top + box.height / 2; }

/* The node that begins the last line but one of a block, or an earlier one; the spaces before its word end the line
   above. Null where no line begins with a word. */
function lineStart(block) {
  let below = null;
  let numLines = 0;
  for (let node = block.lastElementChild; node; node = node.previousElementSibling) {
    const boxes = node.getClientRects();
    if (!boxes.length) continue;
    const middle = middleOf(boxes[boxes.length - 1]);
    if (below && middle + LINE_PX < below.middle && ++numLines > 1) {
      const numSpaces = leadingSpaces(below.node);
      if (numSpaces !== null) return { node: below.node, numSpaces };
    }
    below = { node, middle };
  }
  return null;
}

/* How many spaces a node has before what stands on one line; null where that is on several. */
function leadingSpaces(node) {
  const text = node.textContent;
  const numSpaces = node.classList.contains('dl-chip') ? 0 : /^ */.exec(text)[0].length;
  if (!numSpaces) return /^\s/.test(text) || node.getClientRects().length !== 1 ? null : 0;
  if (node.childNodes.length !== 1 || /^\s*$|^ *[^\S ]/.test(text)) return null;
  const word = document.createRange();
  word.setStart(node.firstChild, numSpaces);
  word.setEnd(node.firstChild, text.length);
  return word.getClientRects().length === 1 ? numSpaces : null;
}
