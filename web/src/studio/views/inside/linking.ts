// Between a token that all views point at, counted in words or pieces, and a row of a table, counted in pieces.
import type { Focus, Token } from "../../../focus.svelte";

// What stands in the rows: the tokens that a stack reads, and of a decoder those that it writes there.
export interface Rows {
  stack: string;
  count: number;
  words: number[][]; // the rows of each word that is read
  written: number[][]; // the rows in which each word is written
}

function groups(rows: Rows, stack: string, focus: Focus): number[][] | null {
  const words = stack === "written" ? rows.written : rows.words;
  return focus.reading === "pieces" || words.length === 0 ? null : words;
}

// The row at which a token stands, or in which it is written; null: it is of another stack. Of a word's pieces it is the
// one that was chosen here, if it is among them.
export function rowOf(rows: Rows, token: Token | null | undefined, focus: Focus, own: number | null = null): number | null {
  if (!token || (token.stack !== rows.stack && !(token.stack === "written" && rows.stack === "decoder"))) return null;
  const group = groups(rows, token.stack, focus)?.[token.place] ?? [token.place];
  const row = own !== null && group.includes(own) ? own : group[0]!;
  return row < rows.count ? row : null;
}

// A token where it is read: what is written at one step is read at the next.
export function asRead(token: Token | null | undefined): Token | null {
  return token?.stack === "written" ? { ...token, stack: "decoder", place: token.place + 1 } : (token ?? null);
}

// The token of a row: what is read there, or `written` there.
export function tokenAt(rows: Rows, row: number, focus: Focus, written = false): Token {
  const stack = written && rows.written.length > 0 ? "written" : rows.stack;
  const some = groups(rows, stack, focus);
  const place = some === null ? row : some.findIndex((group) => group.includes(row));
  return { stack, place: Math.max(0, place) };
}
