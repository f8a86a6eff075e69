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

// Weights (T, S) on a canvas, a pixel each; `mirrored`: the first column is on the right.
export function paint(canvas: HTMLCanvasElement, weights: Float32Array, width: number, table: Table, mirrored: boolean) {
  const height = weights.length / width;
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  weights.forEach((weight, place) => {
    const row = Math.floor(place / width);
    pixels[mirrored ? row * width + (width - 1 - (place - row * width)) : place] = table[Math.round(weight * (STEPS - 1))]!;
  });
  canvas.getContext("2d")!.putImageData(image, 0, 0);
}
