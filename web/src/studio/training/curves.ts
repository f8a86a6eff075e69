// The measurements of runs as curves: what a server has sent so far, and which of it a chart shows.
import type { Answer } from "../../unpack";

export interface PackedTraining {
  runs: {
    run: string;
    anew: boolean; // forget what was known of it
    cursor: string;
    keys: string[];
    looks: number[]; // steps
    training: boolean; // a process trains it
    quiet: number | null; // seconds since it measured something
    steps?: number; // of the whole training
    watch?: string;
    texts?: string[]; // that are looked at
  }[];
}

export interface Series {
  steps: number[];
  values: number[];
}

export interface Course {
  run: string;
  cursor: string;
  training: boolean;
  quiet: number | null;
  steps: number | null;
  watch: string;
  texts: string[];
  looks: number[];
  series: Record<string, Series>;
}

// The courses with what a new answer adds.
export function continued(before: Record<string, Course>, { header, arrays }: Answer<PackedTraining>): Record<string, Course> {
  const after = { ...before };
  header.runs.forEach((found, place) => {
    const known = found.anew ? undefined : before[found.run];
    const series = { ...known?.series };
    const steps = arrays[`${place} step`]?.data ?? [];
    for (const key of found.keys.filter((each) => each !== "step")) {
      const old = series[key] ?? { steps: [], values: [] };
      const made: Series = { steps: [...old.steps], values: [...old.values] };
      arrays[`${place} ${key}`]!.data.forEach((value, at) => {
        if (Number.isNaN(value)) return;
        made.steps.push(steps[at]!);
        made.values.push(value);
      });
      series[key] = made;
    }
    after[found.run] = {
      run: found.run,
      cursor: found.cursor,
      training: found.training,
      quiet: found.quiet,
      looks: found.looks,
      steps: found.steps ?? known?.steps ?? null,
      watch: found.watch ?? known?.watch ?? "loss",
      texts: found.texts ?? known?.texts ?? [],
      series,
    };
  });
  return after;
}

export interface Line {
  run: string;
  key: string;
  label: string;
  colour: string;
  kind: "thin" | "dashed" | "solid";
  series: Series;
}

// Colours that all can tell apart, in both themes; further runs begin anew.
const COLOURS = {
  light: ["#0072b2", "#c04e00", "#00805c", "#a3437f", "#7a5c00", "#1b1f24"],
  dark: ["#56b4e9", "#f0923c", "#2fc79a", "#e38fc1", "#e3c02c", "#e6e9ed"],
};

export function colourOf(place: number, theme: "light" | "dark"): string {
  return COLOURS[theme][place % COLOURS.light.length]!;
}

// The titles of what was measured, for people.
export function titleOf(key: string): string {
  const titles: Record<string, string> = {
    loss: "loss of each batch",
    train_loss: "loss on training examples",
    valid_loss: "loss on validation examples",
    lr: "learning rate",
    norm: "norm of gradients",
    tokens_per_s: "tokens a second",
    valid_bleu: "BLEU",
    valid_chrf: "chrF",
    valid_f1: "F1",
  };
  return titles[key] ?? key.replace(/^valid_/, "").replaceAll("_", " ");
}

export const LOSSES = ["loss", "train_loss", "valid_loss"];
const BESIDE = ["lr", "norm", "tokens_per_s", "padding", "memory", "skipped"];

// The scores of validations, the watched one first.
export function scoresIn(courses: Course[]): string[] {
  const keys = [...new Set(courses.flatMap((each) => Object.keys(each.series)))];
  const scores = keys.filter((key) => key.startsWith("valid_") && key !== "valid_loss");
  const watched = new Set(courses.map((each) => `valid_${each.watch}`));
  return [...scores.filter((key) => watched.has(key)), ...scores.filter((key) => !watched.has(key))];
}

export function othersIn(courses: Course[]): string[] {
  return BESIDE.filter((key) => courses.some((each) => each.series[key] !== undefined));
}

// The lines of some measurements, a colour for each run.
export function linesOf(courses: Course[], keys: string[], places: Record<string, number>, theme: "light" | "dark"): Line[] {
  return courses.flatMap((course) =>
    keys.flatMap((key) => {
      const series = course.series[key];
      if (series === undefined) return [];
      const kind = key === "loss" ? ("thin" as const) : key === "train_loss" ? ("dashed" as const) : ("solid" as const);
      return [{ run: course.run, key, label: titleOf(key), colour: colourOf(places[course.run] ?? 0, theme), kind, series }];
    }),
  );
}

// Lines on one axis of steps, as uPlot takes them: what was not measured at a step is null.
export function aligned(lines: Line[]): [number[], ...(number | null)[][]] {
  const steps = [...new Set(lines.flatMap((line) => line.series.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, at) => [step, at]));
  const columns = lines.map(({ series }) => {
    const column: (number | null)[] = new Array<number | null>(steps.length).fill(null);
    series.steps.forEach((step, at) => (column[place.get(step)!] = series.values[at]!));
    return column;
  });
  return [steps, ...columns];
}

// All that was measured, for a table.
export function rowsOf(courses: Course[]): (string | number)[][] {
  const rows = courses.flatMap(({ run, series }) =>
    Object.entries(series).flatMap(([key, { steps, values }]) => steps.map((step, at) => [run, key, step, values[at]!])),
  );
  return [["run", "what", "step", "value"], ...rows];
}

// A measurement in three digits or so.
export function digits(value: number, precision = 3): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size < 0.0001 ? value.toExponential(precision - 2) : String(Number(value.toPrecision(precision)));
}

// The ticks of an axis, in as many digits as tell them apart.
export function ticks(values: (number | null)[]): string[] {
  const written = (precision: number) => values.map((value) => (value === null ? "" : digits(value, precision)));
  const apart = (texts: string[]) => new Set(texts.filter(Boolean)).size === texts.filter(Boolean).length;
  return [3, 4, 5, 6].map(written).find(apart) ?? written(6);
}

export function ago(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 130_000 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

// What a run is doing, in a few words.
export function doing(course: Course): string {
  const last = Math.max(0, ...Object.values(course.series).map((each) => each.steps.at(-1) ?? 0));
  const of = course.steps ? ` of ${course.steps.toLocaleString("en")}` : "";
  const step = `step ${last.toLocaleString("en")}${of}`;
  if (course.quiet === null) return course.training ? "training begins" : "no measurements";
  if (!course.training) return `${step}, ended ${ago(course.quiet)} ago`;
  return course.quiet > 600 ? `${step}, last heard of ${ago(course.quiet)} ago` : `${step}, training now`;
}
