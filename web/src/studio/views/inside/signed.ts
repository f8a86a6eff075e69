// Numbers below and above 0 as colours: one colour for each side, the page's own for 0.
import { colourTable, type Table } from "../../../colours";

export function signedTable(element: HTMLElement): Table {
  return colourTable(element, ["--minus", "--heat-none", "--plus"]);
}

// The place of a number in a table of 256 colours; `scale` has the strongest.
export function shade(value: number, scale: number): number {
  return Math.round(127.5 + 127.5 * Math.max(-1, Math.min(1, value / scale)));
}

// The size that has the strongest colour: that of the largest number, but for one in a hundred.
export function scaleOf(values: ArrayLike<number>): number {
  const sizes = Array.from(values, Math.abs).sort((a, b) => a - b);
  return sizes[Math.floor(0.99 * (sizes.length - 1))] || 1;
}
