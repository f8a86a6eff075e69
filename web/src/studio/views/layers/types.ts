// What the server says of the layers of a model (studio/views/layers.py).
import type { Choice } from "../../../trace";

export interface Likely {
  id: number;
  text: string;
  probability: number;
}

export interface Layer {
  point: string; // "decoder.0.after"
  best: Likely[][]; // of each place
  ranks: number[]; // how many are likelier than what was written
  likely: number[]; // the probability of what was written
}

export interface Lens {
  input: string;
  output: string;
  whole: boolean; // one answer for the whole text
  places: string[]; // what is read at each place of the output
  total: number;
  leaves_out: boolean; // the text is short enough to leave each of its tokens out
  chosen: { id: number; text: string }[]; // what was written there, or is likeliest
  candidates: Likely[][];
  stack: string;
  words: number[][]; // the places in which each word is written
  without: { lens?: string; parts?: string }; // what there is not, and why
  layers: Layer[];
}

export interface Parts {
  parts: string[];
  values: number[];
  logit: number;
  token: string;
  against: string | null;
}

export interface Spoken {
  texts: string[];
  stacks: string[];
  values: number[];
}

export interface Source {
  method: string;
  score: number;
  baseline: number;
  gap: number;
  readings: { pieces: Spoken; words: Spoken };
}

export interface Effects {
  points: string[];
  labels: string[];
  stack: string; // whose tokens the labels are, over positions
  words: number[][]; // the positions of each word
  over: "positions" | "heads";
  clean: number;
  corrupt: number;
}

// The head that a part is, or the mean of a layer: "decoder.1.cross.2" is head 2 of the cross-attention in layer 1.
export function headOf(part: string): { kind: string; choice: Choice } | null {
  const found = /^(encoder|decoder)\.(\d+)\.(self|cross)(?:\.(\d+))?$/.exec(part);
  if (found === null) return null;
  const [, stack, layer, what, head] = found;
  return { kind: `${stack}.${what}`, choice: { layer: Number(layer), head: head === undefined ? null : Number(head) } };
}

// A point in words: "decoder.0.cross" is "block 0, cross-attention".
export function called(point: string, stack: boolean = false): string {
  const NAMES: Record<string, string> = { self: "self-attention", cross: "cross-attention", ff: "feed-forward", after: "", heads: "", state: "state", backward: "backward" };
  const [first, ...rest] = point.split(".");
  if (rest[0] === "0" && rest[1] === "before") return "embedding";
  const words = rest.map((each, place) => {
    if (!/^\d+$/.test(each)) return NAMES[each] ?? each;
    return place === 0 ? `block ${each}` : `head ${each}`;
  });
  const text = words.filter(Boolean).join(", ") || first!;
  return stack ? `${first} ${text}` : text;
}
