// What a number is, in words.
import type { Cell, Table, Unfolded } from "./types";

const CALLED: Record<string, string> = {
  queries: "Query",
  keys: "Key",
  values: "Value",
  heads: "Taken in",
  joined: "Taken in",
  output: "Output",
  input: "What is read",
  read: "What is read",
  before: "Stream before",
  after: "Stream after",
  hidden: "Hidden unit",
  embedding: "Embedding",
  positions: "Position",
};

export function tableOf(unfolded: Unfolded, cell: Cell): Table | undefined {
  const tables = Object.values(unfolded.tables).filter((each) => each.point === cell.point);
  return tables.find((each) => each.name !== "joined" && each.head === cell.head) ?? tables[0];
}

export function describe(unfolded: Unfolded, cell: Cell, tokens: string[], answers: string | null): string {
  const table = tableOf(unfolded, cell);
  const name = table?.name ?? "";
  const source = cell.point.includes(".cross.") && (name === "keys" || name === "values"); // its rows are of the encoder
  const token = (source ? table?.rows[cell.token - table.first] : tokens[cell.token]) ?? String(cell.token);
  const head = cell.head !== null && unfolded.part.heads > 1 ? `, head ${cell.head}` : "";
  const key = unfolded.keys[cell.at - (table?.first_column ?? 0)] ?? String(cell.at);
  if (name === "scores") return `Score of “${key}” for “${token}”${head}`;
  if (name === "weights") return `Weight: how much “${token}” reads “${key}”${head}`;
  if (name === "logits") return `Score of “${answers ?? cell.at}” after “${token}”`;
  if (name === "probabilities") return `Probability of “${answers ?? cell.at}” after “${token}”`;
  if (name === "numbers") return `Number ${cell.at} of the answer`;
  const called = CALLED[name] ?? `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`;
  return `${called} of “${token}”, number ${cell.at}${head}`;
}
