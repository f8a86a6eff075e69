// The one state that all views share: the run, the text, the view, what is looked at, and each view's own options. It is
// mirrored in the address (after #), so that a link restores it.
import { MediaQuery } from "svelte/reactivity";
import { Focus } from "../focus.svelte";
import type { Choice } from "../trace";
import type { Answer } from "../unpack";
import type { Offer } from "./export";
import { Api, canonical, Refused, type Options, type Start } from "./api";

// What the server says of a run (studio/views/about.py).
export interface About {
  task: string;
  title: string;
  family: string;
  fields: string[]; // what it reads: "text", "image", or several texts, which have tabs between
  examples: string[]; // to try, the one to begin with first
  searches: boolean; // it takes a beam
  extends: boolean; // it writes on where the text ends
  points: string[];
  parameters: number;
  decode: { beam?: number; length_penalty?: number };
  views: string[]; // that it has
  why?: string; // it could not be loaded
}

const LONGEST = 20_000; // letters of a text in a link

export interface HeadName {
  kind: string;
  layer: number;
  head: number;
}

// How a text is read (studio/views/traces.py): what is changed inside the model, and how outputs are searched.
export interface How extends Options {
  off?: HeadName[]; // heads that are switched off
  prefix?: number[]; // tokens that the output begins with
  attend?: { step: number; key: number; weight?: number }; // attention that is set by hand for one step
  beam?: number;
  length_penalty?: number;
  draw?: { temperature: number; top_k?: number; top_p?: number; seed: number };
}

export type ThemeChoice = "system" | "light" | "dark";

export class Studio {
  readonly api: Api;
  readonly runs: string[];
  readonly focus = new Focus();
  run = $state("");
  text = $state("");
  typing = $state(false); // a text is being typed that is not read yet
  view = $state("read");
  about = $state.raw<About | null>(null);
  options: Record<string, Options> = $state({}); // of each view, by its name
  offer = $state.raw<Offer | null>(null); // what the view that is shown gives away
  looks: Record<string, number[]> = $state.raw({}); // the steps at which the training of each run was looked at
  notice = $state<string | null>(null); // one sentence: what could not be done
  busy = $state(0); // questions that are not answered yet
  themeChoice = $state<ThemeChoice>("system");
  private blamed: { asker: string; shown: string; text: string } | null = $state.raw(null); // what the notice is about
  private readonly dark = new MediaQuery("(prefers-color-scheme: dark)");
  readonly theme: "light" | "dark" = $derived(
    this.themeChoice === "system" ? (this.dark.current ? "dark" : "light") : this.themeChoice,
  );

  constructor(start: Start) {
    this.api = new Api(start);
    this.runs = start.runs;
    this.run = start.runs[0] ?? "";
    this.restore(location.hash.slice(1) || start.state || "");
  }

  // Open the run: what it is, and if there is no text yet, a text to begin with.
  async open() {
    const run = this.run;
    const early = this.api.live && this.api.has("about", run, {}); // recorded before the model was there: views may be new
    const about = (await this.ask<About>("about", {}))?.header;
    if (about === undefined || run !== this.run) return;
    this.about = about;
    if (about.why !== undefined) this.notice = about.why;
    if (!this.text && !this.typing) this.text = about.examples[0] ?? "";
    if (!early && !about.views.includes(this.view)) this.view = about.views[0] ?? this.view;
    if (early) {
      this.api.forget("about", run, {}); // what was recorded before the model was there
      await this.open();
    }
  }

  // A page in one file, with all that was asked about this text, and what the views want to have in it.
  async save(wanted: { view: string; options: Options }[]): Promise<string> {
    const own = this.api.asked.filter((each) => each.run === this.run && (each.options.text ?? this.text) === this.text);
    const all = [...wanted.map((each) => ({ ...each, run: this.run })), ...own.slice(0, 60)];
    const asked = [...new Map(all.map((each) => [canonical(each), each])).values()];
    const response = await this.api.post("/api/save", { asked, state: this.link });
    return await response.text();
  }

  choose(run: string, options: Record<string, Options> = {}) {
    this.run = run;
    this.about = null;
    this.text = "";
    this.begin(options);
    void this.open();
  }

  // Nothing is chosen any more.
  begin(options: Record<string, Options> = {}) {
    this.notice = null;
    this.focus.forget();
    this.focus.heads.kind = null;
    this.focus.heads.choices = {};
    this.options = options;
  }

  write(text: string) {
    this.typing = false;
    if (text === this.text) return;
    this.text = text;
    this.change({ prefix: undefined, attend: undefined }); // they were of tokens of the other text
    this.focus.forget();
  }

  // How the text is read: what all views that read it ask for.
  get how(): How {
    return this.options.how ?? {};
  }

  // How much a run writes that goes on where a text ends, if that was chosen.
  get length(): { length?: number } {
    const length = this.options.read?.length;
    return this.about?.extends && typeof length === "number" ? { length } : {};
  }

