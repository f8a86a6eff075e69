// Questions to a run, and their answers. Two ways behind one interface: what was recorded is in the page itself; all else
// is asked of the server, if there is one.
import { fromBase64, unpack, type Answer } from "../unpack";

export type Options = Record<string, unknown>;

// An answer that was recorded: in a file that was saved, or for what a page shows before the model is loaded.
export interface Recorded {
  view: string;
  run: string;
  options: Options;
  packed: string; // in base64
}

// What the page is told when it opens.
export interface Start {
  live: boolean; // there is a server to ask
  runs: string[];
  recorded: Recorded[];
  state?: string; // what was looked at when a file was saved, as in a link
}

// A question that cannot be answered, with the sentence that says why.
export class Refused extends Error {}

export const ONLY_RECORDED = "This file has only what was recorded; open the Studio for more.";
const UNREACHABLE = "The Studio does not answer: it was closed. Start it again with glassformer studio.";
const REPLACED = 409;

// The same options are the same text, in whatever order they were named.
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) =>
    each !== null && typeof each === "object" && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  );
}

export class Api {
  readonly live: boolean;
  asked: Omit<Recorded, "packed">[] = []; // what was answered, the last first
  private readonly recorded: Map<string, string>;
  private readonly tab = Math.random().toString(36).slice(2);

  constructor(start: Start) {
    this.live = start.live;
    this.recorded = new Map(start.recorded.map((each) => [canonical([each.view, each.run, each.options]), each.packed]));
  }

  has(view: string, run: string, options: Options): boolean {
    return this.recorded.has(canonical([view, run, options]));
  }

  // What was recorded is forgotten: the server is asked from now on.
  forget(view: string, run: string, options: Options) {
    this.recorded.delete(canonical([view, run, options]));
  }

  async ask<Header>(view: string, run: string, options: Options, signal?: AbortSignal, asker?: string): Promise<Answer<Header>> {
    const key = canonical([view, run, options]);
    const packed = this.recorded.get(key);
    if (packed === undefined && !this.live) throw new Refused(ONLY_RECORDED);
    const bytes = packed === undefined ? await this.fetch(view, run, options, signal, asker) : fromBase64(packed);
    const answer = await unpack<Header>(bytes);
    this.asked = [{ view, run, options }, ...this.asked.filter((each) => canonical([each.view, each.run, each.options]) !== key)];
    return answer;
  }

  // A newer question of the same asker takes the place of an older one.
  async post(address: string, body: unknown, signal?: AbortSignal, asker = newAsker()): Promise<Response> {
    const headers = { "content-type": "application/json", "x-studio-tab": `${this.tab} ${asker}` };
    const request: RequestInit = { method: "POST", headers, body: JSON.stringify(body) };
    const response = await fetch(address, signal ? { ...request, signal } : request).catch((error: unknown) => {
      throw signal?.aborted ? error : new Refused(UNREACHABLE);
    });
    if (response.ok) return response;
    if (response.status === REPLACED) throw new DOMException("replaced", "AbortError");
    const said = (await response.json().catch(() => ({}))) as { error?: string };
    throw new Refused(sentence(said.error ?? `The Studio answered with status ${response.status}.`));
  }

  private async fetch(
    view: string, run: string, options: Options, signal?: AbortSignal, asker?: string,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const response = await this.post(`/api/ask/${view}`, { run, options }, signal, asker);
    return new Uint8Array(await response.arrayBuffer());
  }
}

let askers = 0;
export function newAsker(): string {
  return `${++askers}`;
}

// As a page writes it: with a capital, and a full stop.
function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
