// The view in a notebook: an anywidget, whose model holds the packed trace.
import { mount, unmount } from "svelte";
import Alone from "./Alone.svelte";
import { traceOf, type PackedTrace } from "./trace";
import { unpack } from "./unpack";

interface Model {
  get(key: "packed"): DataView<ArrayBuffer>;
}

// Notebooks have themes of their own, which may differ from the system's.
function hostScheme(): "light" | "dark" | undefined {
  const { body, documentElement: root } = document;
  if (body.dataset.jpThemeLight !== undefined) return body.dataset.jpThemeLight === "true" ? "light" : "dark";
  if (body.dataset.vscodeThemeKind !== undefined) {
    return body.dataset.vscodeThemeKind.endsWith("light") ? "light" : "dark";
  }
  const theme = root.getAttribute("theme"); // Colab
  return theme === "light" || theme === "dark" ? theme : undefined;
}

async function render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
  const { buffer, byteOffset, byteLength } = model.get("packed");
  const answer = await unpack<PackedTrace>(new Uint8Array(buffer, byteOffset, byteLength));
  el.style.setProperty("--view-padding", "12px");
  const view = mount(Alone, { target: el, props: { trace: traceOf(answer), scheme: hostScheme() } });
  return () => void unmount(view);
}

export default { render };
