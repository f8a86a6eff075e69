// What a run answers, as its task says it (tasks/showing.py), and what is seen of models that are not only attention:
// an image (studio/faces.py), the cells of a recurrent model (looking/cells.py).
//
// G gates, T tokens, S tokens before, W width of a state
import { fractions, type Answer } from "../../unpack";

export interface Likely {
  text: string;
  probability: number;
}

export interface Part {
  text: string;
  marked: boolean; // it is what the run found
  label: string; // what the run says of it
  likely: Likely[]; // what it, or its label, might be
}

export interface Reply {
  parts: Part[];
  labels: Likely[]; // of the whole
  note: string;
}

export interface Picture {
  side: number; // patches in a row
  size: number; // pixels in a row
  pixels: ImageData;
  seen: string; // the same as a data URL
}

export interface Cell {
  name: string; // "encoder.0"
  stack: string;
  layer: number;
  backward: boolean;
  tokens: string[]; // T
  gates: { name: string; values: Float32Array }[]; // (T, W) each, from 0, closed, to 1, open
  kept: Float32Array | null; // (T, S): what is left of each token at each later one
  state: Float32Array; // (T, W), from 0 to 1, of which 0.5 stands for 0
  width: number;
}

export interface PackedFace {
  reply?: Reply;
  picture?: { side: number; seen: string } | null;
  cells?: (Omit<Cell, "gates" | "kept" | "state" | "width"> & { gates: string[] })[];
}

export interface Face {
  reply: Reply;
  picture: Picture | null;
  cells: Cell[];
}

export function faceOf({ header, arrays }: Answer<PackedFace>): Face {
  const reply = header.reply ?? { parts: [], labels: [], note: "" };
  const numbers = arrays.pixels;
  const picture = header.picture && numbers ? { ...header.picture, size: numbers.shape[0]!, pixels: imageOf(numbers.data as Uint8Array, numbers.shape) } : null;
  const cells = (header.cells ?? []).map((cell) => {
    const [gates, kept, state] = ["gates", "kept", "state"].map((what) => arrays[`${cell.name} ${what}`]);
    const width = state!.shape[1]!;
    const all = gates ? fractions(gates) : new Float32Array();
    const one = cell.tokens.length * width;
    return {
      ...cell,
      width,
      gates: cell.gates.map((name, place) => ({ name, values: all.subarray(place * one, (place + 1) * one) })),
      kept: kept ? fractions(kept) : null,
      state: fractions(state!),
    };
  });
  return { reply, picture, cells };
}

// Pixels (S, S, C) as a canvas takes them.
function imageOf(pixels: Uint8Array, [height, width, colours]: number[]): ImageData {
  const image = new ImageData(width!, height!);
  for (let place = 0; place < width! * height!; place++) {
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * place + channel] = pixels[place * colours! + (colours === 1 ? 0 : channel)]!;
    }
    image.data[4 * place + 3] = 255;
  }
  return image;
}

// The mean of all units at each token, of numbers (T, W).
export function means(values: Float32Array, width: number): Float32Array {
  const found = new Float32Array(values.length / width);
  values.forEach((value, place) => (found[Math.floor(place / width)]! += value / width));
  return found;
}

export function percent(value: number): string {
  return value > 0 && value < 0.01 ? "< 1 %" : `${Math.round(100 * value)} %`;
}
