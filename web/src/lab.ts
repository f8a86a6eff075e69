// What a page with a live model can do more: heads are switched off, and weights that were not sent are asked for.
import type { Snippet } from "svelte";
import type { Choice } from "./trace";

export interface Lab {
  effect?: ((kind: string, layer: number, head: number) => number | null) | undefined; // null: not known yet
  isOff: (kind: string, layer: number, head: number) => boolean;
  toggle: (kind: string, layer: number, head: number) => void;
  weights: (reading: string, kind: string, choice: Choice) => Promise<Float32Array | null>;
  take?: ((step: number, candidate: number) => void) | undefined; // write this candidate instead, and go on
  above: Snippet; // what has changed
  offer: (element: HTMLElement, rows: () => (string | number)[][]) => void; // to be taken away
}
