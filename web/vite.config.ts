// Three builds: `widget`, an ES module for anywidget, and `page`, a script to be put into an HTML file, have their styles
// inside; `studio`, a script with a style beside it, since a page that is served may have no other.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig(({ mode }) => ({
  plugins: [svelte({ compilerOptions: { css: mode === "studio" ? "external" : "injected" } })],
  build: {
    outDir: "../src/glassformer/looking/built",
    emptyOutDir: false,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // which know light-dark(): older ones would not see a theme that is chosen
    lib: {
      entry: mode === "studio" ? "src/studio/studio.ts" : `src/${mode}.ts`,
      formats: [mode === "widget" ? "es" : "iife"],
      name: "glassformer",
      fileName: () => `${mode}.js`,
      cssFileName: mode,
    },
  },
}));
