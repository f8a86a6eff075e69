// What is looked at: which kind of attention, which head, words or pieces, and the token that is pointed at. All views of
// a page share one focus: what is pointed at in one is marked in all.
import { stackOf, type Choice, type Kind, type Pointed } from "./trace";

export type Reading = "words" | "pieces";

// A token of a stack, "encoder" or "decoder", or one that was "written"; counted in words or pieces, as is read now.
export interface Token {
  stack: string;
  place: number;
  side?: Pointed["side"]; // where a kind has the stack on both sides
}

// Which heads are looked at: the same in all views of a run, whatever text they show.
export class Heads {
  kind = $state<string | null>(null); // of attention
  choices: Record<string, Choice> = $state({}); // by kind; without one, the sharpest head

  get choice(): Choice | undefined {
    return this.kind === null ? undefined : this.choices[this.kind];
  }

  choose(kind: string, choice: Choice) {
    this.kind = kind;
    this.choices[kind] = choice;
  }
}

export class Focus {
  reading = $state<Reading | null>(null); // null: as the trace says
  form = $state<"lines" | "matrix" | null>(null);
  hovered = $state<Token | null>(null);
  pinned = $state<Token | null | undefined>(undefined); // undefined: nobody has chosen yet
  beneath = $state<"entropy" | "effect">("entropy"); // the number beneath each head
  column = $state<number | null>(null); // of a matrix, beside the row that is hovered

  constructor(readonly heads = new Heads()) {}

  // The token that is pointed at, if nobody has pinned one a given one.
  token(otherwise: Token | null): Token | null {
    return this.hovered ?? (this.pinned === undefined ? otherwise : this.pinned);
  }

  point(token: Token | null, column: number | null = null) {
    this.hovered = token;
    this.column = column;
  }

  pin(token: Token, otherwise: Token | null) {
    const now = this.pinned === undefined ? otherwise : this.pinned;
    const same = now?.stack === token.stack && now.place === token.place;
    this.pinned = same ? null : token;
    if (same) this.hovered = null;
  }

  clear() {
    this.pinned = null;
    this.hovered = null;
  }

  // Another text: nobody has chosen a token of it.
  forget() {
    this.pinned = undefined;
    this.hovered = null;
    this.column = null;
  }
}

// The pieces of each word, by stack; of what is not known, each is its own word.
export type Groups = Record<string, number[][]>;

// The same token after a change from words to pieces, or back: the first piece of a word, or the word of a piece.
export function converted(token: Token, to: Reading, groups: Groups): Token {
  const words = groups[token.stack];
  if (words === undefined) return token;
  const place = to === "pieces" ? (words[token.place]?.[0] ?? 0) : words.findIndex((pieces) => pieces.includes(token.place));
  return { ...token, place: Math.max(0, place) };
}

// What all views point at, for a table whose tokens are pieces; and a token of such a table, as the views count it.
export function inPieces(token: Token | null, focus: Focus, groups: Groups): Token | null {
  return token && focus.reading !== "pieces" ? converted(token, "pieces", groups) : token;
}
export function fromPieces(token: Token, focus: Focus, groups: Groups): Token {
  return focus.reading === "pieces" ? token : converted(token, "words", groups);
}

// A token as a kind of attention has it: on which side, and where. What is written at one step is read at the next.
export function within(kind: Kind, token: Token | null): Pointed | null {
  if (token === null) return null;
  for (const side of token.side === "columns" ? (["columns", "rows"] as const) : (["rows", "columns"] as const)) {
    const stack = stackOf(kind, side);
    const shift = stack === token.stack ? 0 : token.stack === "written" && stack === "decoder" ? 1 : stack === "written" && token.stack === "decoder" ? -1 : null;
    if (shift === null) continue;
    const place = token.place + shift;
    if (place >= 0 && place < kind[side].length) return { side, place };
  }
  return null;
}

export function tokenOf(kind: Kind, { side, place }: Pointed): Token {
  return { stack: stackOf(kind, side), place, side };
}
