// What the server says of the inside of a model (studio/views/inside.py).
//
// T tokens, S keys, D width
import type { Numbers } from "../../../unpack";

export interface Part {
  name: string; // "decoder.0.cross"
  title: string;
  kind: "attention" | "alignment" | "feed-forward" | "embedding" | "norm" | "cells" | "head" | "numbers";
  heads: number;
}

export interface Stage {
  name: string;
  title: string;
  point: string;
  parts: Part[];
  shape: number[]; // [T, D], or [V] for a whole text
  norms: number[]; // T, the length of each token's vector
  scale: number; // the size that has the strongest colour
}

export interface Lane {
  stack: string;
  title: string;
  tokens: string[];
  ids: number[];
  total: number; // tokens there are; `tokens` are the first of them
  words: number[][]; // the tokens of each word
  written: number[][]; // of a decoder: the rows in which each word is written
  stages: Stage[];
}

export interface Candidate {
  id: number;
  text: string;
  logit: number;
  probability?: number; // numbers that a model answers with have none
  chosen?: boolean;
}

export interface Overview {
  input: string;
  output: string;
  lanes: Lane[];
  answers: Candidate[][]; // of each token of the last lane, or one for the whole text
  parameters: number;
  most: number;
}

export interface TableHeader {
  point: string; // "": its numbers cannot be written out
  rows: string[];
  columns: "feature" | "key" | "vocabulary";
  head: number | null;
  first: number; // the token of the first row
  first_column: number;
  places: number[] | null; // which numbers of the point the columns are
  total: number;
}

export interface Table extends TableHeader {
  name: string;
  values: Float32Array;
  width: number; // columns
  height: number;
}

export interface Unfolded {
  part: Part;
  token: number;
  head: number;
  keys: string[];
  tables: Record<string, Table>;
  facts: Record<string, unknown>;
  allowed: Uint8Array | null; // (T, S)
}

// One number: what the server is asked for.
export interface Cell {
  point: string;
  token: number;
  at: number;
  head: number | null;
}

export interface Step {
  name: string;
  factors: string[];
  function: string;
  total: number;
  value: number;
  terms: { label: string; factors: number[]; value: number }[];
  others: { count: number; value: number };
}

export interface Sum extends Cell {
  value: number;
  steps: Step[];
}

export function tablesOf(headers: Record<string, TableHeader>, arrays: Record<string, Numbers>): Record<string, Table> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, header]) => {
      const { data, shape } = arrays[name]!;
      return [name, { ...header, name, values: data as Float32Array, height: shape[0]!, width: shape[1]! }];
    }),
  );
}

export function sameCell(a: Cell | null, b: Cell | null): boolean {
  return a !== null && b !== null && a.point === b.point && a.token === b.token && a.at === b.at && a.head === b.head;
}

// A number in two digits, with a true minus.
export function plain(value: number): string {
  const text = Math.abs(value).toFixed(2);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

// A number as it is written: with a true minus, and as many digits as say something.
export function written(value: number, digits = 3): string {
  const size = Math.abs(value);
  const text = size !== 0 && (size < 0.5 * 10 ** -digits || size >= 1e5) ? size.toExponential(1) : size.toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}
