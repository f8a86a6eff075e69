// The colours of weights, as pixels: from the page's own colour to the accent, with a lookup table.

export type Table = Uint32Array; // 256 colours, as ImageData has them

const STEPS = 256;

// The table for the theme that an element is in: three colours that its style defines, and what lies between.
export function colourTable(element: HTMLElement, names = ["--heat-none", "--heat-half", "--heat-all"]): Table {
  const stops = names.map((name) => resolved(element, name));
  const bytes = new Uint8ClampedArray(4 * STEPS);
  for (let step = 0; step < STEPS; step++) {
    const at = (2 * step) / (STEPS - 1);
    const [from, to] = at < 1 ? [stops[0]!, stops[1]!] : [stops[1]!, stops[2]!];
    for (let channel = 0; channel < 3; channel++) {
      bytes[4 * step + channel] = from[channel]! + (to[channel]! - from[channel]!) * (at < 1 ? at : at - 1);
    }
    bytes[4 * step + 3] = 255;
  }
  return new Uint32Array(bytes.buffer);
}

function resolved(element: HTMLElement, name: string): number[] {
  const probe = (element.parentElement ?? element).appendChild(document.createElement("span"));
  probe.style.color = `var(${name})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
}

let reused: ImageData | null = null; // the pixels of the last picture: most have the same size

// Weights (T, S) on a canvas, a pixel each; `mirrored`: the first column is on the right.
export function paint(canvas: HTMLCanvasElement, weights: Float32Array, width: number, table: Table, mirrored: boolean) {
  const height = weights.length / width;
  if (canvas.width !== width) canvas.width = width; // which takes time, and clears it
  if (canvas.height !== height) canvas.height = height;
  if (reused?.width !== width || reused.height !== height) reused = new ImageData(width, height);
  const pixels = new Uint32Array(reused.data.buffer);
  const [last, step] = mirrored ? [width - 1, -1] : [0, 1];
  for (let row = 0, place = 0; row < height; row++) {
    for (let column = 0, at = row * width + last; column < width; column++, at += step) {
      pixels[at] = table[(weights[place++]! * (STEPS - 1) + 0.5) | 0]!;
    }
  }
  canvas.getContext("2d")!.putImageData(reused, 0, 0);
}
