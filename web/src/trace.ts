// What the views know of a trace: attention by kind, layer and head, over named tokens. Where it comes from (a widget,
// a page, a server) is not their business.
//
// T tokens that look, S tokens that are looked at
import { fractions, type Answer } from "./unpack";

export interface Candidate {
  token: number; // its id
  text: string;
  probability: number;
  chosen: boolean; // whether it is the token that follows
}

export interface Head {
  layer: number;
  head: number;
  entropy: number; // bits, the mean over tokens
  weights: Float32Array | null; // (T, S), row by row; null: to be asked for
  map: Map; // how it looks
}

// A small picture of weights.
export interface Map {
  values: Float32Array;
  width: number;
}

export interface Kind {
  name: string; // "decoder.cross"
  title: string; // "cross attention"
  written: boolean; // whether its rows are tokens at the step that writes them
  rows: string[]; // T
  columns: string[]; // S
  heads: Head[];
  sharpest: [layer: number, head: number];
  steps: number[][] | null; // of each row, the places of its candidates
  rollout: Float32Array | null; // (T, S), what attention mixes through all layers
}

export interface Trace {
  input: string;
  output: string;
  first: { kind: string; layer: number | null; head: number | null; matrix: boolean; words: boolean; row: number | null };
  readings: { pieces: Kind[]; words?: Kind[] };
  candidates: Candidate[][]; // of each step
  words: Record<string, number[][]>; // by stack, the pieces of each word
  window?: { start: number; length: number; tokens: number } | null; // what is shown of a long text
  begins?: number; // the place whose candidates are those of the first token that the model chose
  cut?: number | null; // so many tokens are read of a text that has more
}

const VERSION = 3;

type PackedKind = Omit<Kind, "heads" | "rollout"> & { heads: Omit<Head, "weights" | "map">[] };
export type PackedTrace = Omit<Trace, "readings"> & { version: number; readings: Record<string, PackedKind[]> };

// A trace from its packed form; looking/packing.py says what it holds.
export function traceOf({ header, arrays }: Answer<PackedTrace>): Trace {
  const { readings, version, ...rest } = header;
  if (version !== VERSION) throw new Error(`the trace has version ${version}, this view reads ${VERSION}`);
  const kinds = Object.entries(readings).map(([reading, some]) => [
    reading,
    some.map((kind): Kind => {
      const name = `${reading} ${kind.name}`;
      const whole = name in arrays;
      const found = arrays[whole ? name : `${name} small`]!;
      const rolled = arrays[`${name} rollout`];
      const values = fractions(found);
      const [, height, width] = found.shape as [number, number, number];
      const heads = kind.heads.map((head, place) => {
        const part = values.subarray(place * height * width, (place + 1) * height * width);
        return { ...head, weights: whole ? part : null, map: { values: part, width } };
      });
      return { ...kind, heads, rollout: rolled ? fractions(rolled) : null };
    }),
  ]);
  return { ...rest, readings: Object.fromEntries(kinds) as Trace["readings"] };
}

// The tokens that the rows or columns of a kind are: those of a stack, or those that were written.
export function stackOf(kind: Kind, side: Side): string {
  const [stack, what] = kind.name.split(".") as [string, string];
  if (side === "columns") return what === "cross" ? "encoder" : stack;
  return kind.written ? "written" : stack;
}

// What is shown of a kind: one head, the mean of a layer, the mean of all heads, or what they mix through all layers.
export interface Choice {
  layer: number | null;
  head: number | null;
  rollout?: true;
}

export function sameChoice(a: Choice, b: Choice): boolean {
  return a.layer === b.layer && a.head === b.head && a.rollout === b.rollout;
}

export function layersOf(kind: Kind): number[] {
  return [...new Set(kind.heads.map((each) => each.layer))];
}

function chosen(kind: Kind, choice: Choice): Head[] {
  const found = kind.heads.filter(
    (each) =>
      (choice.layer === null || each.layer === choice.layer) && (choice.head === null || each.head === choice.head),
  );
  return found.length > 0 ? found : kind.heads.slice(0, 1); // a link may name a head that another model has
}

// The weights of a choice; null, if they have to be asked for.
export function weightsOf(kind: Kind, choice: Choice): Float32Array | null {
  if (choice.rollout) return kind.rollout;
  const found = chosen(kind, choice).map((each) => each.weights);
  return found.every((each) => each !== null) ? mean(found) : null;
}

export function mapOf(kind: Kind, choice: Choice): Map {
  if (choice.rollout && kind.rollout) return { values: kind.rollout, width: kind.columns.length };
  const found = chosen(kind, choice).map((each) => each.map);
  return { values: mean(found.map((each) => each.values)), width: found[0]!.width };
}

function mean(all: Float32Array[]): Float32Array {
  if (all.length === 1) return all[0]!;
  const found = new Float32Array(all[0]!.length);
  for (const each of all) each.forEach((value, place) => (found[place]! += value / all.length));
  return found;
}

export function describe(choice: Choice): string {
  if (choice.rollout) return "rollout through all layers";
  if (choice.layer === null) return "mean of all heads";
  return choice.head === null ? `layer ${choice.layer}, mean of heads` : `layer ${choice.layer}, head ${choice.head}`;
}

// Whether a token is no text: the start or the end, as traces call them, or as a vocabulary does.
export function isSpecial(text: string): boolean {
  return ["start", "end"].includes(text) || /^<[^<>]+>$|^\[[A-Z]+\]$/.test(text);
}

// A token of one side, and what joins it to the tokens of the other.
export type Side = "rows" | "columns";
export interface Pointed {
  side: Side;
  place: number;
}

// The weights between a token and all tokens of the other side.
export function weightsAt(weights: Float32Array, kind: Kind, { side, place }: Pointed): number[] {
  const width = kind.columns.length;
  if (side === "rows") return Array.from(weights.subarray(place * width, (place + 1) * width));
  return kind.rows.map((_, row) => weights[row * width + place]!);
}

export function largest(values: number[], count: number, least = 0): { place: number; value: number }[] {
  return values
    .map((value, place) => ({ place, value }))
    .filter((each) => each.value >= least)
    .sort((a, b) => b.value - a.value)
    .slice(0, count);
}

// A weight or a probability in two digits: .62, and 1.0 for all of it.
export function number(value: number): string {
  const text = value.toFixed(2);
  return text.startsWith("0") ? text.slice(1) : "1.0";
}

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const LETTER = /\p{L}/u;

// The direction in which most letters of a text are written.
export function direction(texts: string[]): "ltr" | "rtl" {
  const letters = [...texts.join("")].filter((letter) => LETTER.test(letter));
  return 2 * letters.filter((letter) => RIGHT_TO_LEFT.test(letter)).length > letters.length ? "rtl" : "ltr";
}
