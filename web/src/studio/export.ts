// What a view shows, as files: a picture (SVG, or PNG drawn from it), and its numbers (CSV).
import { drawControl, isControl } from "./controls";
import { made, set, SVG, word, type Origin } from "./drawing";

export type Row = (string | number | null)[];

// What a view offers to be taken away.
export interface Offer {
  name: string; // of the file
  element: HTMLElement; // what is pictured
  rows: () => Row[]; // the first has the names of columns
}

const MARGIN = 20; // pixels around a picture
const LONGEST = 16_000; // pixels of a side that a browser can paint
const LARGEST = 1 << 28; // pixels of a picture
const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "paint-order", "opacity", "font-size", "font-weight", "font-family"];

export function download(name: string, content: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Numbers as CSV; what a spreadsheet would take for a formula is a text.
export function csv(rows: Row[]): Blob {
  const cell = (value: Row[number]) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return new Blob([rows.map((row) => row.map(cell).join(",")).join("\n"), "\n"], { type: "text/csv" });
}

// A part of the page as a drawing: boxes, letters, lines and maps where they are, in their colours. What scrolls is drawn
// as a whole.
export function svg(root: HTMLElement): string {
  const boxes = [root, ...root.querySelectorAll<HTMLElement>("*")].filter(scrolls);
  const before = boxes.map((each) => ({ style: each.style.cssText, top: each.scrollTop, left: each.scrollLeft }));
  boxes.forEach(unroll);
  try {
    return drawn(root, boxes);
  } finally {
    boxes.forEach((each, place) => {
      const { style, top, left } = before[place]!;
      each.style.cssText = style;
      each.scrollTo({ top, left, behavior: "instant" });
    });
  }
}

function scrolls(element: HTMLElement): boolean {
  if (element.scrollWidth <= element.clientWidth + 1 && element.scrollHeight <= element.clientHeight + 1) return false;
  const { overflowX, overflowY } = getComputedStyle(element);
  return [overflowX, overflowY].some((each) => each === "auto" || each === "scroll");
}

function unroll(element: HTMLElement) {
  const width = `${element.scrollWidth + element.offsetWidth - element.clientWidth}px`;
  Object.assign(element.style, { overflow: "visible", maxHeight: "none", maxWidth: "none", ...(element.scrollWidth > element.clientWidth ? { width } : {}) });
}

function drawn(root: HTMLElement, boxes: HTMLElement[]): string {
  const frame = root.getBoundingClientRect();
  const right = Math.max(frame.right, ...boxes.map((each) => each.getBoundingClientRect().right));
  const [width, height] = [right - frame.left + 2 * MARGIN, frame.height + 2 * MARGIN];
  const drawing = document.createElementNS(SVG, "svg");
  const paper = getComputedStyle(root.closest<HTMLElement>(".theme") ?? root).backgroundColor;
  set(drawing, { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` });
  drawing.append(made("rect", { width, height, fill: paper }));
  draw(root, drawing, { x: frame.left - MARGIN, y: frame.top - MARGIN });
  return new XMLSerializer().serializeToString(drawing);
}

export async function png(root: HTMLElement): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg(root))}`;
  await image.decode();
  const { width, height } = image;
  const scale = Math.min(2, LONGEST / Math.max(width, height), Math.sqrt(LARGEST / (width * height)));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * scale, height * scale];
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"));
}

function draw(element: Element, into: SVGElement, origin: Origin) {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden" || style.clipPath !== "none") return;
  const box = element.getBoundingClientRect();
  const at = { x: box.left - origin.x, y: box.top - origin.y };
  if (element instanceof SVGSVGElement) {
    outline(style, into, at, box);
    const copy = styled(element);
    set(copy, { ...at, width: box.width, height: box.height });
    into.append(copy);
    return;
  }
  if (element instanceof HTMLCanvasElement) {
    const picture = { href: element.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" };
    into.append(made("image", { ...at, width: box.width, height: box.height, ...picture }));
    return;
  }
  outline(style, into, at, box);
  if (isControl(element)) return drawControl(element, style, into, at, box);
  if (style.overflowX !== "visible" && style.overflowX !== "clip") into = clipped(into, at, box);
  const turned = style.transform.startsWith("matrix") && Math.abs(new DOMMatrix(style.transform).b) > 0.01;
  for (const child of element.childNodes) {
    if (child instanceof Element) {
      if (turned) turnedText(element as HTMLElement, child, style, into, at);
      else draw(child, into, origin);
    } else if (child instanceof Text && child.data.trim() && !turned) {
      const begins = child === element.firstChild && getComputedStyle(element, "::first-letter").textTransform === "uppercase";
      letters(child, style, into, origin, begins);
    }
  }
}

// The box of an element: its colour, its border, or the line above it.
function outline(style: CSSStyleDeclaration, into: SVGElement, at: Origin, box: DOMRect) {
  const ring = /^(rgb.*?\)|color\(.*?\)) 0px 0px 0px ([\d.]+)px$/.exec(style.boxShadow);
  const filled = !/^rgba\(.*, 0\)$|^transparent$/.test(style.backgroundColor);
  const lined = parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== "none";
  const bordered = lined && style.borderLeftStyle !== "none";
  if (lined && !bordered) into.append(made("line", { x1: at.x, x2: at.x + box.width, y1: at.y, y2: at.y, stroke: style.borderTopColor }));
  if (filled || bordered || ring) {
    const stroke = ring ? { stroke: ring[1]!, "stroke-width": 2 * Number(ring[2]) } : bordered ? { stroke: style.borderTopColor, "stroke-width": parseFloat(style.borderTopWidth) } : {};
    const size = { width: box.width, height: box.height, rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2) };
    into.append(made("rect", { ...at, ...size, fill: filled ? style.backgroundColor : "none", ...stroke }));
  }
}

// What is inside of a box that hides what does not fit.
function clipped(into: SVGElement, at: Origin, { width, height }: DOMRect): SVGElement {
  const inside = made("svg", { ...at, width, height, viewBox: `${at.x} ${at.y} ${width} ${height}` });
  into.append(inside);
  return inside;
}

// The lines of a text, where they are.
function letters(text: Text, style: CSSStyleDeclaration, into: SVGElement, origin: Origin, begins: boolean) {
  const range = document.createRange();
  const lines: { text: string; box: DOMRect }[] = [];
  for (let place = 0; place < text.length; place++) {
    range.setStart(text, place);
    range.setEnd(text, place + 1);
    const box = range.getBoundingClientRect();
    const [last, letter] = [lines.at(-1), text.data[place]!];
    if (box.width === 0 && /\s/.test(letter)) continue; // it is not seen
    if (last && Math.abs(box.top - last.box.top) < box.height / 2) last.text += letter;
    else if (box.width > 0) lines.push({ text: letter, box });
  }
  if (begins && lines[0]) lines[0].text = lines[0].text.replace(/\S/, (letter) => letter.toUpperCase());
  for (const line of lines) {
    const x = style.direction === "rtl" ? line.box.right : line.box.left;
    into.append(word(line.text, style, { x: x - origin.x, y: line.box.top + line.box.height / 2 - origin.y }));
  }
}

// A text that is turned around a corner of its box, of which only the upright frame is known.
function turnedText(element: HTMLElement, child: Element, style: CSSStyleDeclaration, into: SVGElement, at: Origin) {
  const { a, b, c, d } = new DOMMatrix(style.transform);
  const [width, height] = [element.offsetWidth, element.offsetHeight];
  const [x, y] = style.transformOrigin.split(" ").map(parseFloat) as [number, number];
  const corners = [[0, 0], [width, 0], [0, height], [width, height]].map(([u, v]) => [u! - x, v! - y] as const);
  const left = Math.min(...corners.map(([u, v]) => a * u + c * v));
  const above = Math.min(...corners.map(([u, v]) => b * u + d * v));
  const place = `matrix(${a} ${b} ${c} ${d} ${at.x - left} ${at.y - above}) translate(${-x} ${height / 2 - y})`;
  into.append(word(child.textContent ?? "", style, { transform: place }));
}

// A drawing with its style in itself.
function styled(element: SVGElement): SVGElement {
  const copy = element.cloneNode(false) as SVGElement;
  copy.removeAttribute("class");
  copy.removeAttribute("style");
  const style = getComputedStyle(element);
  for (const name of KEPT) copy.setAttribute(name, style.getPropertyValue(name));
  if (style.transform !== "none") copy.setAttribute("transform", style.transform);
  for (const child of element.childNodes) {
    if (child instanceof SVGElement) copy.append(styled(child));
    else if (child instanceof Text) copy.append(child.data);
  }
  return copy;
}