  get asked(): Options | null {
    return this.text ? { text: this.text, ...this.how, ...this.length } : null;
  }

  // Read the text in another way; what is undefined or empty is as usual.
  change(how: { [Key in keyof How]: How[Key] | undefined }) {
    const next = Object.entries({ ...this.how, ...how }).filter(
      ([, value]) => value !== undefined && !(Array.isArray(value) && value.length === 0),
    );
    this.options.how = Object.fromEntries(next);
  }

  isOff(head: HeadName): boolean {
    return this.how.off?.some((each) => canonical(each) === canonical(head)) ?? false;
  }

  toggle(head: HeadName) {
    const others = (this.how.off ?? []).filter((each) => canonical(each) !== canonical(head));
    this.change({ off: this.isOff(head) ? others : [...others, head] });
  }

  // The answer of a view about the run; nothing, if it was refused (a notice says why) or is not wanted any more.
  async ask<Header>(
    view: string, options: Options, signal?: AbortSignal, asker?: string,
  ): Promise<Answer<Header> | undefined> {
    this.busy += 1;
    try {
      const answer = await this.api.ask<Header>(view, this.run, options, signal, asker);
      const { blamed } = this;
      if (blamed === null || blamed.asker === (asker ?? view) || blamed.shown !== this.view || blamed.text !== this.text) this.complain(null);
      return answer;
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return undefined;
      const why = error instanceof Refused ? error.message : `This page went wrong: ${String(error)}`;
      this.complain(why, asker ?? view);
      return undefined;
    } finally {
      this.busy -= 1;
    }
  }

  // Whether it was refused while something is changed that can be undone.
  get refused(): boolean {
    return this.blamed !== null && Object.keys(this.how).length > 0;
  }

  // Say what could not be done; it stays until who asked gets an answer, or something else is looked at.
  private complain(why: string | null, asker?: string) {
    this.notice = why;
    this.blamed = asker === undefined ? null : { asker, shown: this.view, text: this.text };
  }

  // The options of a view, with what was not chosen, or what a link has wrong, as it is by default.
  chosen<Chosen extends Options>(view: string, defaults: Chosen): Chosen {
    const fitting = Object.entries(this.options[view] ?? {}).filter(([name, value]) => isLike(value, defaults[name]));
    return { ...defaults, ...Object.fromEntries(fitting) };
  }

  set(view: string, options: Options) {
    this.options[view] = { ...this.options[view], ...options };
  }

  // --- the link

  get link(): string {
    const { focus } = this;
    const state = {
      run: this.run,
      text: this.text.length > LONGEST ? "" : this.text, // a large image
      view: this.view,
      reading: focus.reading,
      form: focus.form,
      kind: focus.heads.kind,
      beneath: focus.beneath === "entropy" ? null : focus.beneath,
      heads: Object.keys(focus.heads.choices).length ? focus.heads.choices : null,
      token: focus.pinned === undefined ? null : (focus.pinned ?? "none"),
      theme: this.themeChoice === "system" ? null : this.themeChoice,
      options: Object.values(this.options).some((each) => Object.keys(each).length) ? this.options : null,
    };
    const named = Object.entries(state).filter(([, value]) => value !== null && value !== "");
    return new URLSearchParams(named.map(([name, value]) => [name, typeof value === "string" ? value : canonical(value)])).toString();
  }

  restore(link: string) {
    const given = new URLSearchParams(link);
    const one = <Value extends string>(name: string, of: readonly Value[]) => of.find((each) => each === given.get(name));
    const { focus } = this;
    this.run = one("run", this.runs) ?? this.run;
    this.text = given.get("text") ?? this.text;
    this.view = given.get("view") ?? this.view;
    focus.reading = one("reading", ["words", "pieces"] as const) ?? null;
    focus.form = one("form", ["lines", "matrix"] as const) ?? null;
    focus.heads.kind = given.get("kind");
    focus.beneath = one("beneath", ["entropy", "effect"] as const) ?? "entropy";
    focus.heads.choices = (parsed(given.get("heads")) as Record<string, Choice>) ?? {};
    const token = given.get("token");
    focus.pinned = token === "none" ? null : ((parsed(token) as Focus["pinned"]) ?? undefined);
    this.themeChoice = one("theme", ["light", "dark"] as const) ?? "system";
    const options = Object.entries(parsed(given.get("options")) ?? {}).filter(([, each]) => isLike(each, {}));
    this.options = Object.fromEntries(options) as Record<string, Options>;
  }
}

// Whether a value is of the same kind as another one, which may be nothing.
function isLike(value: unknown, other: unknown): boolean {
  if (other === null || other === undefined) return true;
  return value !== null && typeof value === typeof other && Array.isArray(value) === Array.isArray(other);
}

function parsed(text: string | null): object | null {
  try {
    const found: unknown = text === null ? null : JSON.parse(text);
    return typeof found === "object" ? found : null;
  } catch {
    return null;
  }
}
